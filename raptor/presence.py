"""The presence of a node on a shared store: it shows itself with every heartbeat, and sees who else is there."""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from raptor import __version__
from raptor.actor import IGNORE, Actor
from raptor.company import Company
from raptor.errors import NotWritten, RaptorError
from raptor.exits import Reason, is_clean
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.scheduler import Scheduler
from raptor.state.base import BEAT_S, Presence
from raptor.timetable import ELSEWHERE
from raptor.tree import tree
from raptor.worker import Worker
from raptor.workshop import Workshop

RESULTS = 20
"""Of a cycle, that others are shown."""

Doing = Callable[[], dict[str, Any]]


class Present(Actor):
    """`doing` says what the node does; `look` has its worker look again.

    On a store of one process there is nothing to show.
    """

    async def init(self, workshop: Workshop, doing: Doing, look: Callable[[], Awaitable[None]]) -> Any:
        company = workshop.company
        if workshop.timetable.store.exclusive or company is None:
            return IGNORE
        host, pid = socket.gethostname(), os.getpid()
        self._store = workshop.timetable.store
        self._timetable = workshop.timetable
        self._company: Company = company
        self._doing = doing
        self._look = look
        self._presence = Presence(
            owner=workshop.owner,
            name=f"{host}:{pid}",
            host=host,
            pid=pid,
            version=__version__,
            started=self.runtime.clock.now(),
        )
        await self._beat()
        return None

    async def handle_info(self, message: Any) -> None:
        match message:
            case "beat":
                await self._beat()
            case _:
                super().handle_info(message)

    async def _beat(self) -> None:
        """A store that does not answer is asked again with the next beat; everybody keeps what they have."""
        events = self.runtime.events
        try:
            rights = frozenset(right for held in self._company.rights.values() for right in held.values())
            shown = msgspec.structs.replace(self._presence, doing=self._doing(), rights=tuple(rights))
            nodes = await self._store.appear(shown, now=self.runtime.clock.now())
        except NotWritten as error:
            if self._company.failing is None:
                events.emit("store_lost", error=str(error))
            self._company.fail(str(error))
        else:
            if self._company.failing is not None:
                events.emit("store_back")
            known = {node.owner: node for node in self._company.nodes}
            kept = {right for node in nodes if node.owner == shown.owner for right in node.rights}
            left = self._company.tell(nodes, lost=rights - kept)
            for owner in sorted(left):
                gone = known.get(owner) or self._company.find(owner)
                events.emit("node_left", node=owner if gone is None else gone.name)
            if left:
                with suppress(RaptorError):  # the worker has just ended, or is busy
                    await self._look()  # a limit that it had used up may be free
            self._timetable.release_all(ELSEWHERE)  # whoever waits for them looks again
        self.send_after(BEAT_S, "beat")

    async def terminate(self, reason: Reason) -> None:
        if is_clean(reason):
            with suppress(NotWritten):
                await self._store.vanish(self._presence.owner)


def doing(runtime: Runtime, schedulers: Iterable[Ref]) -> dict[str, Any]:
    """What others may know of a node, as JSON values. It asks nobody, so that a heartbeat waits for nobody."""
    root, worker = runtime.whereis("node"), runtime.whereis("worker")
    return {
        "schedulers": [_short(ref.actor.status()) for ref in schedulers if isinstance(ref.actor, Scheduler)],
        "worker": worker.actor.status() if worker is not None and isinstance(worker.actor, Worker) else None,
        "tree": None if root is None else tree(root).plain(),
    }


def _short(status: dict[str, Any]) -> dict[str, Any]:
    """A heartbeat is small, however long a cycle is."""
    return status | {name: status[name][-RESULTS:] for name in ("results", "remaining_services")}
