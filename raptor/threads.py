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
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread. A cancelled wait leaves the thread to finish; its result is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(lambda: _work(loop, future, work))
        if not self._idle.acquire(blocking=False):
            self._grow()
        return await future

    def _grow(self) -> None:
        with self._lock:
            if self._count == self._limit:
                return
            self._count += 1
            name = f"raptor-{self._count}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                self._idle.release()
                job = self._jobs.get()
            job()
            del job  # an idle thread keeps nothing alive


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
