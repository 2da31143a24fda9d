"""One simulation from its beginning to the verdict: nodes are kept, asked, disturbed; then all must come to rest."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from raptor.due import rounded
from raptor.errors import AlreadyRunning, NotWritten, RaptorError, RefusedState, StartFailed
from raptor.rows import ServiceTiming
from raptor.task import ENDED, State
from raptor.testing.checker import Command, Fault, check
from tests.simulation.lives import Living
from tests.simulation.plan import Plan
from tests.simulation.scenario import Scenario
from tests.simulation.world import Gone, World

STEPS = 4  # of the wall clock, in one simulation
LIMIT_S = 900.0  # by which everything that is due has to be final


@dataclass(frozen=True)
class Verdict:
    """What a simulation came to."""

    scenario: str
    violations: list[str]
    trace: str
    points: int
    faults: Counter[str]
    node_s: float
    counts: Counter[str]


class Drive:
    def __init__(self, seed: int, scenario: Scenario, plan: Plan) -> None:
        self.scenario = scenario
        self.plan = plan
        self.world = World(seed, plan, scenario)
        self._rng = random.Random(f"client {seed}")
        self._defining = asyncio.Lock()
        self._defined: set[str] = set()
        self._wanted = dict.fromkeys(scenario.schedulers, True)  # schedulers that are to run
        self._ids: list[int] = []
        self._rest = asyncio.Event()  # no more faults

    async def main(self) -> None:
        world, scenario = self.world, self.scenario
        spawn = world.loop.create_task
        keepers = [spawn(self._keep(f"n{number}")) for number in range(scenario.nodes)]
        others = [spawn(self._disturb(kind, mean_s)) for kind, mean_s in self.plan.troubles.items()]
        others += [spawn(self._put(dict(order))) for order in scenario.puts]
        if scenario.asks_s:
            others.append(spawn(self._use()))
        tasks = [*keepers, *others]
        await asyncio.sleep(scenario.hours * 3600)
        self.plan.over = True
        self._rest.set()
        world.counts["points"] = world.points
        await self._come_to_rest()
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
            task.cancel()

    # Keeping nodes

    async def _keep(self, place: str) -> None:
        """As systemd would: a node that ends is started again."""
        rng = random.Random(f"{place} {self.world.seed}")
        while True:
            one = self.world.born(place)
            await self._live(one)
            if one.stopping is not None and one.ended is None:
                await asyncio.wait({one.gone})  # it has something to say yet
            if one.ended is None:
                self.world.end(one, killed=False)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._rest.wait(), rng.choice(self.scenario.away_s))
            await asyncio.sleep(0.5 if self._rest.is_set() else 0.0)

    async def _live(self, one: Living) -> None:
        world = self.world
        try:
            await world.ask(one, one.__aenter__)
            one.is_up = True
            for name, (interval, services) in self.scenario.schedulers.items():
                await self._begin(one, name, interval, services)
            await world.ask(one, one.root.wait)
            world.trace(one, "root ended")
        except (Gone, NotWritten, RefusedState, StartFailed) as error:
            world.trace(one, "start failed", repr(error))
            return

    async def _begin(self, one: Living, name: str, interval: str | None, services: tuple[str, ...]) -> None:
        """What its operator asks of a node that was started, for as long as it is there."""
        while one.ended is None and one.root.alive:
            try:
                async with self._defining:
                    await self._start(one, name, interval, services)
                return
            except RaptorError:
                await asyncio.sleep(1.0)

    async def _start(self, one: Living, name: str, interval: str | None, services: tuple[str, ...]) -> None:
        is_new = name not in self._defined
        if not is_new and not (self._waits(name) and self._wanted[name]):
            return  # on files it comes back by itself after a crash, and what somebody stopped stays so
        with suppress(AlreadyRunning):
            await self._define(one, [name], lambda: one.start(name, interval if is_new else None))
        if is_new:
            await self._define(one, [name], lambda: one.schedule(name, services))
            self._defined.add(name)

    def _waits(self, name: str) -> bool:
        """Whether a scheduler waits to be started: since an orderly stop, and among many nodes always."""
        return self.world.shared or not self._definitions[name].should_run

    async def _define(self, one: Living, names: Iterable[str], work: Any) -> None:
        """A command that changes schedulers: acknowledged, or of an unknown fate."""
        world = self.world
        at = world.at
        try:
            await world.ask(one, work)
        except (AlreadyRunning, ValueError):
            raise
        except (Gone, RaptorError):
            self._note(names, at, None)
            raise
        self._note(names, at, world.at)

    def _note(self, names: Iterable[str], at: float, acked: float | None) -> None:
        self.world.commands += [
            Command(what="define", at=at, acked=acked, definition=self._definitions.get(name)) for name in names
        ]

    @property
    def _definitions(self) -> Any:
        return self.world.image._tables["definitions"]  # pyright: ignore[reportPrivateUsage]

    # Asking

    async def _use(self) -> None:
        rng, world = self._rng, self.world
        while not self._rest.is_set():
            await asyncio.sleep(rng.expovariate(1 / self.scenario.asks_s))
            if self._rest.is_set() or not world.up:
                continue
            kind = rng.choice(
                ("put", "put", "put", "put", "burst", "cancel", "retry", "change" if self.scenario.changes else "put")
            )
            if kind == "burst":
                for _ in range(rng.randrange(2, 30)):
                    world.loop.create_task(self._put(self._order()))
            elif kind == "put":
                world.loop.create_task(self._put(self._order()))
            elif kind == "change":
                await self._change()
            elif self._ids:
                world.loop.create_task(self._move(kind, rng.choice(self._ids[-40:])))

    def _order(self) -> dict[str, Any]:
        rng = self._rng
        order: dict[str, Any] = {
            "service": rng.choice(self.scenario.tasks),
            "in_": rng.choice(self.scenario.delays_s),
        }
        if rng.random() < 0.2:
            order["key"] = f"k{rng.randrange(5)}"
        if rng.random() < 0.2:
            order["priority"] = rng.randrange(10)
        if rng.random() < 0.05:
            order["active"] = 60.0
        if rng.random() < 0.03:
            order["every"] = max(30.0, self.scenario.asks_s * rng.choice((0.5, 2.0, 10.0)))
        if rng.random() < 0.1:
            order["max_attempts"] = rng.choice((1, 5))
        return order

    async def _put(self, order: dict[str, Any]) -> None:
        world, off_s = self.world, order.pop("off_s", None)
        one, at = await self._somebody(), world.at
        due = None if "step" in self.plan.troubles else rounded(one.clock.now() + order.get("in_", 0.0))
        command = Command(what="put", at=at, service=order["service"], due=due)
        try:
            handle = await world.ask(one, lambda: one.put(**order))
        except (Gone, RaptorError):
            world.commands.append(command)
            return
        self._ids.append(handle.id)
        from msgspec.structs import replace

        world.commands.append(replace(command, acked=world.at, task=handle.id, new=handle.new))
        if off_s is not None:
            await asyncio.sleep(off_s)
            await self._move("cancel", handle.id)

    async def _somebody(self) -> Living:
        """A node to ask, once there is one."""
        while not self.world.up:
            await asyncio.sleep(1.0)
        return self._rng.choice(self.world.up)

    async def _move(self, kind: str, id: int) -> None:
        world = self.world
        one, at = await self._somebody(), world.at
        what: Any = "cancel" if kind == "cancel" else "revive"
        try:
            answer = await world.ask(one, lambda: one.call(kind, ids=[id]))
        except ValueError:
            return  # it had not ended, which is no fault
        except (Gone, RaptorError):
            world.commands.append(Command(what=what, at=at, task=id))
            return
        if (kind == "cancel" and (id in answer["cancelled"] or id in answer["ending"])) or (
            kind == "retry" and answer["revived"]
        ):
            world.commands.append(Command(what=what, at=at, acked=world.at, task=id))

    async def _change(self) -> None:
        """A scheduler is held, let go, stopped, started, or gets another list."""
        rng, world = self._rng, self.world
        name = rng.choice(sorted(self.scenario.schedulers))
        if name not in self._defined:
            return
        one = rng.choice(world.up)
        service = rng.choice(self.scenario.schedulers[name][1])
        kind = rng.choice(("pause", "resume", "pause_service", "resume_service", "remove", "add", "stop", "start"))
        names = self._listing(service) if kind.endswith("_service") else [name]
        try:
            async with self._defining:
                await self._define(one, names, lambda: self._changed(one, kind, name, service))
                if kind in ("stop", "start"):
                    self._wanted[name] = kind == "start"
        except (Gone, RaptorError):
            if kind in ("stop", "start"):  # whoever asked looks what became of it
                self._wanted[name] = self._definitions[name].should_run

    def _listing(self, service: str) -> list[str]:
        """A service is paused and resumed wherever it is listed."""
        return [name for name, (_, services) in self.scenario.schedulers.items() if service in services]

    async def _changed(self, one: Living, kind: str, name: str, service: str) -> Any:
        match kind:
            case "pause" | "resume":
                return await one.call(kind, name=name)
            case "pause_service" | "resume_service":
                return await one.call(kind.partition("_")[0], name=service)
            case "remove":
                return await one.call("schedule", name=name, services=[service], remove=True)
            case "add":
                return await one.call("schedule", name=name, services=[service], add=True)
            case "stop":
                return await one.stop(name)
            case _:
                return await one.start(name)

    # Disturbing

    async def _disturb(self, kind: str, mean_s: float) -> None:
        world, rng = self.world, random.Random(f"{kind} {self.world.seed}")
        while True:
            await asyncio.sleep(rng.expovariate(1 / mean_s))
            alive = world.alive[:]
            one = rng.choice(alive) if alive else None
            if one is None or not self.plan.fire(kind):
                continue
            world.note(one, kind)
            long_s = rng.choice((0.5, 5.0, 20.0, 70.0, 150.0))
            match kind:
                case "crash" | "freeze" | "partition":
                    world.strike(one, kind, long_s)
                case "outage":
                    for other in alive:
                        world.shut(other, long_s)
                    world.faults.append(Fault(what="outage", at=world.at, until=world.at + long_s))
                case "restart":
                    if one.is_up:
                        world.loop.create_task(self._stop(one))
                case _:
                    self._step(rng.choice((-1, 1)) * rng.choice((0.5, 2.0, 60.0, 3600.0)))
                    if self.plan.done["step"] >= STEPS:
                        return

    async def _stop(self, one: Living) -> None:
        """In order: what runs may end, and the rest is given back."""
        one.stopping = self.world.loop.now_s if one.stopping is None else one.stopping
        try:
            await self.world.ask(one, one.close, within_s=60.0)
        except Gone:
            self.world.kill(one)
        if one.ended is None:
            self.world.stopped(one)

    def _step(self, step_s: float) -> None:
        world = self.world
        world.rules.stepped(world.wall_at_zero + world.loop.now_s)
        world.wall_at_zero += step_s
        world.faults.append(Fault(what="step", at=world.at, by=step_s))
        for one in world.alive:
            one.clock.step(step_s)  # type: ignore[attr-defined]

    # Rest

    async def _come_to_rest(self) -> None:
        """No more faults: within a bound, nothing that is due is left."""
        world = self.world
        last = max([fault.until or fault.at for fault in world.faults], default=0.0) - world.at
        await asyncio.sleep(max(0.0, last) + self.scenario.quiet_s)
        end = world.loop.now_s + LIMIT_S
        while (left := self._left()) and world.loop.now_s < end:
            await asyncio.sleep(5.0)
        for one in left:
            world.violated(f"after {self.scenario.quiet_s + LIMIT_S:g} s without a fault: {one}")

    def _left(self) -> list[str]:
        world = self.world
        now, image = world.wall_at_zero + world.loop.now_s, world.image
        found = [f"{self.scenario.nodes - len(world.up)} nodes are down"] if len(world.up) < self.scenario.nodes else []
        tasks: Any = image._tasks.values()  # pyright: ignore[reportPrivateUsage]
        found += [
            f"task {task.id} ({task.service}) is {task.state}, due {now - task.due:.1f} s ago"
            for task in tasks
            if task.state not in ENDED and task.due < now - 1.0 and task.timing is None
        ]
        tables = image._tables  # pyright: ignore[reportPrivateUsage]
        for name, definition in tables["definitions"].items():
            listed = (
                {}
                if not getattr(definition, "should_run", False) or getattr(definition, "paused", True)
                else {
                    entry.name
                    for entry in definition.services
                    if entry.name not in definition.paused_services  # type: ignore[union-attr]
                }
            )
            interval = getattr(definition, "interval_s", None) or 0.0
            for service in sorted(listed):
                row = tables["service_timing"].get(service)
                if not isinstance(row, ServiceTiming):
                    found.append(f"{service} of {name} has never been looked at")
                elif row.open is None and row.next_due < now - interval - 60.0:
                    found.append(f"{service} of {name} was due {now - row.next_due:.1f} s ago")
        return found


def simulate(seed: int, scenario: Scenario, plan: Plan, *, lines: list[str] | None = None) -> Verdict:
    drive = Drive(seed, scenario, plan)
    world = drive.world
    world.lines = lines
    world.run(drive.main)
    for wrong in check(world.history()):
        # What was taken in time, and began after the clock was set back, was not early.
        if not (wrong.kind == "early" and plan.done["step"]):
            world.violated(f"the checker: {wrong}")
    world.counts["runs"] = sum(line.what == "start" for line in world.work.lines)
    world.counts["lives"] = len(world.lives)
    world.counts["tasks"] = len(world.image.all_tasks)
    world.counts["taken"] = sum(task.state is State.TAKEN for task in world.image._tasks.values())  # pyright: ignore[reportPrivateUsage]
    return Verdict(
        scenario.name, world.violations, world.trace_hash, world.points, plan.done, world.node_s, world.counts
    )
