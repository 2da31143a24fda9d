"""What a supervisor knows of a child, what it tells of it, and how it ends it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from raptor.childspec import BRUTAL_KILL, INFINITY, ChildSpec, ChildType, Shutdown
from raptor.exits import Exit
from raptor.ref import Ref, all_ended


class Child:
    """A child as its supervisor knows it: running (`ref`), being restarted, or neither."""

    __slots__ = ("args", "attempt", "key", "kwargs", "previous", "ref", "restarting", "spec", "starts", "streak")

    def __init__(self, key: Hashable, spec: ChildSpec) -> None:
        self.key = key
        self.spec = spec
        self.args: tuple[Any, ...] = ()  # after those of the spec
        self.kwargs: dict[str, Any] = {}
        self.ref: Ref | None = None
        self.previous: Ref | None = None  # who it was before it ended
        self.restarting = False
        self.starts = 0
        self.streak = 0  # restarts in a row, for the backoff
        self.attempt = 0  # tells a delayed restart whether it is still wanted


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """A line of `which_children`: `ref` is None while it does not run."""

    id: Hashable
    ref: Ref | None
    restarting: bool
    type: ChildType


@dataclass(frozen=True, slots=True)
class Counts:
    """OTP's count_children."""

    specs: int
    active: int
    supervisors: int
    workers: int


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """The term of a supervisor's shutdown when a child of its did not start."""

    id: Hashable
    reason: object


async def shut_down(refs: list[Ref], shutdown: Shutdown) -> None:
    """By monitors, not by links: a child that unlinked itself is stopped all the same."""
    if shutdown != BRUTAL_KILL:
        for ref in refs:
            ref.exit(Exit.SHUTDOWN)
        await all_ended(refs, None if shutdown == INFINITY else float(shutdown))
    for ref in refs:
        ref.kill()
    await all_ended(refs)
