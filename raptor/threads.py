"""Daemon threads for blocking work: a stuck one cannot hold up the end of the program."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Job = Callable[[], None]


class Threads:
    """At most `limit` daemon threads, made when needed and kept.

    The standard pool will not do: the interpreter joins its threads at exit.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._idle = 0  # threads that have nothing to do, or have not begun yet
        self._waiting = 0  # jobs that no thread has taken
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. A cancelled wait leaves the thread to finish; its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            self._jobs.put(lambda: _work(loop, future, work))
            self._waiting += 1
            grows = self._waiting > self._idle and self._count < self._limit
            if grows:
                self._count += 1
                self._idle += 1
            name = f"raptor-{self._count}"
        if grows:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return await future

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
                self._waiting -= 1
            job()
            del job  # an idle thread keeps nothing alive
            with self._lock:
                self._idle += 1


def _work(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    try:
        result, error = work(), None
    except BaseException as caught:
        result, error = None, caught
    if isinstance(error, StopIteration):
        error = RuntimeError(f"the work raised {error!r}")  # a future refuses to carry it
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        pass  # the loop has closed: nobody waits any more


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
