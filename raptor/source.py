"""Where units of work come from and go back to: the contract between `turn` and what it turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol, TypeVar

from raptor.lane import Lane
from raptor.runners import Context, Progress
from raptor.service import Service
from raptor.task import Result, Verdict


class Unit(Protocol):
    """One run that is about to happen."""

    @property
    def service(self) -> Service: ...

    def context(self, lane: Lane, on_progress: Callable[[Progress], None]) -> Context:
        """What the run may know of itself."""
        ...

    def judge(self, result: Result, now: float, rng: random.Random) -> Verdict:
        """What a result means. Pure."""
        ...


U = TypeVar("U", bound=Unit)


class Source(Protocol[U]):
    """Gives units when they are due, and takes their verdicts."""

    async def take(self, room: int) -> list[U]:
        """Wait until something is due; -> at most `room` units. None of them: stop."""
        ...

    def settle(self, unit: U, result: Result, verdict: Verdict) -> asyncio.Future[None]:
        """Have the verdict recorded; -> done when it is durable. Verdicts that are written together may share it."""
        ...
