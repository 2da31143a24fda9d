"""The timing of all services of a node, and who runs which of them now.

Schedulers share it: on files the directory lock is the fence, so a claim is held in memory only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from raptor.clock import Clock
from raptor.due import rounded
from raptor.events import Events
from raptor.rows import ServiceTiming
from raptor.state.base import Store

STEP_S = 1.0
"""How far the wall clock must be set for it to count as a step."""


class Claim(msgspec.Struct, frozen=True):
    """The right to run a service, until it is released."""

    holder: str
    run: str
    planned: float


class Timetable:
    """The rows of service_timing as they are on disk, and the claims."""

    def __init__(self, store: Store, clock: Clock, events: Events) -> None:
        self.store = store
        self.claims: dict[str, Claim] = {}
        self._clock = clock
        self._events = events
        self._rows: dict[str, ServiceTiming] = {}
        self._released = asyncio.Event()
        self._skew = clock.now() - clock.monotonic()

    async def load(self) -> None:
        rows = await self.store.load("service_timing")
        self._rows = {name: row for name, row in rows.items() if isinstance(row, ServiceTiming)}

    def row(self, service: str) -> ServiceTiming | None:
        return self._rows.get(service)

    @property
    def rows(self) -> dict[str, ServiceTiming]:
        return dict(self._rows)

    async def save(self, service: str, row: ServiceTiming) -> None:
        """Durable when this returns; nobody sees it before."""
        await self.store.save([("service_timing", service, row)])
        self._rows[service] = row

    def claim(self, service: str, claim: Claim) -> Claim | None:
        """Take the right to run a service; -> who holds it, if that is somebody else."""
        holder = self.claims.get(service)
        if holder is None:
            self.claims[service] = claim
        return holder

    def release(self, service: str, run: str) -> None:
        claim = self.claims.get(service)
        if claim is not None and claim.run == run:
            del self.claims[service]
            self._released.set()
            self._released = asyncio.Event()

    async def wait_for_release(self, service: str) -> None:
        while service in self.claims:
            await self._released.wait()

    async def follow_clock(self, is_interval: Callable[[str], bool]) -> float:
        """Notice that the wall clock was set; -> by how much. Intervals are moved along, calendars are not."""
        skew = self._clock.now() - self._clock.monotonic()
        step = skew - self._skew
        if abs(step) < STEP_S:
            return 0.0
        self._skew = skew
        self._events.emit("clock_stepped", step_s=step)
        moved = {name: _moved(row, step) for name, row in self._rows.items() if is_interval(name)}
        await self.store.save([("service_timing", name, row) for name, row in moved.items()])
        self._rows.update(moved)
        return step


def _moved(row: ServiceTiming, step: float) -> ServiceTiming:
    times = {name: getattr(row, name) for name in ("next_due", "slot", "origin", "open", "retry_at")}
    return msgspec.structs.replace(row, **{name: rounded(at + step) for name, at in times.items() if at is not None})
