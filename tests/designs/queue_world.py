"""A node's workers in virtual time: the real tree, desk and commands, over an image that outlives every crash."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.errors import NotWritten
from raptor.events import Event
from raptor.queues import Queue
from raptor.ref import Ref
from raptor.resources import Resource
from raptor.rows import Line
from raptor.runners import Context
from raptor.runners.output import RunLog
from raptor.runners.python import PythonRunner
from raptor.service import Service
from raptor.state.base import Query
from raptor.state.memory import MemoryStore
from raptor.task import Outcome, Result, State, Task
from raptor.worker import Worker
from tests.designs.branch import TEN, BranchNode


class Killed(BaseException):
    """What the work does kills the process that it runs in."""


class Door:
    """One process's hold on the image: calls are counted, and once it is cut nothing gets through any more."""

    def __init__(self, image: MemoryStore) -> None:
        self.image = image
        self.calls: list[str] = []
        self.failing = False
        self.refused: set[str] = set()  # verbs that fail, where not all do
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.image, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def through(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            self.calls.append(name)
            fails = self.failing and name in ("put", "take", "settle", "extend", "save", "record")
            if fails or name in self.refused:
                raise NotWritten("full", "the image", "no space left on it")
            if self.cut:
                await asyncio.Future()
            return await verb(*args, **kwargs)

        return through


class SimulatedRunner(PythonRunner):
    """What is isolated is killed alone; anything else takes its node along."""

    def __init__(self, world: QueueWorld, process: Process) -> None:
        super().__init__(world.clock)
        self._world = world
        self._owner = process

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        self._world.apart.append((context.run_id, service.isolate))
        function = service.function
        if function is not deadly or context.data.mode != "kill":
            plain = service if function is not deadly else Service(name=service.name, function=function)
            return await super().run(plain, context, log)
        await self._world.clock.sleep(1.0)
        if not service.isolate:
            self._owner.door.cut = True
            self._owner.died.set()
            await asyncio.Future()
        return Result(outcome=Outcome.FAILED, info="killed by SIGKILL", error="killed by SIGKILL", died=True)


class Process(BranchNode):
    """A node of workers alone."""

    branch = "workers"

    def __init__(self, world: QueueWorld, processors: int, queues: Sequence[str] | None) -> None:
        self.door = Door(world.image)
        super().__init__(world, self.door)
        self.died = asyncio.Event()
        self._resources = world.resources
        self._world = world
        self._place = (queues, processors)

    def _runner(self) -> SimulatedRunner:
        return SimulatedRunner(self._world, self)

    def _workers(self) -> list[ChildSpec]:
        args = (self._workshop, self._desk, *self._place)
        return [ChildSpec(id="worker", start=Worker, args=args, name="worker", restart="transient", shutdown=10.0)]

    @property
    def worker(self) -> Ref:
        ref = self.runtime.whereis("worker")
        assert ref is not None
        return ref

    @property
    def queue(self) -> Queue:
        actor = self.worker.actor
        assert isinstance(actor, Worker)
        return actor._queue  # pyright: ignore[reportPrivateUsage]

    @property
    def held(self) -> set[tuple[int, int]]:
        """Tasks that the process believes it has."""
        return self._workshop.held

    @property
    def owner(self) -> str:
        return self._workshop.owner

    async def status(self, name: str | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self.worker.call("status")
        return answer

    async def set_lines(self, *lines: Line) -> None:
        """Several at once."""
        self._workshop.lines |= {line.name: line for line in lines}
        await self.new_lines()


@dataclass
class Seen:
    """One execution, as the service itself saw it."""

    name: str
    start: float
    data: Any
    attempt: int
    task: Task
    end: float | None = None  # None: it was broken off


@dataclass
class QueueWorld:
    """What outlives a process: the clock, the image of the store, the services, and what they did."""

    clock: VirtualClock
    grace_s: float = 30.0
    image: MemoryStore = field(default_factory=MemoryStore)
    services: list[Service] = field(default_factory=list[Service])
    resources: dict[str, Resource] = field(default_factory=dict[str, Resource])
    counts: Counter[str] = field(default_factory=Counter[str])
    seen: list[Seen] = field(default_factory=list[Seen])
    apart: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    events: list[Event] = field(default_factory=list[Event])
    processes: list[Process] = field(default_factory=list[Process])
    most: int = 0  # runs at a time
    running: int = 0

    def share(self) -> None:
        """Have a store that many nodes use, before the first is there."""
        self.image = MemoryStore(exclusive=False)

    # Services

    def service(
        self,
        name: str = "work",
        takes: float | Callable[[Any], float] = 0.0,
        does: Callable[[Context, int], Any] | None = None,
        **options: Any,
    ) -> Service:
        """A service that writes down what it does; `does` may answer or raise, knowing which execution it is."""

        async def function(ctx: Context) -> Any:
            number = self.counts[name]
            self.counts[name] += 1
            assert ctx.task is not None
            one = Seen(name, self.clock.now(), ctx.data, ctx.attempt, ctx.task)
            self.seen.append(one)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                length = takes(ctx.data) if callable(takes) else takes
                if length:
                    await self.clock.sleep(length)
            finally:
                self.running -= 1
            one.end = self.clock.now()
            return None if does is None else does(ctx, number)

        made = Service(name=name, function=function, **options)
        self.services.append(made)
        return made

    def times(self, name: str | None = None) -> list[float]:
        """When it ran, in seconds since ten."""
        return [round(one.start - TEN, 3) for one in self.seen if name in (None, one.name)]

    @property
    def order(self) -> list[Any]:
        return [one.data for one in self.seen]

    # Processes

    @property
    def node(self) -> Process:
        return self.processes[-1]

    async def boot(self, processors: int = 100, queues: Sequence[str] | None = None) -> Process:
        process = Process(self, processors, queues)
        self.processes.append(process)
        await process.__aenter__()
        return process

    async def crash(self, process: Process | None = None) -> None:
        """As kill -9 would: what ran is gone, and nothing more is written."""
        process = process or self.node
        process.door.cut = True
        process.root.kill()
        await process.root.wait()
        await self.clock.sleep(0)

    async def line(self, name: str = "default", **settings: Any) -> None:
        await self.node.call("queue", name=name, **settings)

    async def until(self, since_ten: float) -> None:
        await self.clock.sleep_until(TEN + since_ten)
        for _ in range(100):  # what is due at that very moment goes first
            await asyncio.sleep(0)

    def happened(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    # What is stored

    async def task(self, id: int) -> Task:
        (found,) = await self.image.find(Query(ids=(id,)))
        return found

    async def tasks(self, **query: Any) -> list[Task]:
        return await self.image.find(Query(limit=100_000, **query))

    async def states(self) -> list[State]:
        return [task.state for task in await self.tasks()]

    async def saved_line(self, line: Line) -> None:
        """As it was set before any process started."""
        await self.image.save([("lines", line.name, line)])


async def deadly(mode: str) -> str:
    """Importable by name, so that it can be run apart. The simulated runner kills what it runs in."""
    return mode
