"""The services of a simulation, what each run of them does, and the ledger that they write."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from raptor.runners import Context
from raptor.service import Service
from raptor.testing.checker.history import Line
from tests.simulation.loop import HERE

if TYPE_CHECKING:
    from tests.simulation.lives import Living
    from tests.simulation.world import World

LIMIT_S = 120.0  # of a run; one that hangs is ended by it
LASTING_S = 100.0  # of the service of that name: longer than a lease


class Script(NamedTuple):
    """What a run will do."""

    kind: str  # well, fail, hang, kill, long
    takes_s: float


class Work:
    def __init__(self, world: World, services: list[Service], *, longest_s: float = 10.0) -> None:
        self.lines: list[Line] = []
        self.started: set[str] = set()
        self._world = world
        function = self._function()
        self.services = [replace(service, function=function, timeout_s=LIMIT_S) for service in services]
        self._rng = random.Random(f"work {world.seed}")
        self._longest_s = longest_s

    def _function(self) -> Callable[[Context], Coroutine[Any, Any, str]]:
        async def function(ctx: Context) -> str:
            return await self._run(ctx)

        # Every node looks at the parameters of every service, and finding them out is slow.
        function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return function

    async def _run(self, ctx: Context) -> str:
        living: Living = self._world.living(HERE.get())
        script = living.scripts.pop(ctx.run_id, None) or Script("well", 0.0)
        self.write("start", living, ctx)
        try:
            if script.takes_s:
                await living.clock.sleep(script.takes_s)
        except asyncio.CancelledError:
            self.write("cut", living, ctx)
            raise
        if script.kind == "fail" or (ctx.service == "flaky" and ctx.attempt == 0):
            self.write("fail", living, ctx)
            raise ValueError("as it was told")
        self.write("end", living, ctx)
        return "well"

    def script(self, service: str) -> Script:
        kind = self._world.plan.of_run()
        takes_s = self._rng.choice((0.0, 0.001, 0.1, 1.0)) * self._rng.random() * self._longest_s
        match kind:
            case None if service == "lasting":
                return Script("well", LASTING_S)
            case "hang":
                return Script(kind, 1e7)
            case "long":
                return Script(kind, self._rng.uniform(self._longest_s, LIMIT_S - 1))
            case None:
                return Script("well", takes_s)
            case _:
                return Script(kind, takes_s)

    def write(self, what: Any, living: Living, ctx: Context, pid: int | None = None) -> None:
        """A line of the ledger, by the process of the node or one of the service's own."""
        world, task = self._world, ctx.task
        line = Line(
            what=what,
            run=ctx.run_id,
            service=ctx.service,
            task=None if task is None else task.id,
            fence=0 if task is None else task.fence,
            scheduler=ctx.scheduler,
            attempt=ctx.attempt,
            life=living.number,
            pid=living.pid if pid is None else pid,
            planned=ctx.planned,
            at=world.at,
            wall=living.clock.now(),
        )
        self.lines.append(line)
        world.trace(living, what, f"{line.service} {line.run} {line.planned}")
        if what == "start":
            world.rules.started(living, line)
