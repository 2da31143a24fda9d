"""Works on their way to the thread that owns a file: together, in order, and a little of them at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.state.commits import Answer, Work
from raptor.state.front import LITTLE, QUICK_S, Front, Here, Server


class Rig:
    """A front whose connection is a list of what was done, and a clock that the test moves."""

    def __init__(self) -> None:
        self.done: list[tuple[str, bool]] = []  # what, and whether in the thread of the event loop
        self.batches: list[int] = []
        self.time = 0.0
        self.takes_s = 0.0
        self.gate = threading.Event()
        self.gate.set()
        self._main = threading.get_ident()
        self._server = Server("test", self._serve, lambda: None)
        self._server.start()
        self.front: Front[Rig] = Front("test", self._server.put, Here(self._serve, lambda: self.time))

    def _serve(self, works: Sequence[Work[Any]]) -> list[Answer]:
        self.batches.append(len(works))
        return [Answer(*work.do(self, [work.given])) for work in works]

    def do(self, name: str) -> Callable[[Rig], str]:
        def work(rig: Rig) -> str:
            here = threading.get_ident() == rig._main
            if not here:
                assert rig.gate.wait(10)
            rig.time += rig.takes_s
            rig.done.append((name, here))
            return name

        return work

    def ask(self, name: str, rows: int = 1) -> asyncio.Task[str]:
        return asyncio.ensure_future(self.front.ask(self.do(name), rows=rows))


@asynccontextmanager
async def rigged() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.gate.set()
    await asyncio.wait_for(rig.front.close(), 10)


async def test_a_little_is_done_in_the_thread_that_asks(system_clock: Clock) -> None:
    async with rigged() as rig:
        assert await rig.ask("a", LITTLE) == "a"
        assert rig.done == [("a", True)]


async def test_much_is_done_in_the_thread_of_the_file(system_clock: Clock) -> None:
    async with rigged() as rig:
        assert await rig.ask("a", LITTLE + 1) == "a"
        assert rig.done == [("a", False)]


async def test_little_works_of_many_callers_go_together_to_the_thread(system_clock: Clock) -> None:
    async with rigged() as rig:
        await asyncio.gather(*(rig.ask(str(number)) for number in range(LITTLE + 1)))
        assert rig.batches == [LITTLE + 1]
        assert {here for _, here in rig.done} == {False}


async def test_nothing_overtakes_what_the_thread_has_under_way(system_clock: Clock) -> None:
    async with rigged() as rig:
        rig.gate.clear()
        first = rig.ask("much", 1000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = rig.ask("little")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert rig.done == []
        rig.gate.set()
        await asyncio.wait_for(asyncio.gather(first, second), 10)
        assert rig.done == [("much", False), ("little", False)]


async def test_a_slow_write_gives_the_work_back_to_the_thread_for_a_while(system_clock: Clock) -> None:
    async with rigged() as rig:
        rig.takes_s = 4 * QUICK_S
        await rig.ask("slow")
        rig.takes_s = 0.0
        where = [(await rig.ask("quick"), rig.done[-1][1])[1] for _ in range(20)]
        assert rig.done[0] == ("slow", True)
        assert where[0] is False
        assert where[-1] is True
        assert where == sorted(where)  # once it is back, it stays


async def test_a_work_that_fails_here_fails_for_who_asked(system_clock: Clock) -> None:
    async with rigged() as rig:

        def fail(_: Rig) -> None:
            raise ValueError("no")

        def serve(works: Sequence[Work[Any]]) -> list[Answer]:
            return [Answer(error=ValueError("no")) for _ in works]

        rig.front = Front("test", rig._server.put, Here(serve, lambda: 0.0))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ValueError, match="no"):
            await rig.front.ask(fail, rows=1)
