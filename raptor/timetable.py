"""The timing of all services of a node, and who runs which of them now.

Schedulers share it: on files the directory lock is the fence, so a claim is held in memory only. On a store of many
nodes it stands for a right that tenure.py took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from raptor.clock import Clock
from raptor.due import rounded
from raptor.errors import NotWritten
from raptor.events import Events
from raptor.rows import ServiceTiming
from raptor.state.base import Right, Store

BY_HAND = "a run by hand"
"""The holder of a claim that is no scheduler."""

BY_COMMAND = "a command"
"""The holder of a claim for as long as a command closes slots, or plans anew: that is waited for."""

ELSEWHERE = "another node"
"""The holder of a claim of which only that much is known. It is looked at again with the next heartbeat."""

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
        # What a check looks at first, for thousands of services: when each may run, and which are being tried again.
        self.gates: dict[str, float] = {}
        self.retries: dict[str, float] = {}
        self._released = asyncio.Event()
        self.stepped = 0.0  # how far the wall clock was set in all, since the start
        self._skew = clock.now() - clock.monotonic()
        self._following = asyncio.Lock()
        # On a shared store:
        self.is_stale = False  # somebody wrote rows since they were loaded
        self._loading: list[set[str]] = []  # what is written while rows are read, for each who reads
        self.fences: dict[str, int] = {}  # of the right to a service, when its row was last as it is here

    async def load(self) -> None:
        self.is_stale, written = False, set[str]()
        self._loading.append(written)
        try:
            rows = await self.store.load("service_timing")
        except NotWritten:
            self.is_stale = True
            raise
        finally:
            # This very one: another reader's may hold the same names.
            self._loading = [one for one in self._loading if one is not written]
        for name, row in rows.items():
            # What was written meanwhile is newer than what was read.
            if isinstance(row, ServiceTiming) and name not in written and row != self._rows.get(name):
                self._show(name, row)

    def _show(self, service: str, row: ServiceTiming) -> None:
        self._rows[service] = row
        self.gates[service] = row.next_due if row.retry_at is None else row.retry_at
        if row.open is not None and row.retry_at is not None:
            self.retries[service] = row.retry_at
        else:
            self.retries.pop(service, None)

    def row(self, service: str) -> ServiceTiming | None:
        return self._rows.get(service)

    @property
    def rows(self) -> dict[str, ServiceTiming]:
        return dict(self._rows)

    async def save(self, service: str, row: ServiceTiming, rights: Sequence[Right] = ()) -> None:
        """Durable when this returns; nobody sees it before."""
        await self.store.save([("service_timing", service, row)], rights=rights)
        for written in self._loading:
            written.add(service)
        self._show(service, row)

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

    def release_all(self, holder: str) -> None:
        """Take back what a scheduler held that is no more."""
        for service, claim in list(self.claims.items()):
            if claim.holder == holder:
                self.release(service, claim.run)

    async def released(self) -> None:
        """Wait until any claim is released."""
        await self._released.wait()

    @property
    def step(self) -> float:
        """How far the wall clock was set since the rows were last moved along. A shared store has its own clock."""
        if not self.store.exclusive:
            return 0.0
        step = self._clock.now() - self._clock.monotonic() - self._skew
        return 0.0 if abs(step) < STEP_S else step

    async def follow_clock(self) -> None:
        """Move intervals along with a wall clock that was set; calendars stay where they are.

        A service that runs is left to its scheduler, whose verdict would be overwritten.
        """
        async with self._following:
            step = self.step
            if not step:
                return
            idle = {name: row for name, row in self._rows.items() if name not in self.claims}
            moving = {name: moved(row, step) for name, row in idle.items() if row.interval_seconds is not None}
            await self.store.save([("service_timing", name, row) for name, row in moving.items()])
            for name, row in moving.items():
                self._show(name, row)
            self._skew += step
            self.stepped += step
        self._events.emit("clock_stepped", step_s=step)


def moved(row: ServiceTiming, step: float) -> ServiceTiming:
    """The row of an interval by a clock that was set."""
    names = ("next_due", "slot", "origin", "open", "retry_at", "last_start", "last_end")
    times = {name: getattr(row, name) for name in names}
    return msgspec.structs.replace(row, **{name: rounded(at + step) for name, at in times.items() if at is not None})
