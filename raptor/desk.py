"""Where tasks are put: by commands, by a program that embeds a node, and by services while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import msgspec

from raptor.catalogue import Catalogue
from raptor.errors import BadInput, TaskFailed
from raptor.faults import point
from raptor.orders import Order, task_for
from raptor.payload import form_of
from raptor.rows import Line
from raptor.service import service_of
from raptor.state.base import Receipt
from raptor.task import Task
from raptor.workshop import Workshop

Named = str | Callable[..., Any]
"""A service: its name, or the function that is one."""


class Handle:
    """A task that was put."""

    def __init__(self, id: int, new: bool, wait: Callable[[int, float | None], Awaitable[dict[str, Any]]]) -> None:
        self.id = id
        self.new = new  # False: its key was held, and this is the one that holds it
        self._wait = wait

    async def result(self, timeout_s: float | None = None) -> Any:
        """What the service returned, when it has ended; TaskFailed if it is dead or cancelled."""
        return output_of(await self._wait(self.id, timeout_s))

    def __repr__(self) -> str:
        return f"Handle({self.id})"


class TaskDesk:
    """Checks what is asked for and stores it. It belongs to one event loop; threads may put through `put_from`."""

    def __init__(self, workshop: Workshop, now: Callable[[], float], home: Path | None = None) -> None:
        self.now = now
        self.home = home
        self._workshop = workshop
        self._loop = asyncio.get_running_loop()

    async def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Receipt:
        """Store one task; it is durable when this returns."""
        task = self._task(name_of(service), data, order)
        point("before_put")
        (placed,) = await self._workshop.timetable.store.put([task], now=self.now(), replace=replace)
        point("after_put")
        return placed

    async def put_many(self, service: Named, many: Iterable[Any], **order: Unpack[Order]) -> list[Receipt]:
        """Store a task for each of many data, all or none."""
        name, given = name_of(service), list(many)
        if not given:
            return []
        first = self._task(name, given[0], order)
        known = self._workshop.catalogue.get(name)
        form = form_of(None if known is None else known.function, known is not None and known.batch is not None)
        codec = "json" if known is None else known.codec
        shared = msgspec.structs.asdict(first)
        del shared["data"]
        tasks = [first, *(Task(data=form.encode(data, codec), **shared) for data in given[1:])]
        return await self._workshop.timetable.store.put(tasks, now=self.now())

    def put_from(self, service: Named, data: Any, **order: Any) -> Any:
        """Put from a service: awaited on the event loop, or at once from a thread, which waits."""
        work = self.put(service, data, **order)
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        return work if here else asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _task(self, service: str, data: Any, order: Order) -> Task:
        catalogue = self._workshop.catalogue
        assert isinstance(catalogue, Catalogue)
        return task_on(service, data, catalogue, self._workshop.lines, self.now(), order)


def task_on(service: str, data: Any, catalogue: Catalogue, lines: Mapping[str, Line], now: float, order: Order) -> Task:
    """The task that is asked for, with its data checked as its runner would."""
    known = catalogue.get(service)
    if known is not None and known.kind == "http":
        from raptor.runners.http import check_data  # TLS is slow to import

        check_data(known, data)
    return task_for(service, data, catalogue, lines, now, **order)


def output_of(ended: dict[str, Any]) -> Any:
    """What a task that has ended returned; TaskFailed if it did not."""
    if ended["state"] != "done":
        raise TaskFailed(ended["id"], ended["state"], ended["reason"], ended["error"])
    return ended["output"]


def name_of(service: Named) -> str:
    if isinstance(service, str):
        return service
    found = service_of(service)
    if found is None:
        raise BadInput(f"{service!r} is no service: decorate it with @service, or give a name")
    return found.name
