"""A thread that notices when the event loop hangs, with loops that really do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.events import Event
from raptor.runtime import Runtime
from raptor.watchdog import LoopWatchdog, Watch, _is_traced

LIMIT_S = 0.02
WATCH = Watch(limit_s=LIMIT_S)
PATIENCE_S = 30.0


class Signal(logging.Handler):
    """Sets an event at the first record, in the thread that logs: the loop cannot tell, it hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.came.set()


@contextmanager
def listening() -> Generator[Signal]:
    signal, log = Signal(), logging.getLogger("raptor.watchdog")
    log.addHandler(signal)
    try:
        yield signal
    finally:
        log.removeHandler(signal)


def a_handler_that_blocks(until: threading.Event) -> None:
    """Blocks the loop until the watchdog has told of it."""
    assert until.wait(PATIENCE_S), "the watchdog never told"


async def heard(events: list[Event], changed: asyncio.Event, name: str) -> Event:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = [event for event in events if event.name == name]
            if found:
                return found[0]
            changed.clear()
            await changed.wait()


def subscribe(runtime: Runtime) -> tuple[list[Event], asyncio.Event]:
    events: list[Event] = []
    changed = asyncio.Event()

    def listen(event: Event) -> None:
        events.append(event)
        changed.set()

    runtime.events.subscribe(listen, "loop_stalled", "loop_resumed")
    return events, changed


async def test_a_blocked_loop_is_told_of_while_it_hangs_with_the_function_that_blocks_it(system_clock: Clock) -> None:
    runtime = Runtime(system_clock, log=False)
    watchdog = LoopWatchdog(runtime, WATCH)
    events, changed = subscribe(runtime)
    with listening() as signal:
        watchdog.start()
        a_handler_that_blocks(signal.came)
        assert "a_handler_that_blocks" in signal.texts[0]
        assert "stuck for" in signal.texts[0]
        stalled, resumed = await heard(events, changed, "loop_stalled"), await heard(events, changed, "loop_resumed")
    watchdog.stop()
    assert "a_handler_that_blocks" in str(stalled.facts["stack"])
    assert isinstance(stalled.facts["stalled_s"], float)
    assert isinstance(resumed.facts["stalled_s"], float)
    assert resumed.facts["stalled_s"] >= stalled.facts["stalled_s"] >= LIMIT_S


async def test_one_stall_is_told_once_and_the_next_again(system_clock: Clock) -> None:
    runtime = Runtime(system_clock, log=False)
    watchdog = LoopWatchdog(runtime, WATCH)
    events, changed = subscribe(runtime)
    with listening() as signal:
        watchdog.start()
        for number in (1, 2):
            signal.came.clear()
            a_handler_that_blocks(signal.came)
            threading.Event().wait(3 * LIMIT_S)  # goes on hanging for longer than the limit
            events.clear()
            await heard(events, changed, "loop_resumed")
            assert [event.name for event in events] == ["loop_stalled", "loop_resumed"]
            assert len(signal.texts) == number
    watchdog.stop()


async def test_a_loop_that_answers_is_not_told_of(system_clock: Clock) -> None:
    """Sixty seconds of patience: nothing here comes near it."""
    runtime = Runtime(system_clock, log=False)
    watchdog = LoopWatchdog(runtime, Watch(limit_s=60.0))
    with listening() as signal:
        watchdog.start()
        for _ in range(100):
            await asyncio.sleep(0)
        watchdog.stop()
        await asyncio.get_running_loop().run_in_executor(None, watchdog._thread.join, PATIENCE_S)
    assert signal.texts == []
    assert not watchdog._thread.is_alive(), "it stops when it is told, not when its wait is over"


class Beats:
    """Signs of life, as whoever asked for them gets them."""

    def __init__(self) -> None:
        self.count = 0
        self.came = threading.Event()

    def beat(self) -> None:
        self.count += 1
        self.came.set()

    def wait(self, number: int) -> None:
        for _ in range(number):
            self.came.clear()
            assert self.came.wait(PATIENCE_S), "no sign of life"


async def test_each_sign_of_life_is_handed_on_and_none_while_the_loop_hangs(system_clock: Clock) -> None:
    beats = Beats()
    runtime = Runtime(system_clock, log=False)
    watchdog = LoopWatchdog(runtime, Watch(limit_s=LIMIT_S, on_alive=beats.beat))
    watchdog.start()
    await system_clock.offload(beats.wait, 3)
    with listening() as signal:
        a_handler_that_blocks(signal.came)
        before = beats.count
        threading.Event().wait(3 * LIMIT_S)  # goes on hanging for longer than the limit
        assert beats.count == before
    await system_clock.offload(beats.wait, 1)
    watchdog.stop()


async def test_signs_of_life_come_as_often_as_asked_for(system_clock: Clock) -> None:
    """A limit of an hour would give one in half an hour."""
    beats = Beats()
    watch = Watch(limit_s=3600.0, every_s=0.001, on_alive=beats.beat)
    watchdog = LoopWatchdog(Runtime(system_clock, log=False), watch)
    watchdog.start()
    await system_clock.offload(beats.wait, 3)
    watchdog.stop()


async def test_a_loop_that_a_debugger_holds_is_alive_and_not_told_of(system_clock: Clock) -> None:
    beats = Beats()
    watchdog = LoopWatchdog(Runtime(system_clock, log=False), Watch(limit_s=LIMIT_S, on_alive=beats.beat))
    # As under pdb: a frame of its module is on the stack of the loop.
    pdb: dict[str, Any] = {"__name__": "pdb"}
    exec("def interaction(wait): wait(5)", pdb)
    with listening() as signal:
        watchdog.start()
        pdb["interaction"](beats.wait)
        watchdog.stop()
        await asyncio.get_running_loop().run_in_executor(None, watchdog._thread.join, PATIENCE_S)
    assert signal.texts == []


@pytest.mark.parametrize(("pid", "traced"), [("0", False), ("4711", True), ("", False)])
def test_a_debugger_of_the_system_is_seen_by_its_trace(tmp_path: Path, pid: str, traced: bool) -> None:
    (tmp_path / "status").write_text(f"Name:\tpython\nPPid:\t1\nTracerPid:\t{pid}\n")
    assert _is_traced(tmp_path / "status") is traced
    assert not _is_traced(tmp_path / "none")


class Suspended(threading.Event):
    """As it is after the machine slept in the middle of a wait: the time is over at once, and nobody could answer."""

    slept = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self.slept:
            self.slept = True
            return False
        return super().wait(PATIENCE_S)


async def test_a_machine_that_slept_is_given_the_time_to_answer(system_clock: Clock) -> None:
    beats = Beats()
    watchdog = LoopWatchdog(Runtime(system_clock, log=False), Watch(limit_s=LIMIT_S, on_alive=beats.beat))
    watchdog._alive = Suspended()
    with listening() as signal:
        watchdog.start()
        await system_clock.offload(beats.wait, 1)
        watchdog.stop()
    assert watchdog._alive.slept
    assert signal.texts == []


async def test_a_watchdog_stopped_in_the_middle_of_a_stall_ends(system_clock: Clock) -> None:
    watchdog = LoopWatchdog(Runtime(system_clock, log=False), WATCH)
    with listening() as signal:
        watchdog.start()
        a_handler_that_blocks(signal.came)
        watchdog.stop()
        watchdog._thread.join(PATIENCE_S)
    assert not watchdog._thread.is_alive()


def test_a_watchdog_ends_with_its_loop(system_clock: Clock) -> None:
    async def program() -> LoopWatchdog:
        watchdog = LoopWatchdog(Runtime(system_clock, log=False), WATCH)
        watchdog.start()
        return watchdog

    watchdog = system_clock.run(program)
    watchdog._thread.join(PATIENCE_S)
    assert not watchdog._thread.is_alive()


async def test_a_watchdog_does_not_hold_up_the_end_of_the_program(system_clock: Clock) -> None:
    assert LoopWatchdog(Runtime(system_clock, log=False))._thread.daemon
