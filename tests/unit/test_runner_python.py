"""Python functions on the loop and in threads: whatever they do is a result."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import raptor.runners
from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.runners import Context, Progress
from raptor.runners.functions import shape
from raptor.service import Service
from raptor.task import Outcome
from tests.unit.runs import Trial, run

Facts = tuple[Outcome, str]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("from __str__")


class Odd(BaseException):
    """Neither an Exception nor one that Python knows."""


ERRORS: list[BaseException] = [
    SystemExit(3),
    SystemExit(),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    asyncio.CancelledError(),
    TimeoutError("mine"),
    RecursionError(),
    MemoryError(),
    Unprintable(),
    Odd(),
    ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    AssertionError("no"),
]


def service(function: Callable[..., Any] | None, **options: Any) -> Service:
    return Service(name="s", function=function, **options)


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


def raising_async(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        await asyncio.sleep(0.001)
        raise error

    return work


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [raising, raising_async])
async def test_whatever_is_raised_is_a_failed_result(clock: Clock, kind: Any, error: BaseException) -> None:
    result = await run(clock, service(kind(error)))
    assert result.outcome is Outcome.FAILED
    assert type(error).__name__ in result.info
    assert result.error is not None
    assert "in work" in result.error
    assert not result.died


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", [raising, raising_async])
async def test_and_so_it_is_in_real_threads_and_loops(system_clock: Clock, kind: Any, error: BaseException) -> None:
    result = await run(system_clock, service(kind(error)))
    assert (result.outcome, type(error).__name__ in result.info) == (Outcome.FAILED, True)


async def test_endless_recursion_is_a_failed_result(system_clock: Clock) -> None:
    def deeper() -> None:
        deeper()

    result = await run(system_clock, service(deeper))
    assert result.info.startswith("RecursionError")


async def test_a_return_value_is_told_in_one_line(clock: Clock) -> None:
    async def work() -> dict[str, int]:
        return {"rows": 3}

    def text() -> str:
        return "two\nlines" + "x" * 1000

    assert (await run(clock, service(work))).info == '{"rows": 3}'
    result = await run(clock, service(text))
    assert (result.outcome, len(result.info), result.info[:10]) == (Outcome.OK, 200, "two\\nlines")


async def test_a_sync_function_runs_in_a_thread(system_clock: Clock) -> None:
    here = threading.get_ident()
    result = await run(system_clock, service(lambda: threading.get_ident() != here))
    assert result.info == "true"


async def test_an_async_function_is_given_up_after_an_hour(clock: Clock) -> None:
    cleaned: list[float] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(clock.monotonic())

    async def keep_time() -> None:
        await clock.sleep(10_000)

    timer = asyncio.ensure_future(keep_time())
    result = await run_long(clock, service(work))
    assert (result.outcome, result.info) == (Outcome.TIMED_OUT, "timed out after 3600 s")
    assert cleaned == [3600]
    timer.cancel()


async def run_long(clock: Clock, wanted: Service) -> Any:
    trial = Trial(clock, wanted)
    return await trial.start()


async def test_zero_means_no_limit(clock: Clock) -> None:
    async def work() -> str:
        await clock.sleep(100_000)
        return "done"

    assert (await run_long(clock, service(work, timeout_s=0))).info == "done"
    assert (await run_long(clock, service(work, timeout_s=50_000))).outcome is Outcome.TIMED_OUT


async def test_one_that_catches_its_cancellation_is_closed(clock: Clock) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

    result = await run_long(clock, service(stubborn, timeout_s=5))
    assert (result.outcome, result.error) == (Outcome.TIMED_OUT, "timed out after 5 s")
    assert 6 <= clock.monotonic() <= 7
    assert len(asyncio.all_tasks()) == 1


async def test_one_that_catches_everything_is_abandoned_and_told(clock: Clock) -> None:
    release = asyncio.Event()

    async def immortal() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except BaseException:
                pass

    trial = Trial(clock, service(immortal, timeout_s=5))
    timer = asyncio.ensure_future(clock.sleep(100))
    result = await trial.start()
    assert result.outcome is Outcome.TIMED_OUT
    assert "was left running" in result.info
    assert (await run(clock, service(lambda: "fine"))).info == "fine"
    release.set()
    await timer


async def test_an_interrupt_ends_the_work_and_is_raised_again(clock: Clock) -> None:
    ended: list[str] = []

    async def work(ctx: Context) -> None:
        try:
            ctx.log.info("started")
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)
            ended.append("ended")

    trial = Trial(clock, service(work))
    task = trial.start()
    await trial.log.hears("started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]


async def test_an_interrupt_does_not_wait_long_for_the_stubborn(clock: Clock) -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

    task = Trial(clock, service(stubborn)).start()
    await clock.sleep(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.monotonic() <= 12


async def test_an_interrupt_leaves_a_thread_to_finish(system_clock: Clock) -> None:
    started, finish, finished = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        finish.wait(30)
        finished.set()

    task = Trial(system_clock, service(work)).start()
    assert await system_clock.offload(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not finished.is_set()
    finish.set()
    assert await system_clock.offload(finished.wait, 30)


async def test_one_that_cancels_its_own_task_has_failed(clock: Clock) -> None:
    async def work() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned all the same"

    result = await run(clock, service(work))
    assert result.outcome is Outcome.FAILED
    assert "CancelledError" in result.info


async def test_the_context_tells_of_the_run(clock: Clock) -> None:
    seen: list[Context] = []

    def by_name(ctx: Any) -> None:
        seen.append(ctx)

    def by_annotation(other: int = 1, *, run: Context) -> None:
        seen.append(run)

    async def by_text(where: "raptor.runners.Context", /) -> None:  # noqa: UP037 - as people write it
        seen.append(where)

    for function in (by_name, by_annotation, by_text):
        facts = {"run_id": "r1", "scheduler": "main", "attempt": 2, "key": "k", "data": {"a": 1}}
        assert (await run(clock, service(function), **facts)).outcome is Outcome.OK
    for context in seen:
        assert (context.run_id, context.service, context.scheduler, context.attempt) == ("r1", "s", "main", 2)
        assert (context.planned, context.key, context.data) == (1_000_000_000.0, "k", {"a": 1})
    assert len(seen) == 3


async def test_the_log_of_the_context_goes_into_the_output(system_clock: Clock, tmp_path: Path) -> None:
    def work(ctx: Context) -> None:
        ctx.log.info("row %d", 7)
        ctx.log.warning("odd")
        ctx.log.debug("not said")

    result = await run(system_clock, service(work), tmp_path / "s.log")
    assert result.tail == "INFO row 7\nWARNING odd\n"
    assert (tmp_path / "s.log").read_text().endswith("Z\nINFO row 7\nWARNING odd\n")


async def test_progress_is_told_on_the_loop_and_does_not_flood_it(system_clock: Clock) -> None:
    told: list[Progress] = []
    threads: set[int] = set()

    def hear(progress: Progress) -> None:
        told.append(progress)
        threads.add(threading.get_ident())

    def work(ctx: Context) -> None:
        for number in range(20_000):
            ctx.progress(number, 20_000, "row\n")

    await run(system_clock, service(work), on_progress=hear)
    await asyncio.sleep(0)
    assert told[-1] == Progress(19_999, 20_000, "row\\n")
    assert threads == {threading.get_ident()}
    assert len(told) < 20_000


async def test_progress_that_nobody_has_looked_at_is_replaced(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, told = asyncio.get_running_loop(), list[Progress]()
    calls: list[object] = []
    plain = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *words: calls.append(words) or plain(*words))

    async def work(ctx: Context) -> None:
        for number in range(1000):
            ctx.progress(number)

    await run(clock, service(work), on_progress=told.append)
    await asyncio.sleep(0)
    assert (told, len(calls)) == ([Progress(999, None, "")], 1)


async def test_a_context_by_itself_is_silent() -> None:
    context = Context(run_id="r", service="s", planned=0, key="k")
    context.log.error("nobody hears")
    context.progress(1)


async def test_a_coroutine_from_a_sync_function_is_not_success(clock: Clock) -> None:
    async def inner() -> None: ...

    result = await run(clock, service(lambda: inner()))
    assert result.outcome is Outcome.FAILED
    assert "coroutine" in result.info


async def test_partials_and_objects_are_functions_too(clock: Clock) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    class Adder:
        async def __call__(self) -> int:
            return 5

    assert (await run(clock, service(functools.partial(add, 1, b=2)))).info == "3"
    assert (await run(clock, service(Adder()))).info == "5"
    assert (await run(clock, service(dict))).info == "{}"


async def test_a_service_is_looked_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def look(function: Any, *, batch: bool) -> Any:
        looks.append(function)
        return shape(function, batch=batch)

    monkeypatch.setattr("raptor.runners.python.shape", look)

    async def work(ctx: Context) -> None: ...

    trial = Trial(clock, service(work))
    for _ in range(3):
        await trial.run()
    assert looks == [work]


async def test_a_function_that_needs_data_is_not_called_without_a_task(clock: Clock) -> None:
    result = await Trial(clock, service(needy)).run()
    assert result.outcome is Outcome.FAILED
    assert result.info == "nobody gives it rows, size: put it as a task, with data"


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


def needy(ctx: Context, rows: int, *rest: int, size: int, more: int = 1, **others: int) -> None: ...


def original() -> None: ...


def replaced() -> None: ...


kept = replaced


def replaced() -> None: ...  # type: ignore[no-redef]


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (service(None), "cannot be called"),
        (service("text"), "cannot be called"),  # type: ignore[arg-type]
        (service(generator), "generator"),
        (service(async_generator), "generator"),
        (service(lambda: 1, isolate=True), "isolate needs a process of its own, .*top level"),
        (service(lambda: 1, timeout_s=5), "the timeout of a sync function needs a process of its own"),
        (service(functools.partial(original), isolate=True), "no name to import"),
        (service(kept, isolate=True), "another object"),
        (Service(name="s", kind="strange"), "none of python, command"),
    ],
)
def test_a_function_that_could_never_run_is_refused(wanted: Service, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        raptor.runners.check(wanted)


@pytest.mark.parametrize(
    "wanted",
    [service(original), service(original, isolate=True), service(original, timeout_s=1), service(lambda: 1)],
)
def test_a_function_that_can_run_is_accepted(wanted: Service) -> None:
    raptor.runners.check(wanted)


async def test_what_would_be_refused_fails_when_it_is_run_all_the_same(clock: Clock) -> None:
    result = await run(clock, service(generator))
    assert (result.outcome, "generator" in result.info) == (Outcome.FAILED, True)
