"""Between the event loop and a thread that owns connections: works go in, answers come back as futures."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from raptor.errors import RefusedState
from raptor.state.commits import MANY, Answer, C, Work, one_by_one

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Process:
    """This process, until it forks: asking the system for the number each time would cost more than the question."""

    pid: int


_FAMILY = [Process(os.getpid())]
os.register_at_fork(after_in_child=lambda: _FAMILY.__setitem__(0, Process(os.getpid())))


@dataclass(frozen=True, slots=True)
class Batch:
    """Works for a thread, which calls `answer` when all of them are done."""

    works: Sequence[Work[Any]]
    answer: Callable[[list[Answer]], None]


@dataclass(frozen=True, slots=True)
class Close:
    """The last word to a thread, which calls `answer` when its connection is closed."""

    answer: Callable[[list[Answer]], None]


Order: TypeAlias = Batch | Close


class Line(Protocol):
    """A queue, as far as it is used here; sqlitedict brings one of its own."""

    def get(self) -> Any: ...
    def get_nowait(self) -> Any: ...


LITTLE = 256  # rows that are written in the caller's thread
QUICK_S = 0.002  # that the event loop may stand still for them


class Here:
    """Doing a little in the caller's thread, which two changes of thread would make twice as slow.

    Only where the disk is quick: after a slow write it is the thread's again, until a few of those have passed.
    """

    def __init__(self, serve: Callable[[Sequence[Work[Any]]], list[Answer]], monotonic: Callable[[], float]) -> None:
        self._serve = serve
        self._monotonic = monotonic
        self._slow_s = 0.0  # how long the slowest write of late took, fading

    def do(self, works: Sequence[Work[Any]]) -> list[Answer] | None:
        """The answers, or None: it is the thread's."""
        self._slow_s *= 0.8
        if self._slow_s > QUICK_S or sum([work.rows for work in works]) > LITTLE:
            return None
        began = self._monotonic()
        answers = self._serve(works)
        self._slow_s = max(self._slow_s, self._monotonic() - began)
        return answers


class Front(Generic[C]):
    """Hands works to a thread: what is asked in one turn of the event loop goes together, and shares a commit.

    With `here`, a little is done at once while that thread is at rest. For one event loop. A forked child has no such
    thread, and is refused instead of waiting for ever.
    """

    def __init__(self, name: object, put: Callable[[Order], None], here: Here | None = None) -> None:
        self._name = name
        self._put = put
        self._here = here
        self._under_way = 0  # batches of the thread
        self._waiting: list[tuple[Work[C], asyncio.Future[Any]]] = []
        self._closed = False
        self._family = _FAMILY[0]
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(self, do: Callable[[C], T], *, writes: bool = True, result: bool = False, rows: int = MANY) -> T:
        """Do it in the thread; -> what it gave, when that is durable. A cancelled wait leaves the work to finish."""
        return cast("T", await self.hand_in(Work(one_by_one, do, writes, result, rows)))

    def hand_in(self, work: Work[C]) -> asyncio.Future[Any]:
        if self._closed or self._family is not _FAMILY[0]:
            problem = "was closed" if self._closed else f"was opened by process {self._family.pid}, not by this child"
            raise RefusedState("closed", self._name, problem, "open the state directory again")
        loop = self._loop
        if loop is None or loop.is_closed():  # asking for it each time would cost as much as the question
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((work, future))
        if len(self._waiting) == 1:
            loop.call_soon(self._send)
        return future

    async def close(self) -> None:
        """Let what was asked be done, take no more, and wait until the file is closed."""
        if self._closed:
            return
        self._send()
        self._closed = True
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(Close(_tell(future.get_loop(), lambda answers: _settle([future], answers))))
        await future

    def _send(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            works, futures = [work for work, _ in waiting], [future for _, future in waiting]
            answers = None if self._here is None or self._under_way else self._here.do(works)
            if answers is None:
                self._under_way += 1
                self._put(Batch(works, self._teller(futures)))
            else:
                _settle(futures, answers)

    def _teller(self, futures: list[asyncio.Future[Any]]) -> Callable[[list[Answer]], None]:
        def told(answers: list[Answer]) -> None:
            self._under_way -= 1
            _settle(futures, answers)

        return _tell(futures[0].get_loop(), told)


class Server(threading.Thread):
    """A daemon thread that serves what a Front puts, until its close."""

    def __init__(
        self, name: str, serve: Callable[[Sequence[Work[Any]]], list[Answer]], close: Callable[[], None]
    ) -> None:
        super().__init__(name=f"raptor-{name}", daemon=True)
        self._serve = serve
        self._close = close
        self._line: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.put: Callable[[Order], None] = self._line.put

    def run(self) -> None:
        attend(self._line, self._serve, self._close)


def attend(
    line: Line,
    serve: Callable[[Sequence[Work[Any]]], list[Answer]],
    close: Callable[[], None],
    *,
    read: Callable[[Any], Order] = lambda order: order,
) -> None:
    """Serve a line of orders in a thread, all that wait at once, until one says close."""
    while True:
        orders = [read(order) for order in _drain(line)]
        batches = [order for order in orders if isinstance(order, Batch)]
        answers = serve([work for batch in batches for work in batch.works]) if batches else []
        for batch in batches:
            batch.answer(answers[: len(batch.works)])
            del answers[: len(batch.works)]
        if closing := [order for order in orders if isinstance(order, Close)]:
            close()
            for order in closing:
                order.answer([Answer()])
            return


def _drain(line: Line) -> list[Any]:
    """Wait for one, and take all that are there."""
    taken = [line.get()]
    try:
        while True:
            taken.append(line.get_nowait())
    except queue.Empty:
        return taken


def _tell(loop: asyncio.AbstractEventLoop, told: Callable[[list[Answer]], None]) -> Callable[[list[Answer]], None]:
    """To be called in a thread: `told` is called on the loop."""

    def tell(answers: list[Answer]) -> None:
        try:
            loop.call_soon_threadsafe(told, answers)
        except RuntimeError:
            pass  # the loop has closed: nobody waits any more

    return tell


def _settle(futures: list[asyncio.Future[Any]], answers: list[Answer]) -> None:
    for future, answer in zip(futures, answers, strict=True):
        if future.done():
            continue
        if answer.error is None:
            future.set_result(answer.value)
        else:
            future.set_exception(answer.error)
