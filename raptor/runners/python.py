"""Python functions: async ones on the event loop, sync ones in a thread, isolated ones in a process of their own.

A sync function with a timeout is isolated, because a thread cannot be stopped. What an isolated one prints is in the
run's output; what the others print is too where the process asked for it, see printed.py. `ctx.log` always is.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, NamedTuple

import msgspec

from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.lane import Lane, by_itself
from raptor.runners import Context, Progress, time_limit
from raptor.runners.functions import is_generator, name_of, shape
from raptor.runners.output import Recording, RunLog
from raptor.runners.printed import OUTPUT
from raptor.runners.process import ProcessRunner
from raptor.runners.steps import OwnCancel, TimedOut, absorbed, follow
from raptor.runners.text import logger, one_line, raised, returned
from raptor.service import Service
from raptor.task import VERDICTS, Outcome, Result


class Plan(NamedTuple):
    """How a service's function is run: found out once."""

    service: Service
    call: Callable[[Context], Any]
    is_async: bool
    takes_context: bool
    missing: tuple[str, ...]  # parameters that nobody fills but a task
    isolated: bool
    limit_s: float | None


class Answer(NamedTuple):
    info: str
    error: str | None = None
    value: Any = None


COROUTINE: type[Any] = CoroutineType
SILENT = Result(outcome=Outcome.OK)
"""It returned nothing and printed nothing, as most do."""


class PythonRunner:
    """Runs functions and catches whatever they raise, be it SystemExit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = ProcessRunner(clock)
        self._plans: dict[str, Plan] = {}

    def run(self, service: Service, context: Context, log: RunLog) -> Coroutine[Any, Any, Result]:
        plan = self._plans.get(service.name)
        if plan is None or plan.service is not service:
            try:
                plan = self._plans[service.name] = _plan(service)
            except BadInput as error:
                return _refused(str(error))
        if context.task is None and plan.missing:
            return _refused(f"nobody gives it {', '.join(plan.missing)}: put it as a task, with data")
        if plan.isolated:
            return self._process.run(service, context, log)
        if not plan.is_async:
            return self._in_thread(plan, context, log)
        if context.lane is None:
            return by_itself(lambda lane: self._on_loop(plan, context, lane, log))
        return self._on_loop(plan, context, context.lane, log)

    async def _in_thread(self, plan: Plan, context: Context, log: RunLog) -> Result:
        async with Recording(log, context, self._clock):
            bound = _bound(context, log) if plan.takes_context else context
            return _result(await self._clock.offload(_call, plan, bound, log), log)

    async def _on_loop(self, plan: Plan, context: Context, lane: Lane, log: RunLog) -> Result:
        """In the lane's own task, which never fails: asyncio lets SystemExit in a task end the loop."""
        OUTPUT.set(log)  # in the context of the lane, which is for this run alone
        task = lane.task
        assert task is not None
        asked = task.cancelling()
        recording = Recording(log, context, self._clock)
        try:
            called = plan.call(_bound(context, log) if plan.takes_context else context)
            coroutine = called if type(called) is COROUTINE else _awaiting(called)
            try:
                waited = coroutine.send(None)
            except StopIteration as end:
                value = end.value
                if task.cancelling() > asked:
                    raise OwnCancel from await absorbed()
            except asyncio.CancelledError as cancelled:
                raise OwnCancel from cancelled
            else:
                value = await follow(coroutine, waited, lane, plan.limit_s, asked=asked)
            if value is None and not log.total:
                return SILENT
            answer = Answer(returned(value), None, value)
        except asyncio.CancelledError:
            raise
        except TimedOut:
            why = f"timed out after {plan.limit_s:g} s"
            return Result(outcome=Outcome.TIMED_OUT, info=why, error=why, tail=log.tail())
        except OwnCancel as own:
            answer = Answer(*raised(own.__cause__ or own))
        except BaseException as error:
            answer = Answer(*raised(error))
        finally:
            if recording.end():
                await recording.complete()
        return _result(answer, log)

    async def close(self) -> None:
        await self._process.close()


async def _refused(why: str) -> Result:
    return Result(outcome=Outcome.FAILED, info=one_line(why), error=why)


async def _awaiting(called: Any) -> Any:
    """What a call gave, as something to step through."""
    return await called


class _Latest:
    """Hands progress on to the loop, from any thread: the latest when the loop gets to it, not each."""

    def __init__(self, listener: Callable[[Progress], None]) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: Progress | None = None

    def offer(self, progress: Progress) -> None:
        with self._lock:
            idle, self._waiting = self._waiting is None, progress
        if idle:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                pass  # the loop has closed: nobody listens any more

    def _deliver(self) -> None:
        with self._lock:
            progress, self._waiting = self._waiting, None
        if progress is not None:
            self._listener(progress._replace(text=one_line(progress.text)))


class _Stream:
    """A RunLog, as a logging handler sees it."""

    def __init__(self, log: RunLog) -> None:
        self.write = log.text

    def flush(self) -> None:
        """Nothing waits here."""


def check(service: Service) -> None:
    """Refuse a function that could never be run."""
    _plan(service)


def _plan(service: Service) -> Plan:
    where, function = f"service {service.name!r}: function", service.function
    if function is None or not callable(function):
        raise BadInput(f"{where}: {function!r} cannot be called: give a function")
    if is_generator(function):
        raise BadInput(f"{where}: is a generator, and calling it runs nothing: return instead of yielding")
    form = shape(function, batch=service.batch is not None)
    isolated = service.isolate or bool(service.timeout_s and not form.is_async)
    if isolated and isinstance(problem := name_of(function), str):
        need = "isolate" if service.isolate else "the timeout of a sync function"
        raise BadInput(f"{where}: {need} needs a process of its own, which must import it by name: {problem}")
    takes_context = form.context is not None
    return Plan(
        service, form.caller(function), form.is_async, takes_context, form.missing, isolated, time_limit(service)
    )


def _bound(context: Context, log: RunLog) -> Context:
    """A context that the function gets to see."""
    return msgspec.structs.replace(
        context, log=logger(context.service, _Stream(log)), on_progress=_Latest(context.on_progress).offer
    )


def _call(plan: Plan, context: Context, log: RunLog) -> Answer:
    OUTPUT.set(log)  # offloaded work has a context of its own
    try:
        value = plan.call(context)
    except BaseException as error:
        return Answer(*raised(error))
    if inspect.iscoroutine(value):
        value.close()
        return Answer("it returned a coroutine, which nobody ran", "declare it with `async def`, or await inside")
    return Answer(returned(value), None, value)


def _result(answer: Answer, log: RunLog) -> Result:
    outcome = Outcome.OK if answer.error is None else Outcome.FAILED
    value, decision = (None, answer.value) if type(answer.value) in VERDICTS else (answer.value, None)
    return Result(
        outcome=outcome, info=answer.info, error=answer.error, tail=log.tail(), value=value, decision=decision
    )
