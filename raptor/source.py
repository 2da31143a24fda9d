"""Where units of work come from and go back to: the contract between `turn` and what it turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

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


class Room(NamedTuple):
    """For so many units; if that is not known yet, then if it becomes sure."""

    units: int
    sure: asyncio.Future[bool] | None = None


class Source(Protocol[U]):
    """Gives units when they are due, and takes their verdicts."""

    async def take(self, room: Room) -> list[U] | None:
        """Wait until something is due; -> as many units as there is room for, or fewer. None: there will be no more."""
        ...

    def settle(self, unit: U, result: Result, verdict: Verdict) -> asyncio.Future[None]:
        """Have the verdict recorded; -> done when it is durable. Verdicts that are written together may share it."""
        ...
