"""A node in virtual time: the real tree, schedulers and commands, over a store whose image outlives every crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.errors import NotWritten
from raptor.events import Event
from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.runners import Context
from raptor.runners.python import PythonRunner
from raptor.service import Service
from raptor.state.base import Query, Record, Right
from raptor.state.memory import MemoryStore
from raptor.task import Run, Slot, Task
from tests.designs.branch import TEN, BranchNode

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

Write = tuple[str, str]


class Handle:
    """One process's hold on the image. Once it is cut, nothing that the process does reaches the image any more."""

    exclusive = True

    def __init__(self, image: MemoryStore, *, writes: int | None = None) -> None:
        self.image = image
        self.failing = False
        self.refused = 0
        self.written: list[Write] = []
        self.cut = asyncio.Event()
        self._writes = writes

    async def load(self, table: str) -> dict[str, Record]:
        return await self._read(self.image.load(table))

    async def history(self, service: str | None = None, **wanted: Any) -> list[Run]:
        return await self._read(self.image.history(service, **wanted))

    async def slots(self, service: str, **wanted: Any) -> list[Slot]:
        return await self._read(self.image.slots(service, **wanted))

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        for change in changes:
            await self._write((change[0], change[1]), lambda change=change: self.image.save([change], rights=rights))  # type: ignore[misc]

    async def amend(self, table: str, key: str, seen: Record | None, record: Record) -> bool:
        amended = True

        async def write() -> None:
            nonlocal amended
            amended = await self.image.amend(table, key, seen, record)

        await self._write((table, key), write)
        return amended

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        slots, runs = list(slots), list(runs)
        await self._write(("ledger", ""), lambda: self.image.record(slots, runs, rights=rights))

    async def stat(self, *, now: float) -> Any:
        return await self._read(self.image.stat(now=now))

    async def find(self, query: Query) -> list[Task]:
        return await self.image.find(query)

    async def prune(self, *, before: float, keep: int) -> int:
        return await self.image.prune(before=before, keep=keep)

    def cut_after(self, writes: int) -> None:
        """The process dies with so many writes from now on."""
        self._writes = len(self.written) + writes

    async def close(self) -> None:
        pass

    async def _read(self, answer: Awaitable[Any]) -> Any:
        found = await answer
        if self.cut.is_set():
            await asyncio.Future()
        return found

    async def _write(self, what: Write, do: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(0)
        if self.failing:
            self.refused += 1
            raise NotWritten("full", "the image", "no space left on it")
        if self.cut.is_set():
            await asyncio.Future()
        await do()
        self.written.append(what)
        if len(self.written) == self._writes:
            self.cut.set()
            await asyncio.Future()


@dataclass
class Line:
    """One execution, as the service itself saw it."""

    name: str
    start: float
    planned: float
    attempt: int
    scheduler: str | None
    run: str
    end: float | None = None  # None: it was broken off


class Process(BranchNode):
    """A node of schedulers alone."""

    branch = "schedulers"

    def __init__(self, world: World, *, writes: int | None = None) -> None:
        self.store = Handle(world.image, writes=writes)  # of the verbs on tasks only what history asks
        super().__init__(world, self.store)

    def _runner(self) -> PythonRunner:
        return PythonRunner(self.clock)

    def _workers(self) -> list[ChildSpec]:
        return []


@dataclass
class World:
    """What outlives a process: the clock, the image of the store, the services, and what they did."""

    clock: VirtualClock
    grace_s: float = 30.0
    image: MemoryStore = field(default_factory=MemoryStore)
    services: list[Service] = field(default_factory=list[Service])
    lines: list[Line] = field(default_factory=list[Line])
    events: list[Event] = field(default_factory=list[Event])
    processes: list[Process] = field(default_factory=list[Process])

    # Services

    def service(
        self,
        name: str,
        takes: float | Callable[[int], float] = 0.0,
        fails: Callable[[int], bool] = lambda n: False,
        **options: Any,
    ) -> Service:
        """A service that writes down what it does. `takes` and `fails` may ask which execution it is, from 0."""

        async def function(ctx: Context) -> str:
            number = sum(line.name == name for line in self.lines)
            line = Line(name, self.clock.now(), ctx.planned, ctx.attempt, ctx.scheduler, ctx.run_id)
            self.lines.append(line)
            length = takes(number) if callable(takes) else takes
            if length:
                await self.clock.sleep(length)
            line.end = self.clock.now()
            if fails(number):
                raise ValueError(f"failure {number}")
            return f"result {number}"

        made = Service(name=name, function=function, **options)
        self.services.append(made)
        return made

    def runs(self, name: str | None = None) -> list[Line]:
        return [line for line in self.lines if name in (None, line.name)]

    def times(self, name: str) -> list[float]:
        """When it ran, in seconds since ten."""
        return [round(line.start - TEN, 6) for line in self.runs(name)]

    @property
    def order(self) -> list[str]:
        return [line.name for line in self.lines]

    # Processes

    @property
    def node(self) -> Process:
        return self.processes[-1]

    async def boot(self, *, writes: int | None = None) -> Process:
        process = Process(self, writes=writes)
        self.processes.append(process)
        await process.__aenter__()
        return process

    async def start(self, *services: str, interval: str | None = "1h", name: str = "main") -> Process:
        """A process with one scheduler on these services (all of them if none is named)."""
        process = await self.boot()
        await process.start(name, interval)
        await process.schedule(name, services or [service.name for service in self.services])
        return process

    async def crash(self) -> None:
        """As kill -9 would: what ran is gone, and nothing more is written."""
        process = self.node
        process.store.cut.set()
        process.root.kill()
        await process.root.wait()
        await self.clock.sleep(0)

    async def until(self, since_ten: float) -> None:
        await self.clock.sleep_until(TEN + since_ten)
        for _ in range(50):  # what is due at that very moment goes first
            await asyncio.sleep(0)

    def happened(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]

    async def event(self, name: str, count: int = 1) -> Event:
        """Wait for the n-th event of a name."""
        while len(found := self.happened(name)) < count:
            await self.clock.sleep(0.01)
        return found[count - 1]

    # What is on disk

    async def row(self, service: str) -> ServiceTiming:
        row = (await self.image.load("service_timing"))[service]
        assert isinstance(row, ServiceTiming)
        return row

    async def state(self, name: str = "main") -> SchedulerState | None:
        state = (await self.image.load("scheduler_state")).get(name)
        assert state is None or isinstance(state, SchedulerState)
        return state

    async def definition(self, name: str = "main") -> Definition:
        definition = (await self.image.load("definitions"))[name]
        assert isinstance(definition, Definition)
        return definition

    async def slots(self, service: str) -> list[Slot]:
        return await self.image.slots(service, since=0, until=float("inf"), limit=1_000_000)

    async def verdicts(self, service: str) -> list[tuple[float, str, str, int]]:
        """(seconds since ten, verdict, reason, how many) of each line of the ledger."""
        return [
            (round(slot.planned - TEN, 6), slot.verdict, slot.reason, slot.count) for slot in await self.slots(service)
        ]

    async def status(self, name: str = "main") -> dict[str, Any]:
        answer: dict[str, Any] = (await self.node.status(name))["schedulers"][0]
        return answer
