"""Blocking work in daemon threads."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from raptor.clock import Clock
from raptor.threads import Threads


async def started(*events: threading.Event) -> None:
    """Wait, without blocking the loop, until the work in other threads has begun."""
    for event in events:
        assert await asyncio.get_running_loop().run_in_executor(None, event.wait, 10)


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


async def test_the_result_comes_back_to_the_loop(system_clock: Clock) -> None:
    threads = Threads(2)
    assert await threads.run(lambda: 6 * 7) == 42
    assert await threads.run(threading.get_ident) != threading.get_ident()


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("k"), OSError(2, "no"), RecursionError(), BaseException()])
async def test_an_error_comes_back_as_it_is(system_clock: Clock, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        await Threads(1).run(raising(error))
    assert caught.value is error


async def test_a_stop_iteration_comes_back_as_an_error_that_can_be_raised(system_clock: Clock) -> None:
    class Sub(StopIteration):
        pass

    for error in (StopIteration(1), Sub(2)):
        with pytest.raises(RuntimeError, match=r"StopIteration|Sub"):
            await Threads(1).run(raising(error))


async def test_a_thread_outlives_the_errors_of_its_work(system_clock: Clock) -> None:
    threads = Threads(1)
    first = await threads.run(threading.get_ident)
    for error in (ValueError(), BaseException(), StopIteration(), asyncio.CancelledError()):
        await asyncio.gather(threads.run(raising(error)), return_exceptions=True)
    assert await threads.run(threading.get_ident) == first


async def test_no_more_threads_than_allowed_and_every_job_is_done(system_clock: Clock) -> None:
    threads, names, lock = Threads(4), set(), threading.Lock()
    inside, most = 0, 0

    def work(number: int) -> int:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            names.add(threading.current_thread().name)
        with lock:
            inside -= 1
        return number

    results = await asyncio.gather(*(threads.run(lambda number=number: work(number)) for number in range(500)))
    assert results == list(range(500))
    assert most <= 4
    assert names <= {f"raptor-{number}" for number in range(1, 5)}


async def test_as_many_jobs_as_threads_run_at_once(system_clock: Clock) -> None:
    """Each waits for all the others: with one thread too few it would never end."""
    barrier = threading.Barrier(5, timeout=10)
    threads = Threads(5)
    for _ in range(20):
        await asyncio.gather(*(threads.run(barrier.wait) for _ in range(5)))


async def test_threads_are_reused(system_clock: Clock) -> None:
    threads = Threads(64)
    used = set()
    for _ in range(50):
        used.add(await threads.run(lambda: threading.current_thread().name))
        await until_idle(threads)
    assert used == {"raptor-1"}


async def until_idle(threads: Threads) -> None:
    """Until every thread has come to rest."""
    while threads._idle < threads._count:
        await asyncio.sleep(0)


async def test_more_jobs_than_threads_wait_their_turn_in_order(system_clock: Clock) -> None:
    threads, gate, begun = Threads(1), threading.Event(), threading.Event()
    order: list[int] = []

    def blocks() -> None:
        begun.set()
        gate.wait(10)

    blocked = asyncio.create_task(threads.run(blocks))
    await started(begun)
    rest = [asyncio.create_task(threads.run(lambda number=number: order.append(number))) for number in range(20)]
    await asyncio.sleep(0)
    assert order == []
    gate.set()
    await asyncio.gather(blocked, *rest)
    assert order == list(range(20))


async def test_a_cancelled_wait_leaves_the_work_to_finish_and_drops_its_result(system_clock: Clock) -> None:
    threads, gate, begun = Threads(1), threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> str:
        begun.set()
        gate.wait(10)
        done.append("done")
        return "for nobody"

    waiting = asyncio.create_task(threads.run(work))
    await started(begun)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await threads.run(lambda: "next") == "next"
    assert done == ["done"]


async def test_an_error_after_a_cancelled_wait_disturbs_nobody(system_clock: Clock) -> None:
    threads, gate, begun = Threads(1), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(10)
        raise ValueError("for nobody")

    waiting = asyncio.create_task(threads.run(work))
    await started(begun)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    assert await threads.run(lambda: "next") == "next"


def test_work_that_outlives_its_loop_disturbs_nobody(system_clock: Clock) -> None:
    threads, gate, begun, done = Threads(1), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(10)
        done.set()

    async def program() -> None:
        task = asyncio.create_task(threads.run(work))
        await started(begun)
        task.cancel()

    async def another() -> str:
        return await threads.run(lambda: "a second loop")

    system_clock.run(program)
    gate.set()
    assert done.wait(10)
    assert system_clock.run(another) == "a second loop"


async def test_every_thread_is_a_daemon(system_clock: Clock) -> None:
    assert await Threads(1).run(lambda: threading.current_thread().daemon)


async def test_an_idle_thread_keeps_nothing_alive(system_clock: Clock) -> None:
    class Payload:
        pass

    threads = Threads(1)
    payload = Payload()
    kept = weakref.ref(payload)
    await threads.run(lambda payload=payload: None)
    del payload
    await until_idle(threads)
    gc.collect()
    assert kept() is None


async def test_as_many_jobs_as_threads_run_at_once_however_the_threads_came_to_rest(system_clock: Clock) -> None:
    """A thread that seems idle while it works would keep one of the three waiting, for ever."""
    threads = Threads(3)
    for _ in range(300):
        together = threading.Barrier(3, timeout=10)
        numbers = await asyncio.gather(*(threads.run(together.wait) for _ in range(3)))
        assert sorted(numbers) == [0, 1, 2]
