"""The two clocks: one that waits, and one that jumps."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import random
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.clock import Clock, SystemClock, VirtualClock

YEAR_S = 365 * 86_400.0


# Virtual time


async def test_a_day_of_minutes_passes_in_a_moment_and_exactly() -> None:
    clock = VirtualClock(start=0.0)
    ticks: list[float] = []

    async def ticking() -> None:
        for _ in range(24 * 60):
            await clock.sleep(60)
            ticks.append(clock.now())

    await within(clock, ticking)
    assert ticks == [60.0 * (number + 1) for number in range(24 * 60)]


async def within(clock: VirtualClock, program: Any) -> None:
    """Run a program on a loop of its own, in a thread: this one has a loop already."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            clock.run(program)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_time_stands_still_while_anything_can_run() -> None:
    clock = VirtualClock()

    async def program() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert clock.monotonic() == 0.0

    clock.run(program)


def test_sleepers_wake_in_the_order_of_their_times_whatever_the_order_of_their_starts() -> None:
    clock, woken = VirtualClock(), []

    async def program() -> None:
        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append((clock.monotonic(), seconds))

        await asyncio.gather(*(sleeper(seconds) for seconds in (5, 1, 3, 2, 4, 0)))

    clock.run(program)
    assert woken == [(float(seconds), seconds) for seconds in range(6)]


def test_a_wall_time_and_a_monotonic_time_start_where_they_are_told() -> None:
    clock = VirtualClock(start=1_234.5)
    assert (clock.now(), clock.monotonic()) == (1_234.5, 0.0)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), actors=st.integers(1, 8))
def test_the_same_seed_gives_the_same_trace(seed: int, actors: int) -> None:
    first, second = trace(seed, actors), trace(seed, actors)
    assert first == second
    assert len(first) == 20 * actors


def trace(seed: int, actors: int) -> list[tuple[float, int, float]]:
    """What a program full of chance does, and when."""
    clock = VirtualClock(seed=seed)
    lines: list[tuple[float, int, float]] = []

    async def worker(number: int, box: asyncio.Queue[int]) -> None:
        for _ in range(20):
            await clock.sleep(clock.rng.random() if clock.rng.random() < 0.7 else 0)
            box.put_nowait(number)
            lines.append((clock.monotonic(), await box.get(), clock.rng.random()))

    async def program() -> None:
        box: asyncio.Queue[int] = asyncio.Queue()
        await asyncio.gather(*(worker(number, box) for number in range(actors)))

    clock.run(program)
    return lines


def test_different_seeds_give_different_traces() -> None:
    assert trace(1, 3) != trace(2, 3)


def test_waiting_for_what_no_timer_will_bring_is_an_error_and_not_a_hang() -> None:
    clock = VirtualClock()

    async def program() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="virtual time stands still"):
        clock.run(program)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("years", [0.4, 0.6, 1, 10, 100, 1_000])
def test_timers_stay_exact_after_simulated_years(years: float) -> None:
    """A float of so many seconds still has a step far below a microsecond, or at least below a millisecond."""
    clock = VirtualClock()

    async def program() -> None:
        await bounded(clock.sleep(years * YEAR_S))
        for _ in range(100):
            before = clock.monotonic()
            await bounded(clock.sleep(60))
            assert clock.monotonic() == before + 60

    clock.run(program)


async def bounded(work: Any, turns: int = 1_000) -> None:
    """Wait for something under virtual time, for at most so many turns of the loop: a real hang fails at once."""
    task = asyncio.ensure_future(work)
    loop: Any = asyncio.get_running_loop()
    real, left = loop._run_once, turns

    def counted() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise AssertionError("the loop turns, but its timer does not fire")
        real()

    loop._run_once = counted
    try:
        await task
    finally:
        del loop._run_once


def test_offloaded_work_runs_inline_and_takes_no_time() -> None:
    clock = VirtualClock()

    async def program() -> None:
        thread = await clock.offload(threading.get_ident)
        assert thread == threading.get_ident()
        assert clock.monotonic() == 0.0
        assert await clock.offload(divmod, 7, 2) == (3, 1)
        assert await clock.offload(lambda *, x: x, x=5) == 5
        with pytest.raises(ZeroDivisionError):
            await clock.offload(lambda: 1 / 0)

    clock.run(program)


def test_offloading_gives_others_their_turn() -> None:
    clock, order = VirtualClock(), []

    async def program() -> None:
        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        await clock.offload(lambda: order.append("offloaded"))
        await task

    clock.run(program)
    assert order == ["other", "offloaded"]


# Waiting for a wall time


def until(clock: VirtualClock, when: float, *steps: tuple[float, float]) -> tuple[float, float]:
    """Wait for a wall time while the clock is set by so much after so long; -> wall time at the end, skew."""

    async def program() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        for after_s, by_s in steps:
            loop.call_later(after_s, clock.step, by_s)
        skew = await clock.sleep_until(when)
        return clock.now(), skew

    return clock.run(program)


def test_a_wait_for_a_wall_time_ends_just_then() -> None:
    assert until(VirtualClock(start=0.0), 3_600.0) == (3_600.0, 0.0)


def test_a_wait_for_a_time_that_has_passed_is_no_wait() -> None:
    assert until(VirtualClock(start=100.0), 99.0) == (100.0, 0.0)


def test_a_clock_set_forwards_ends_the_wait_within_a_slice() -> None:
    clock = VirtualClock(start=0.0, slice_s=30.0)
    now, skew = until(clock, 3_600.0, (100.0, 7_200.0))
    assert now >= 3_600.0
    assert clock.monotonic() == 120.0, "the next look after the step"
    assert skew == 7_200.0


def test_a_clock_set_back_lengthens_the_wait() -> None:
    clock = VirtualClock(start=0.0)
    now, skew = until(clock, 3_600.0, (100.0, -1_000.0))
    assert (now, skew) == (3_600.0, -1_000.0)
    assert clock.monotonic() == 4_600.0


def test_a_clock_set_back_in_the_last_slice_does_not_end_the_wait_early() -> None:
    clock = VirtualClock(start=0.0, slice_s=30.0)
    now, _ = until(clock, 60.0, (59.9, -0.5))
    assert now >= 60.0
    assert clock.monotonic() == pytest.approx(60.5)


@settings(max_examples=100, deadline=None)
@given(
    start=st.floats(1e6, 4e9),
    wait_s=st.floats(0, 5e3),
    slice_s=st.floats(5, 600),
    steps=st.lists(st.tuples(st.floats(0, 5e3), st.floats(-5e3, 5e3)), max_size=4),
)
def test_a_wait_is_never_early_by_the_wall_clock_and_late_by_a_slice_at_most(
    start: float, wait_s: float, slice_s: float, steps: list[tuple[float, float]]
) -> None:
    clock = VirtualClock(start=start, slice_s=slice_s)
    when = start + wait_s
    due, stepped, set_wall = wait_s, False, clock.step

    def step(seconds: float) -> None:
        nonlocal due, stepped
        set_wall(seconds)
        stepped = True
        due = clock.monotonic() + max(0.0, when - clock.now())  # by the monotonic clock, as things now stand

    clock.step = step  # type: ignore[method-assign]
    now, _ = until(clock, when, *steps)
    assert now >= when
    assert clock.monotonic() <= due + (slice_s if stepped else 0.0) + 1e-3


def test_a_wait_on_a_clock_set_back_before_the_epoch_ends_too() -> None:
    """What is left of the wait is then less than the smallest step of the monotonic time."""
    clock = VirtualClock(start=0.0)

    async def program() -> float:
        asyncio.get_running_loop().call_later(0.18028549152229673, clock.step, -100.0)
        await bounded(clock.sleep_until(1.1))
        return clock.now()

    assert clock.run(program) >= 1.1


# Real time


def test_a_real_sleep_is_never_shorter_than_asked(system_clock: Clock) -> None:
    async def program() -> list[float]:
        early = []
        for seconds in (0, 0.0001, 0.001, 0.0123):
            before = system_clock.monotonic()
            await system_clock.sleep(seconds)
            early.append(max(0.0, seconds - (system_clock.monotonic() - before)))
        return early

    assert system_clock.run(program) == [0, 0, 0, 0]


def test_a_real_wait_for_a_wall_time_is_never_early(system_clock: Clock) -> None:
    async def program() -> float:
        when = system_clock.now() + 0.02
        await system_clock.sleep_until(when)
        return system_clock.now() - when

    assert system_clock.run(program) >= 0


def test_the_system_clock_runs_on_uvloop_where_it_is_installed(system_clock: Clock) -> None:
    async def program() -> str:
        return type(asyncio.get_running_loop()).__module__

    module = system_clock.run(program)
    assert module.startswith("uvloop" if importlib.util.find_spec("uvloop") else "asyncio")


def test_the_system_clock_runs_without_uvloop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # as if it were not installed

    async def program() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert SystemClock().run(program).startswith("asyncio")


async def test_real_offloaded_work_runs_in_another_thread(system_clock: Clock) -> None:
    assert await system_clock.offload(threading.get_ident) != threading.get_ident()
    assert await system_clock.offload(divmod, 7, 2) == (3, 1)
    assert await system_clock.offload(lambda *, x: x, x=5) == 5


async def test_the_random_numbers_of_real_clocks_differ(system_clock: Clock) -> None:
    assert isinstance(system_clock.rng, random.Random)
    assert system_clock.rng.random() != SystemClock().rng.random()


@pytest.mark.parametrize("clock", [VirtualClock(), SystemClock()], ids=["virtual", "system"])
def test_a_program_returns_its_result_or_raises_its_error(clock: Clock) -> None:
    async def works() -> float:
        await clock.sleep(0.001)
        return math.pi

    async def fails() -> None:
        raise LookupError("not here")

    assert clock.run(works) == math.pi
    with pytest.raises(LookupError):
        clock.run(fails)
    assert clock.run(works) == math.pi, "and can run another"


PROGRAM = """
import threading
from raptor.clock import SystemClock

clock, begun, never = SystemClock(), threading.Event(), threading.Event()

def stuck():
    begun.set()
    never.wait()

async def main():
    import asyncio
    task = asyncio.create_task(clock.offload(stuck))
    await clock.offload(begun.wait)
    task.cancel()

clock.run(main)
print("ended")
"""


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_program() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended\n", "")
