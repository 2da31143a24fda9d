"""A whole node in virtual time and in memory: no files, no sockets, no waiting."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, Unpack, overload

from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock, VirtualLoop
from raptor.config import Config
from raptor.desk import Handle, Named, name_of
from raptor.errors import BadInput
from raptor.node import Node
from raptor.orders import Order, Span
from raptor.resources import Resource
from raptor.service import Given
from raptor.state.base import Receipt
from raptor.state.memory import MemoryStore
from raptor.task import Task
from raptor.testing.once import in_place
from raptor.testing.puts import Puts, length_s
from raptor.timing import show_seconds

P = ParamSpec("P")

NOWHERE = Path("/nowhere")
STARTED = ("task_started", "service_started")
ENDED = ("task_ended", "task_cancelled", "result_refused", "service_ended")


Test = Callable[P, Coroutine[Any, Any, None]]


@overload
def in_virtual_time(test: Test[P]) -> Callable[P, None]: ...
@overload
def in_virtual_time(*, start: datetime) -> Callable[[Test[P]], Callable[P, None]]: ...
def in_virtual_time(test: Test[P] | None = None, *, start: datetime | None = None) -> Any:
    """Make an async test one that is called as it is, and in which time jumps to whatever comes next.

    `@in_virtual_time`, or `@in_virtual_time(start=datetime(2026, 3, 1, 9, tzinfo=UTC))`.
    """
    clock = partial(VirtualClock) if start is None else partial(VirtualClock, start=start.timestamp())

    def decorate(test: Test[P]) -> Callable[P, None]:
        @wraps(test)
        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            clock().run(lambda: test(*args, **kwargs))

        return call

    return decorate if test is None else decorate(test)


class World:
    """`async with World(services=[...]) as world:` in a test that is decorated with @in_virtual_time.

    Services run in this process, isolated ones too. Commands, HTTP calls and messages are refused: they take real time.
    """

    def __init__(
        self,
        services: Iterable[Given] = (),
        *,
        config: Config | None = None,
        resources: Mapping[str, Resource] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise BadInput("a World lives in virtual time: put @raptor.testing.in_virtual_time before the test")
        made = [in_place(service) for service in services]
        for service in made:
            if service.kind != "python":
                problem = f"service {service.name!r}: kind {service.kind!r} takes real time"
                raise BadInput(f"{problem}: give the World a function of that name in its place")
        self.clock = loop.clock
        self.puts = Puts()
        self.assert_put = self.puts.check
        self.store = _Noting(self.puts)
        self.node: Node = _Whole(
            services=made,
            config=config or Config.load({}, environ={}, cwd=NOWHERE, user_file=NOWHERE, user_state=NOWHERE),
            clock=self.clock,
            store=self.store,
            resources=resources,
        )

    async def __aenter__(self) -> Self:
        await self.node.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.node.__aexit__(kind, error, trace)

    @property
    def now(self) -> float:
        return self.clock.now()

    # What happens

    async def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Handle:
        """Put a task, as into any node."""
        return await self.node.put(service, data, replace=replace, **order)

    async def schedule(self, services: Sequence[str], *, interval: str | None = None, name: str = "main") -> None:
        """Have a scheduler run services; "name=24h" gives one its own interval."""
        if interval is None:
            await self.node.schedule(name, services)
        await self.node.start(name, interval)
        if interval is not None:
            await self.node.schedule(name, services)

    async def advance(self, span: Span) -> None:
        """Let so much time pass; whatever is due at its end has begun, and is done if it waits for nothing."""
        await self.clock.sleep_until(self.now + length_s(span))
        await self._settle()

    async def run_until_idle(self, within: Span = "24h") -> None:
        """Until nothing runs and nothing is due. Time passes only for what runs; what is due later stays."""
        change = asyncio.Event()
        subscription = self.node.events.subscribe(lambda event: change.set(), *STARTED, *ENDED)
        try:
            async with asyncio.timeout(length_s(within)):
                while await self._is_busy():
                    await change.wait()
                    change.clear()
        except TimeoutError:
            left = await self.tasks(state="taken") + await self.tasks(state="ready")
            shown = ", ".join(f"{task['service']} ({task['state']})" for task in left[:10]) or "a scheduler"
            raise AssertionError(f"not idle after {show_seconds(length_s(within))}: {shown}") from None
        finally:
            subscription.close()

    # What there is

    async def tasks(
        self, *, service: Named | None = None, state: str | None = None, queue: str | None = None
    ) -> list[dict[str, Any]]:
        """Tasks, the oldest first: all that is known of each. `state` may be delayed as well."""
        name = None if service is None else name_of(service)
        answer = await self.node.call("tasks", service=name, state=state, queue=queue, limit=1_000_000)
        return list(reversed(answer["tasks"]))

    async def _is_busy(self) -> bool:
        await self._settle()
        queues = (await self.node.call("queues"))["queues"]
        waiting = any(one["taken"] or (one["ready"] and not one["paused"]) for one in queues)
        return waiting or bool(self.node.site.records.timetable.claims)

    async def _settle(self) -> None:
        """Until nothing can run but by the passing of time: a timer goes off when all else waits."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        # Too little to be seen in what the clock shows, and more than the loop takes for now.
        loop.call_at(loop.time() + 4 * math.ulp(loop.time()), over.set_result, None)
        await over


class _Whole(Node):
    """All of a node but its janitor: what is done stays to be looked at, and a month passes in seconds."""

    def _work(self) -> list[ChildSpec]:
        return [spec for spec in super()._work() if spec.id != "janitor"]


class _Noting(MemoryStore):
    """A store in memory that remembers what was put."""

    def __init__(self, puts: Puts) -> None:
        super().__init__()
        self._puts = puts

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        placed = await super().put(tasks, now=now, replace=replace)
        for task, where in zip(tasks, placed, strict=True):
            self._puts.note(where.id, task, now)
        return placed
