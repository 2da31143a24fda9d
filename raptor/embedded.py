"""A node inside a synchronous program, in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, Unpack

from raptor.client import is_listening
from raptor.clock import SystemClock
from raptor.config import Config
from raptor.current import CURRENT, Known
from raptor.desk import Handle, Named
from raptor.joined import Joined
from raptor.node import Node
from raptor.orders import Order
from raptor.service import Given
from raptor.unrecorded import Unrecorded

T = TypeVar("T")


class Running:
    """A node in a thread of its own, for a synchronous program. Its methods are those of Node."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._node, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._ask(method(*args, **kwargs))

        return call

    def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Waiting:
        """Put a task; it is durable when this returns."""
        return Waiting(self._ask(self._node.put(service, data, replace=replace, **order)), self._ask)

    def put_from(self, service: Named, data: Any, **order: Any) -> Waiting:
        return self.put(service, data, **order)

    def known(self) -> Known:
        return self._node.known()

    @property
    def unrecorded(self) -> list[Unrecorded]:
        """What had ended when it was closed, and could not be recorded."""
        return self._node.unrecorded

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class Waiting:
    """A task that was put, for a synchronous program."""

    def __init__(self, handle: Handle, ask: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.id = handle.id
        self.new = handle.new
        self._handle = handle
        self._ask = ask

    def result(self, timeout_s: float | None = None) -> Any:
        """What the service returned, when it has ended; TaskFailed if it is dead or cancelled."""
        return self._ask(self._handle.result(timeout_s))


@contextmanager
def running(
    home: str | Path | None = None, services: Iterable[Given] = (), *, join: bool = False, **options: Any
) -> Generator[Running | Joined]:
    """`with raptor.running(home, services=[...]) as node:` keeps a node beside a synchronous program.

    Where a node runs already, AlreadyRunning is raised; with `join` its client is given instead, with the same
    methods.
    """
    config = options.pop("config", None) or Config.load({} if home is None else {"home": str(home)})
    if join and is_listening(config.home):
        joined = Joined(config, services)
        token = CURRENT.set(joined)
        try:
            yield joined
        finally:
            CURRENT.reset(token)
        return
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
    token = CURRENT.set(handle)
    try:
        yield handle
    finally:
        CURRENT.reset(token)
        stopping[0]()
        error = over.get()
        if error is not None:
            raise error
