"""Several nodes in virtual time on one store, each behind a door that can be shut or torn down."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any

from raptor.alone import site_on
from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.commands import perform
from raptor.config import Config
from raptor.errors import NotWritten
from raptor.events import Event
from raptor.node import Node
from raptor.runners import Context
from raptor.service import Service
from raptor.state.memory import MemoryStore
from raptor.state.news import LocalWatch, News
from tests.designs.branch import NOWHERE, TEN


class Door:
    """One node's way to the store: it may fail, be held shut for a while, or be torn down for good."""

    def __init__(self, image: MemoryStore, clock: VirtualClock, *, deaf: bool = False) -> None:
        self.image = image
        self.clock = clock
        self.calls: list[str] = []
        self.failing = self.torn = False
        self.locked: frozenset[str] = frozenset()  # verbs that fail when they have waited, and no others
        self.deaf = deaf
        self.open = asyncio.Event()
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.image, name)
        if not inspect.iscoroutinefunction(verb):
            return verb

        async def through(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            self.calls.append(name)
            await self.open.wait()
            if self.torn:
                raise asyncio.CancelledError  # a dead process goes no further
            if name in self.locked:
                await self.clock.sleep(5.0)
                raise NotWritten("busy", "the image", "a lock was not to be had")
            if self.failing:
                raise NotWritten("unreachable", "the image", "nobody answers")
            return await verb(*args, **kwargs)

        return through

    def watch(self) -> LocalWatch:
        return News().watch() if self.deaf else self.image.watch()

    async def close(self) -> None:
        pass


@dataclass
class Line:
    """One execution, as the service itself saw it."""

    name: str
    node: str
    start: float
    planned: float
    end: float | None = None  # None: it was broken off


class One(Node):
    """A whole node, but for its janitor."""

    def __init__(self, world: ManyWorld, label: str, services: list[Service]) -> None:
        self.door = Door(world.image, world.clock, deaf=world.deaf)
        self.label = label
        self.told: list[Event] = []
        store: Any = self.door
        super().__init__(services=services, config=world.config, clock=world.clock, store=store, grace_s=5.0)

    def _work(self) -> list[ChildSpec]:
        self.runtime.events.subscribe(self.told.append)
        return [spec for spec in super()._work() if spec.id != "janitor"]

    @property
    def owner(self) -> str:
        return self._workshop.owner

    def happened(self, name: str) -> list[Event]:
        return [event for event in self.told if event.name == name]

    async def state(self, name: str = "main") -> str:
        (found,) = (await self.status(name))["schedulers"]
        return str(found["state"])


@dataclass
class ManyWorld:
    """What outlives every node: the clock, the store, and what was done."""

    clock: VirtualClock
    image: MemoryStore = field(default_factory=lambda: MemoryStore(exclusive=False))
    deaf: bool = False  # no news reach anybody
    lines: list[Line] = field(default_factory=list[Line])
    nodes: list[One] = field(default_factory=list[One])
    made: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list[tuple[str, Any, dict[str, Any]]])

    @property
    def config(self) -> Config:
        return Config.load({"home": str(NOWHERE)}, environ={}, cwd=NOWHERE.parent, user_file=NOWHERE / "none")

    def service(self, name: str, takes: float = 0.0, **options: Any) -> None:
        self.made.append((name, takes, options))

    def _services(self, label: str) -> list[Service]:
        return [self._service(label, *made) for made in self.made]

    def _service(self, label: str, name: str, takes: float, options: dict[str, Any]) -> Service:
        async def function(ctx: Context) -> str:
            line = Line(name, label, self.clock.now() - TEN, round(ctx.planned - TEN, 6))
            self.lines.append(line)
            if takes:
                await self.clock.sleep(takes)
            line.end = self.clock.now() - TEN
            return label

        return Service(**{"name": name, "function": function, **options})

    async def boot(self, label: str) -> One:
        node = One(self, label, self._services(label))
        self.nodes.append(node)
        await node.__aenter__()
        return node

    async def start(self, label: str, *services: str, interval: str | None = None, name: str = "main") -> One:
        """A node with a scheduler on these services; without any, on those that it has."""
        node = await self.boot(label)
        if services and interval is None:
            interval = "1h"
        await node.start(name, interval)
        if services:
            await node.schedule(name, services)
        return node

    async def stop(self, node: One) -> None:
        self.nodes.remove(node)
        await node.close()

    async def crash(self, node: One) -> None:
        """As kill -9 would: nothing it does reaches the store any more, and its connection is gone."""
        node.door.torn = True
        node.root.kill()
        self.nodes.remove(node)
        self.image.sever(node.owner)
        await node.root.wait()

    async def close(self) -> None:
        for node in list(self.nodes):
            node.door.open.set()
            node.door.failing = False
            await self.stop(node)

    async def elsewhere(self, command: str, **params: Any) -> dict[str, Any]:
        """A command on a machine where no node runs."""
        store: Any = Door(self.image, self.clock)
        site = await site_on(store, self.config, self._services("elsewhere"), self.clock)
        return await perform(site, command, params)

    async def until(self, since_ten: float) -> None:
        await self.clock.sleep_until(TEN + since_ten)
        for _ in range(50):  # what is due at that very moment goes first
            await asyncio.sleep(0)

    def runs(self, name: str) -> list[tuple[str, float]]:
        """(node, start) of each execution."""
        return [(line.node, round(line.start, 3)) for line in self.lines if line.name == name]

    def slots(self, name: str) -> list[float]:
        """The planned time of each execution."""
        return [line.planned for line in self.lines if line.name == name]
