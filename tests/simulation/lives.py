"""One life of a node: a whole Node, on a clock of its own, behind its door, with a runner that can lose a child."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec.structs import asdict

from raptor.catalogue import Catalogue
from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.config import Config
from raptor.janitor import Janitor
from raptor.leases import _end_leftovers  # pyright: ignore[reportPrivateUsage]
from raptor.node import Node
from raptor.runners import Context
from raptor.runners.family import sweep_after_crash
from raptor.runners.output import RunLog
from raptor.runners.python import PythonRunner
from raptor.service import Given, Service
from raptor.task import Outcome, Result
from tests.simulation.door import Door
from tests.simulation.loop import ManyLoop, Process
from tests.simulation.scenario import Kept

if TYPE_CHECKING:
    from tests.simulation.world import World

P = ParamSpec("P")
T = TypeVar("T")

NOWHERE = Path("/nowhere")
NO_PROCESSES = (sweep_after_crash, _end_leftovers)
"""What looks through the machine for processes, of which there are none here."""

KILLED = Result(outcome=Outcome.FAILED, info="killed by SIGKILL", error="killed by SIGKILL", died=True)


class LifeClock(VirtualClock):
    """The clock of one process: time is the loop's, chance is the seed's."""

    def __init__(self, loop: ManyLoop, start: float, slice_s: float, seed: str) -> None:
        super().__init__(start=start, slice_s=slice_s)
        self.rng = random.Random(seed)
        self._ids = random.Random(f"ids {seed}")
        self._loop = loop

    def now(self) -> float:
        return self._wall_at_zero + self._loop.now_s + self.offset_s

    def monotonic(self) -> float:
        return self._loop.now_s

    def new_id(self) -> str:
        return f"{self._ids.getrandbits(64):016x}"

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)
        return 0 if work in NO_PROCESSES else work(*args, **kwargs)  # type: ignore[return-value]


class LifeRunner(PythonRunner):
    """Some runs lose the process that they would have."""

    def __init__(self, living: Living) -> None:
        super().__init__(living.clock)
        self._living = living

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        living = self._living
        script = living.world.work.script(service.name)
        living.scripts[context.run_id] = script
        if script.kind != "kill":
            return await super().run(service, context, log)
        pid = living.world.new_pid()
        living.world.work.write("start", living, context, pid)
        try:
            await living.clock.sleep(script.takes_s)
        except asyncio.CancelledError:
            living.world.work.write("cut", living, context, pid)
            raise
        living.world.lost_child(living, pid)
        return KILLED


class CalmJanitor(Janitor):
    """Years pass too slowly if somebody looks every second, and sweeps every minute."""

    look_s = 300.0
    sweep_s: float

    async def handle_info(self, message: Any) -> None:
        if message != "sweep":
            await super().handle_info(message)
            return
        await self._sweep()
        self.send_after(self.sweep_s, "sweep")


@cache
def calm_janitor(sweep_s: float) -> type[CalmJanitor]:
    return type("CalmJanitor", (CalmJanitor,), {"sweep_s": sweep_s})


class Living(Node):
    """A life of the node at a place; `number` is no other life's."""

    def __init__(self, world: World, place: str, number: int) -> None:
        self.world = world
        self.place = place
        self.number = number
        self.pid = world.new_pid()
        self.process = Process(f"{place}#{number}", number)
        self.began = world.loop.now_s
        self.ended: float | None = None
        self.killed = False
        self.stopping: float | None = None  # when it was told to stop in order
        self.gone: asyncio.Future[None] = world.loop.create_future()
        self.is_up = False
        self.scripts: dict[str, Any] = {}
        self.door = Door(self, world.image)
        store: Any = self.door
        clock = LifeClock(world.loop, world.wall_at_zero, world.slice_s, f"{world.seed} {number}")
        super().__init__(services=world.work.services, config=world.config, clock=clock, store=store, grace_s=5.0)

    def _work(self) -> list[ChildSpec]:
        self._workshop.runners = {"python": LifeRunner(self)}
        janitor = calm_janitor(self.world.sweep_s)
        return [replace(spec, start=janitor) if spec.id == "janitor" else spec for spec in super()._work()]

    @property
    def owner(self) -> str:
        return self._workshop.owner


class SameConfig(Config, frozen=True, kw_only=True):
    """One for all lives of a world, which define the same services: they are looked at once."""

    known: list[Catalogue]

    def catalogue(self, services: Iterable[Given] = ()) -> Catalogue:
        if not self.known:
            self.known.append(super().catalogue(services))
        return self.known[0]


def configuration(lanes: int, kept: Kept) -> Config:
    return SameConfig(**asdict(_plain(lanes, kept)), known=[])


@cache
def _plain(lanes: int, kept: Kept) -> Config:
    flags = {
        "home": str(NOWHERE), "worker.processors": str(lanes),
        "retention.age": kept.age, "retention.keep": str(kept.runs), "retention.tasks": kept.tasks,
    }  # fmt: skip
    return Config.load(flags, environ={}, cwd=NOWHERE.parent, user_file=NOWHERE / "none")
