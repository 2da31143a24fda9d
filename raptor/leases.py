"""Leases of what runs here, renewed; and tasks of those who are gone, which come back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from raptor.assignment import Assignment
from raptor.clerk import Clerk
from raptor.clock import Clock, first_of
from raptor.company import QUIET_S, Company
from raptor.errors import NotWritten
from raptor.rows import LEASE_S
from raptor.runners.family import sweep_after_crash
from raptor.settlement import LAPSED, as_after_a_crash, once_repeated
from raptor.state.base import Hold, Query
from raptor.task import Dead, Ended, State, Task
from raptor.workshop import Workshop

BEAT = 3  # a lease is renewed when a third of it has passed
PAGE = 500
AGAIN_S = 1.0  # between two tries to renew after one that failed


class Leases:
    """Of what is `running`, and of what has ended until that is written: `recording`, which may wait for a lock.

    `unwanted` is told of tasks that were cancelled elsewhere, `lost` of those that are somebody else's by now.
    """

    def __init__(
        self,
        workshop: Workshop,
        clerk: Clerk,
        clock: Clock,
        running: Mapping[int, Assignment],
        recording: Callable[[], Iterable[Assignment]],
        unwanted: Callable[[Iterable[int]], None],
        lost: Callable[[Iterable[int]], None],
    ) -> None:
        self._workshop = workshop
        self._store = workshop.timetable.store
        self._clerk = clerk
        self._clock = clock
        self._running = running
        self._recording = recording
        self._unwanted = unwanted
        self._lost = lost
        self._changed = asyncio.Event()
        self._started = asyncio.Event()
        self._seen: object = None  # what gave rise to doubt last
        self._doubt_until = 0.0

    def wake(self) -> None:
        """Something runs."""
        self._started.set()

    def reset(self) -> None:
        """Queues were set anew: a lease may be shorter."""
        self._changed.set()

    async def take_over(self) -> None:
        """At the start: what this process lost hold of, and what others left. What others hold may lapse yet."""
        after, held = 0, False
        query = Query(states=(State.TAKEN,), limit=PAGE)
        while page := await self._find(query, after):
            after = page[-1].id
            orphans = [task for task in page if self._is_orphan(task)]
            await self._bring_back(orphans)
            held |= len(orphans) < len(page)
        if not held and self._workshop.company is not None:
            self._seen = self._company_of(self._workshop.company)

    async def keep(self) -> None:
        """Renew, for ever. Where owners live elsewhere, see whether one is gone."""
        back_at = -math.inf
        while True:
            if self._store.exclusive and not self._running:
                self._started.clear()
                await self._started.wait()
            lease_s = min([LEASE_S, *(line.lease_s for line in self._workshop.lines.values())])
            await self._beat(AGAIN_S if self._clock.monotonic() < back_at else lease_s / BEAT)
            failures, failed = self._clerk.durably.failures, False
            try:
                await self._renew(lease_s)
                is_early = self._clock.monotonic() < back_at or self._is_patient()
                if not self._store.exclusive and self._is_doubtful() and not is_early:
                    await self._sweep()
            except NotWritten:
                failed = True
            if failed or self._clerk.durably.failures != failures:
                back_at = self._clock.monotonic() + QUIET_S  # others may have failed to renew theirs, too

    async def _beat(self, seconds: float) -> None:
        self._changed.clear()
        company = self._workshop.company
        left = [] if company is None else [company.departure()]
        await first_of(self._clock.sleep(seconds), self._changed.wait(), *left)

    async def _renew(self, lease_s: float) -> None:
        units = {*self._running.values(), *self._recording()}
        holds = [Hold(task.id, task.fence) for unit in units for task in unit.tasks]
        if holds:
            until = self._clock.now() + lease_s
            held = await self._store.extend(holds, until=until)
            for unit in units:
                unit.lease = max(unit.lease, until)
            self._unwanted(held.unwanted)
            self._lost(held.stale)

    def _is_doubtful(self) -> bool:
        """Whether a lease may lapse: if others had one at first, after a failure, and when a node is quiet or has left.

        Others renew theirs.
        """
        company, now = self._workshop.company, self._clock.now()
        if company is None or not company.nodes:
            return True
        seen = self._company_of(company)
        if seen != self._seen:
            self._seen, self._doubt_until = seen, now + 2 * LEASE_S
        return now < self._doubt_until

    def _company_of(self, company: Company) -> object:
        return (company.left, company.quiet, company.failures, self._clerk.durably.failures)

    def _is_patient(self) -> bool:
        """After an outage others renew theirs first."""
        return self._workshop.company is not None and self._workshop.company.is_patient

    async def _sweep(self) -> None:
        """Bring back what has lapsed, and at once what belongs to nodes that have left."""
        left = () if self._workshop.company is None else tuple(sorted(self._workshop.company.left))
        queries = [Query(lapsed=self._clock.now(), limit=PAGE), *([Query(owners=left, limit=PAGE)] if left else [])]
        for query in queries:
            after = 0
            while page := await self._find(query, after):
                after = page[-1].id
                orphans = [task for task in page if not self._is_held(task) and self._is_abandoned(task)]
                await self._bring_back(orphans)

    async def _find(self, query: Query, after: int) -> list[Task]:
        return await self._clerk.durably(lambda: self._store.find(msgspec.structs.replace(query, after=after)))

    def _is_orphan(self, task: Task) -> bool:
        if task.owner == self._workshop.owner:
            return not self._is_held(task)
        return self._store.exclusive or self._is_abandoned(task)

    def _is_held(self, task: Task) -> bool:
        return (task.id, task.fence) in self._workshop.held

    def _is_abandoned(self, task: Task) -> bool:
        """Its lease has ended, or its owner left. One that took or renewed it since that was heard of is back."""
        company, lease = self._workshop.company, task.lease or 0.0
        if lease < self._clock.now():
            return True
        if company is None or task.owner not in company.left:
            return False
        return lease <= company.as_of + self._workshop.line(task.queue).lease_s

    async def _bring_back(self, orphans: list[Task]) -> None:
        if orphans:
            await self._clock.offload(_end_leftovers, orphans)
            now = self._clock.now()
            lost = map(once_repeated, orphans)
            written = self._clerk.enter(self._ended(task, now) for task in lost)
            await asyncio.shield(written)  # others may wait for it, whatever becomes of us

    def _ended(self, task: Task, now: float) -> Ended:
        if task.reason:  # damaged: what its row says of its runs is not to be believed
            return task, msgspec.structs.replace(LAPSED, info=f"the row is {task.reason}"), Dead("bad payload"), False
        return task, LAPSED, as_after_a_crash(task, self._workshop.catalogue.get(task.service), now), True


def _end_leftovers(tasks: Iterable[Task]) -> None:
    """What they had started may have outlived the node: never two copies at a time."""
    for task in tasks:
        sweep_after_crash(f"{task.id}.{task.fence}", task.owner)
