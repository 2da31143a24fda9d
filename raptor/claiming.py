"""How a cycle comes to a service and to its row: by a claim among the schedulers of a node, by a right among nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from raptor.clock import Clock
from raptor.durably import Durably
from raptor.rows import ServiceTiming
from raptor.state.base import Right
from raptor.tenure import Tenure
from raptor.timetable import BY_HAND, ELSEWHERE, Claim, Timetable


class Claiming:
    """Of one scheduler; `tenure` is there where nodes share a store."""

    def __init__(self, scheduler: str, timetable: Timetable, tenure: Tenure | None, clock: Clock) -> None:
        self.is_shared = tenure is not None
        self._scheduler = scheduler
        self._timetable = timetable
        self._tenure = tenure
        self._clock = clock

    async def refresh(self, durably: Durably) -> None:
        """See what others wrote."""
        if self.is_shared and self._timetable.is_stale:
            await durably(self._timetable.load)

    async def share(self, service: str) -> bool:
        """Take the right to a service from among many nodes; where it is another's, that is seen as a claim."""
        if self._tenure is None:
            return True
        claim = Claim(self._scheduler, self._clock.new_id(), 0.0)
        if self._timetable.claim(service, claim) is not None:
            return False
        try:
            holder = await self._tenure.take(service)
        finally:
            self._timetable.release(service, claim.run)
        if holder is not None:
            self._timetable.claim(service, Claim(ELSEWHERE, holder, 0.0))
        return holder is None

    async def confirm(self) -> None:
        """A node that was suspended may have lost its rights, and not know it yet."""
        if self._tenure is not None:
            await self._tenure.confirm()

    def may_start(self) -> bool:
        return self._tenure is None or self._tenure.may_start()

    async def release(self, service: str, run: str = "") -> None:
        """Let go of a claim, and of the right that it stands for."""
        self._timetable.release(service, run)
        if self._tenure is not None:
            await self._tenure.give_back(service)

    async def save(self, service: str, row: ServiceTiming) -> None:
        """The row of a service that this scheduler runs."""
        await self._timetable.save(service, row, () if self._tenure is None else self._tenure.rights(service))

    @asynccontextmanager
    async def changing(self, service: str) -> AsyncGenerator[bool]:
        """Whether its row may be changed without a run: not if somebody else runs it, or has changed it meanwhile.

        Nobody begins a run as long as that lasts: it would be for a slot that is just being closed.
        """
        claim, row = self._timetable.claims.get(service), self._timetable.row(service)
        if claim is not None and claim.holder == self._scheduler:
            yield True
        elif self.is_shared:
            is_ours = await self.share(service)
            yield is_ours and self._timetable.row(service) == row
            if is_ours and service not in self._timetable.claims:
                await self.release(service)
        else:
            mine = Claim(self._scheduler, self._clock.new_id(), 0.0)
            other = self._timetable.claim(service, mine)
            try:
                yield other is None or other.holder == BY_HAND  # which is for no slot
            finally:
                self._timetable.release(service, mine.run)

    def rights(self) -> tuple[Right, ...]:
        """What every write of the scheduler carries."""
        return () if self._tenure is None else self._tenure.rights()
