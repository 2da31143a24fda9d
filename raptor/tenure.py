"""The rights of a scheduler on a shared store: to itself, and to the services that it runs.

Every heartbeat renews what is held. One that is lost refuses every write that carries it, and ends the tenure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from raptor.clock import Clock, first_of
from raptor.durably import Durably
from raptor.errors import NotWritten, StaleLease
from raptor.events import Events
from raptor.rows import LEASE_S
from raptor.state.base import Grant, Right
from raptor.workshop import Workshop

LATER_S = 0.001  # a lease has ended a moment after its end


class Tenure:
    """Of one scheduler. `holder` is the owner for whom it stands by."""

    def __init__(self, scheduler: str, workshop: Workshop, clock: Clock, events: Events) -> None:
        self.holder: str | None = None
        self.durably = Durably(scheduler, clock, events)
        self._scheduler = scheduler
        self._key = f"scheduler:{scheduler}"
        assert workshop.company is not None
        self._workshop = workshop
        self._company = workshop.company
        self._timetable = workshop.timetable
        self._store = workshop.timetable.store
        self._clock = clock
        self._events = events
        self._rights: dict[str, Right] = {}
        # In the place of an earlier tenure that was killed: what that one left is not renewed, and lapses.
        self._company.rights[scheduler] = self._rights
        self._claiming = asyncio.Lock()  # a right that is given back must not be renewed meanwhile
        self._stopped = asyncio.Event()

    @property
    def is_held(self) -> bool:
        return self._key in self._rights

    def rights(self, *services: str) -> tuple[Right, ...]:
        """What a write carries: the right to the scheduler, and those to services."""
        mine = self._rights.get(self._key)
        if mine is None:
            raise StaleLease(self._key)
        theirs = (self._rights.get(f"service:{service}") for service in services)
        return (mine, *(right for right in theirs if right is not None))

    def stop(self) -> None:
        """Stand by no longer."""
        self.durably.hurry()
        self._stopped.set()

    async def obtain(self) -> bool:
        """Stand by until the scheduler is ours; False if that is not wanted any more."""
        while not self._stopped.is_set():
            async with self._claiming:
                grant = (await self._claim([self._key]))[self._key]
            if grant.owner == self._workshop.owner:
                if self.holder is not None:
                    self._events.emit("taken_over", scheduler=self._scheduler, owner=self._name(self.holder))
                self.holder = None
                self._rights[self._key] = Right(self._key, grant.fence)
                return True
            if grant.owner != self.holder:
                self.holder = grant.owner
                self._events.emit("standing_by", scheduler=self._scheduler, owner=self._name(grant.owner))
            await self._until_free(grant)
        return False

    async def _until_free(self, grant: Grant) -> None:
        """Until its owner is gone, by the last heartbeat, or its lease has ended as far as it is known here."""
        company, lease = self._company, grant.lease
        while not self._stopped.is_set() and (company.is_patient or self._clock.now() <= lease):
            end = [] if company.is_patient else [self._clock.sleep_until(lease + LATER_S)]
            await first_of(company.beat(), self._stopped.wait(), *end)
            if company.nodes and grant.owner not in company.alive:
                return
            owner = company.find(grant.owner)
            if owner is not None and Right(self._key, grant.fence) in owner.rights:
                lease = max(lease, owner.seen + LEASE_S)

    async def keep(self) -> None:
        """StaleLease when a heartbeat did not renew what is held: it is somebody else's."""
        while True:
            await self._company.beat()
            for key, right in self._rights.items():
                if right in self._company.lost:
                    raise StaleLease(key)

    async def take(self, service: str) -> str | None:
        """Take the right to a service, and see its row as it is; -> who has it, if that is somebody else."""
        key, timetable = f"service:{service}", self._timetable
        # Others may take one for gone that could not show itself, whatever it claims: first they shall see it.
        while self._company.failing is not None and not self._stopped.is_set():
            await first_of(self._company.beat(), self._stopped.wait())
        async with self._claiming:
            # Together, so that its lease never outlives that of the scheduler, which others wait for.
            grant = (await self._claim([self._key, key]))[key]
            if grant.owner != self._workshop.owner:
                return grant.owner
            self._rights[key] = Right(key, grant.fence)
        if timetable.is_stale or timetable.fences.get(service) != grant.fence - 1:
            await self.durably(timetable.load)  # somebody else may have run it
        timetable.fences[service] = grant.fence
        return None

    @property
    def is_sure(self) -> bool:
        """Whether what is held is ours for sure: others take for gone whom they have not seen for a lease."""
        me, lost = self._company.find(self._workshop.owner), self._company.lost
        is_seen = me is not None and self._clock.now() <= me.seen + LEASE_S
        return is_seen and self.is_held and lost.isdisjoint(self._rights.values())

    async def confirm(self) -> None:
        """What is not sure is seen with the next heartbeat, which renews it or tells that it is lost."""
        if not self.is_sure:
            await first_of(self._company.beat(), self._stopped.wait())

    def may_start(self) -> bool:
        """Whether a run may begin; if that is not sure the tenure is over, and nothing is written for it any more."""
        if not self.is_sure:
            self._rights.clear()
        return self.is_held

    async def give_back(self, service: str) -> None:
        """A store that cannot write lets the right lapse."""
        async with self._claiming:
            await self._release([f"service:{service}"])

    async def resign(self) -> None:
        """Give everything back."""
        async with self._claiming:
            await self._release([*self._rights])

    async def _release(self, keys: Iterable[str]) -> None:
        rights = [right for key in keys if (right := self._rights.pop(key, None)) is not None]
        if rights and not self.durably.given_up:  # whoever does not answer would not now
            with suppress(NotWritten):
                await self.durably.once(lambda: self._store.release(rights, owner=self._workshop.owner))

    async def _claim(self, keys: list[str]) -> dict[str, Grant]:
        owner = self._workshop.owner
        grants = await self.durably(
            lambda: self._store.claim(keys, owner=owner, now=self._clock.now(), lease_s=LEASE_S)
        )
        for key, right in self._rights.items():
            grant = grants.get(key)
            if grant is not None and (grant.owner, grant.fence) != (owner, right.fence):
                raise StaleLease(key)
        return grants

    def _name(self, owner: str) -> str:
        return self._company.name(owner)
