"""Time limits of calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.clock import Clock, VirtualClock
from raptor.deadlines import Deadlines
from raptor.errors import CallTimeout


def made(clock: Clock) -> tuple[Deadlines, asyncio.AbstractEventLoop]:
    loop = asyncio.get_running_loop()
    return Deadlines(loop, clock), loop


def live_timers() -> int:
    loop: Any = asyncio.get_running_loop()
    return sum(not handle.cancelled() for handle in loop._scheduled)


async def test_a_future_that_is_not_done_in_time_fails_just_then(clock: Clock) -> None:
    deadlines, loop = made(clock)
    future: asyncio.Future[object] = loop.create_future()
    deadlines.add(future, 5.0, "the actor")
    with pytest.raises(CallTimeout, match=r"'the actor' did not answer within 5\.0 s"):
        await future
    assert clock.monotonic() == 5.0


async def test_a_future_that_is_done_in_time_is_left_alone(clock: Clock) -> None:
    deadlines, loop = made(clock)
    done: asyncio.Future[str] = loop.create_future()
    cancelled: asyncio.Future[str] = loop.create_future()
    for future in (done, cancelled):
        deadlines.add(future, 5.0, "x")
    done.set_result("answer")
    cancelled.cancel()
    await clock.sleep(10)
    assert done.result() == "answer"
    assert cancelled.cancelled()


async def test_a_call_timeout_is_a_timeout_error(clock: Clock) -> None:
    deadlines, loop = made(clock)
    future: asyncio.Future[object] = loop.create_future()
    deadlines.add(future, 0, "x")
    with pytest.raises(TimeoutError):
        await future


async def test_ten_thousand_limits_of_one_length_have_one_timer(clock: Clock) -> None:
    deadlines, loop = made(clock)
    futures: list[asyncio.Future[object]] = [loop.create_future() for _ in range(10_000)]
    before = live_timers()
    for future in futures:
        deadlines.add(future, 5.0, "x")
    assert live_timers() == before + 1
    for future in futures:
        future.set_result(None)
    await clock.sleep(11)
    assert live_timers() == before, "and none when all are done"
    assert deadlines._queues == {}


async def test_finished_calls_do_not_pile_up_behind_one_another(clock: Clock) -> None:
    deadlines, loop = made(clock)
    for _ in range(10_000):
        future: asyncio.Future[object] = loop.create_future()
        deadlines.add(future, 5.0, "x")
        future.set_result(None)
    assert len(deadlines._queues[5.0]) <= 2


@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 1.0, 2.5, 5.0]),  # the limit
            st.floats(0, 2),  # the pause before
            st.one_of(st.none(), st.floats(0, 6)),  # when it is done, if ever
        ),
        max_size=30,
    )
)
def test_each_limit_is_kept_to_the_moment_among_any_others(
    entries: list[tuple[float, float, float | None]],
) -> None:
    clock = VirtualClock()

    async def program() -> None:
        deadlines, loop = made(clock)

        async def one(limit_s: float, done_s: float | None) -> None:
            future: asyncio.Future[str] = loop.create_future()
            began = clock.monotonic()
            deadlines.add(future, limit_s, "x")
            if done_s is not None:
                loop.call_later(done_s, lambda: future.done() or future.set_result("answer"))
            try:
                await future
                assert done_s is not None
                assert clock.monotonic() - began == pytest.approx(done_s)
                assert done_s <= limit_s
            except CallTimeout:
                assert clock.monotonic() - began == pytest.approx(limit_s)
                assert done_s is None or done_s >= limit_s

        tasks = []
        for limit_s, pause_s, done_s in entries:
            await clock.sleep(pause_s)
            tasks.append(asyncio.create_task(one(limit_s, done_s)))
        await asyncio.gather(*tasks)

    clock.run(program)


async def test_a_limit_under_real_time_is_never_early(system_clock: Clock) -> None:
    deadlines, loop = made(system_clock)
    for limit_s in (0.0, 0.0001, 0.0104):
        future: asyncio.Future[object] = loop.create_future()
        began = system_clock.monotonic()
        deadlines.add(future, limit_s, "x")
        with pytest.raises(CallTimeout):
            await future
        assert system_clock.monotonic() - began >= limit_s
