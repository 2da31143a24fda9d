"""The janitor: history within its bounds, the state's anchor once a minute, schedulers that stand still."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from raptor.actor import Actor
from raptor.config import Retention
from raptor.errors import RaptorError
from raptor.ref import Ref
from raptor.scheduler import Scheduler
from raptor.state.base import Store
from raptor.task import Slot

SWEEP_S = 60.0
IDLE = 60  # sweeps that are left out at most
SHED = 500  # tasks in one commit
LOOK_S = 1.0


class Janitor(Actor):
    """Tidies while others work; a store that cannot write is left for the next round."""

    look_s = LOOK_S  # between two looks at the schedulers

    def init(self, store: Callable[[], Store], retention: Retention, schedulers: Callable[[], Iterable[Ref]]) -> None:
        self._store = store
        self._retention = retention
        self._schedulers = schedulers
        self._swept = -1
        self._idle = 0
        self._overdue: dict[Ref, float] = {}  # checks, at the last look
        self.send_after(SWEEP_S, "sweep")
        self.send_after(self.look_s, "look")

    async def handle_info(self, message: Any) -> None:
        match message:
            case "sweep":
                await self._sweep()
                self.send_after(SWEEP_S, "sweep")
            case "look":
                await self._look()
                self.send_after(self.look_s, "look")
            case _:
                super().handle_info(message)

    async def _sweep(self) -> None:
        """What has not changed since the last time is left in peace, but for a look once an hour."""
        store = self._store()
        if store.sequence == self._swept and self._idle < IDLE:
            self._idle += 1
            return
        self._idle = 0
        before = self.runtime.clock.now() - self._retention.age_s
        await self._try(store.prune(before=before, keep=self._retention.keep))
        await self._try(self._shed(store))
        checkpoint = getattr(store, "checkpoint", None)
        if checkpoint is not None:
            await self._try(checkpoint())
        self._swept = store.sequence

    async def _shed(self, store: Store) -> None:
        """Tasks that ended long ago, a few in each commit, so that nobody waits long behind it."""
        before = self.runtime.clock.now() - self._retention.tasks_s
        while await store.shed(before=before, limit=SHED) == SHED:
            pass

    async def _try(self, work: Awaitable[object]) -> None:
        try:
            await work
        except RaptorError as error:
            self.runtime.events.emit("store_failing", scheduler="janitor", error=str(error))

    async def _look(self) -> None:
        """A scheduler that stands still is killed, which restarts it; the incident is a line of the ledger.

        It is one whose check two looks find: where the whole node stood still nobody has had a turn at the first.
        """
        before, self._overdue = self._overdue, {ref: at for ref in self._schedulers() if (at := _overdue(ref))}
        for ref in [ref for ref, at in self._overdue.items() if before.get(ref) == at]:
            now = self.runtime.clock.now()
            self.runtime.events.emit("scheduler_stalled", scheduler=ref.name)
            ref.kill()
            name = ref.name or "scheduler"
            line = Slot(service=name, planned=now, last=now, verdict="failed", reason="stalled", recorded=now)
            await self._try(self._store().record([line], ()))


def _overdue(ref: Ref) -> float | None:
    actor = ref.actor
    return actor.overdue if isinstance(actor, Scheduler) else None
