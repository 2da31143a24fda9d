"""A node in virtual time with one branch of its tree: what the worlds of schedulers and of queues have in common."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.config import Config
from raptor.desk import TaskDesk
from raptor.events import Event
from raptor.node import Node
from raptor.runners import Runner
from raptor.runtime import Runtime
from raptor.service import Service
from raptor.site import Site
from raptor.supervisor import Supervisor
from raptor.turn import Logs
from raptor.workshop import Workshop

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC).timestamp()
NOWHERE = Path("/nowhere")


class Lasting(Protocol):
    """What outlives a process, as far as one needs it to begin."""

    clock: VirtualClock
    grace_s: float
    services: list[Service]
    events: list[Event]


class BranchNode(Node):
    """A Node without files and doors, of which only one branch of `work` grows."""

    branch: str

    def __init__(self, world: Lasting, store: Any) -> None:
        config = Config.load({"home": str(NOWHERE)}, environ={}, cwd=Path("/"), user_file=NOWHERE / "none")
        super().__init__(services=world.services, config=config, clock=world.clock, grace_s=world.grace_s, store=store)
        self._heard = world.events

    def _runner(self) -> Runner:
        """What runs functions here."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self.runtime = Runtime(self.clock, log=False)
        self.runtime.events.subscribe(self._heard.append)
        self._workshop = Workshop(
            timetable=None,  # type: ignore[arg-type]
            runners={"python": self._runner()},
            logs=Logs(),
            catalogue=self.config.catalogue(self._given),
            resources=self._resources,
        )
        self._desk = TaskDesk(self._workshop, self.clock.now)
        self.site = Site(NOWHERE, self.clock, self._workshop, self.config, live=self)
        root = await self.runtime.start(
            Supervisor, self._tree(), strategy="rest_for_one", intensity=3, period_s=60.0, name="node"
        )
        assert root is not None
        self._root = root
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _work(self) -> list[ChildSpec]:
        return [spec for spec in super()._work() if spec.id == self.branch]

    def replace_services(self, services: Iterable[Service]) -> None:
        self._given = list(services)
        self._workshop.catalogue = self.config.catalogue(self._given)
