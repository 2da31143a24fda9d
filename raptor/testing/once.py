"""One run of one service, here and now: its function with its data, and what it answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from raptor.catalogue import place
from raptor.clock import Clock, SystemClock, VirtualLoop
from raptor.payload import form_of
from raptor.runners import RUNNERS, Context, Desk, check, close_runners
from raptor.runners.functions import is_async
from raptor.runners.output import RunLog
from raptor.service import Given, Service
from raptor.task import Result, Task

T = TypeVar("T")


def run(
    service: Given,
    data: Any = None,
    *,
    attempt: int = 0,
    resources: Mapping[str, Any] | None = None,
    desk: Desk | None = None,
) -> Any:
    """Run a service once, as a task with this data; -> its Result. At once, or to be awaited on an event loop.

    `attempt` is how many tries have failed before. Nothing is stored, tried again, or run in another process.
    """
    return at_once(run_once(in_place(service), data, attempt=attempt, resources=resources or {}, desk=desk))


def in_place(given: Given) -> Service:
    """A service that runs in this process, where a test can see and replace what it uses."""
    service = place(given, Path.cwd()).service
    if service.kind == "python" and service.function is not None:
        # A thread cannot be stopped: a time limit would move a sync function into another process.
        limit_s = service.timeout_s if is_async(service.function) else None
        service = msgspec.structs.replace(service, isolate=False, timeout_s=limit_s)
    check(service)
    return service


def at_once(work: Coroutine[Any, Any, T]) -> Any:
    """The result, or what is to be awaited where an event loop runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return SystemClock().run(lambda: work)
    return work


def clock_here() -> Clock:
    """The clock that the running event loop lives by, if there is one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SystemClock()
    return loop.clock if isinstance(loop, VirtualLoop) else SystemClock()


async def run_once(
    service: Service,
    data: Any,
    *,
    id: int = 1,
    attempt: int = 0,
    resources: Mapping[str, Any] = MappingProxyType({}),
    desk: Desk | None = None,
) -> Result:
    clock, form = clock_here(), form_of(service.function, service.batch is not None)
    many = list(data) if service.batch is not None else [data]
    stored = [form.encode(one, service.codec) for one in many]
    values = [form.decode(one) for one in stored]
    now = clock.now()
    task = Task(
        id=id,
        service=service.name,
        queue=service.queue,
        due=now,
        started=now,
        attempts=attempt,
        data=stored[0] if stored else "null",
    )
    context = Context(
        run_id="test",
        service=service.name,
        attempt=attempt,
        planned=now,
        key="test",
        data=values[0] if service.batch is None else values,
        task=task,
        desk=desk,
        resources=resources,
    )
    runner = RUNNERS[service.kind](clock)
    try:
        return await runner.run(service, context, RunLog(None))
    finally:
        await close_runners([runner])
