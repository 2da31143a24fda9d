"""Reaching a state directory: through the node that runs on it, as its owner for a moment, or only to read.

Callers never branch: `connect(config).call(command, ...)` finds the way that the command needs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raptor.client import ask, is_listening
from raptor.clock import SystemClock
from raptor.commands import COMMANDS, perform
from raptor.config import Config
from raptor.errors import AlreadyRunning, NoSuchName, NotRunning
from raptor.events import Events
from raptor.rows import Definition
from raptor.runners import RUNNERS
from raptor.scheduler import Workshop
from raptor.service import Given
from raptor.site import Site
from raptor.state.base import Store
from raptor.state.files import FileStore, ReadStore
from raptor.state.home import Home
from raptor.state.memory import MemoryStore
from raptor.timetable import Timetable
from raptor.turn import Logs

if TYPE_CHECKING:
    from raptor.node import Node

PATIENCE_S = 5.0
"""How long another holder of the lock is waited for."""


class Connection:
    """Performs commands on a state directory, from a synchronous program."""

    def __init__(self, config: Config, services: Iterable[Given] = ()) -> None:
        self._config = config
        self._given = list(services)

    @property
    def running(self) -> bool:
        return is_listening(self._config.home)

    def call(self, command: str, **params: Any) -> dict[str, Any]:
        """Perform a command: on the running node if there is one, else by ourselves."""
        found = COMMANDS.get(command)
        if found is None:
            raise NoSuchName("command", command, COMMANDS)
        try:
            return ask(self._config.home, command, params)
        except NotRunning:
            if found.needs == "node":
                raise
        clock = SystemClock()
        return clock.run(lambda: self._alone(clock, command, params, write=found.needs == "write"))

    async def _alone(self, clock: SystemClock, command: str, params: dict[str, Any], *, write: bool) -> dict[str, Any]:
        home = await self._own(clock) if write else _read(self._config.home)
        try:
            store: Store = MemoryStore() if home is None else FileStore(home) if write else ReadStore(home)
            try:
                return await perform(await self._site(clock, store), command, params)
            finally:
                await store.close()
        finally:
            if home is not None:
                home.close()

    async def _own(self, clock: SystemClock) -> Home:
        """The lock, which somebody may hold for a moment."""
        end = clock.monotonic() + PATIENCE_S
        while True:
            try:
                return Home.open(self._config.home, clock)
            except AlreadyRunning:
                if clock.monotonic() > end:
                    raise
                await asyncio.sleep(0.05)

    async def _site(self, clock: SystemClock, store: Store) -> Site:
        timetable = Timetable(store, clock, Events(clock))
        await timetable.load()
        stored = await store.load("definitions")
        workshop = Workshop(
            timetable=timetable,
            runners={kind: make(clock) for kind, make in RUNNERS.items()},
            logs=Logs(self._config.home / "logs"),
            catalogue=self._config.catalogue(self._given),
            definitions={name: row for name, row in stored.items() if isinstance(row, Definition)},
        )
        return Site(self._config.home, clock, workshop, self._config)


def connect(config: Config, services: Iterable[Given] = ()) -> Connection:
    return Connection(config, services)


def _read(path: Path) -> Home | None:
    """A directory to look at; None when there is none yet, which is nothing wrong."""
    return Home.read(path) if path.exists() and any(path.iterdir()) else None


class Running:
    """A node in a thread of its own, for a synchronous program. Its methods are those of Node."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._node, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(method(*args, **kwargs), self._loop).result()

        return call


@contextmanager
def running(
    home: str | Path | None = None, services: Iterable[Given] = (), *, join: bool = False, **options: Any
) -> Generator[Running | Connection]:
    """`with raptor.running(home, services=[...]) as node:` keeps a node beside a synchronous program.

    Where a node runs already, AlreadyRunning is raised; with `join` its client is given instead.
    """
    config = options.pop("config", None) or Config.load({} if home is None else {"home": str(home)})
    if join and is_listening(config.home):
        yield connect(config, services)
        return
    from raptor.node import Node  # the whole engine, which a command that only reads does without

    started: queue.SimpleQueue[Running | BaseException] = queue.SimpleQueue()
    over: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stopping: list[Callable[[], object]] = []

    async def main(clock: SystemClock) -> None:
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        async with Node(services=services, config=config, clock=clock, **options) as node:
            stopping.append(lambda: loop.call_soon_threadsafe(done.set))
            started.put(Running(node, loop))
            await done.wait()

    def live() -> None:
        clock, error = SystemClock(), None
        try:
            clock.run(lambda: main(clock))
        except BaseException as caught:
            error = caught
            started.put(caught)
        over.put(error)

    threading.Thread(target=live, name="raptor-node", daemon=True).start()
    handle = started.get()
    if isinstance(handle, BaseException):
        raise handle
    try:
        yield handle
    finally:
        stopping[0]()
        error = over.get()
        if error is not None:
            raise error
