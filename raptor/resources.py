"""What services need open while they run, such as a pool of connections: opened before the first, closed after all.

Nothing is registered: a decorated function carries its Resource, and a node collects those of its modules.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.events import Events
from raptor.modules import file_of

Resource: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]
"""Gives what is entered when a worker starts, and left when it has stopped."""

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_S = 30.0


class Marked(NamedTuple):
    """What a decorated function carries."""

    name: str
    make: Resource


def resource(function: F) -> F:
    """Make an async generator function, or one that gives an async context manager, a resource of its module."""
    make: Any = asynccontextmanager(function) if inspect.isasyncgenfunction(function) else function
    carrier: Any = function
    carrier.resource = Marked(function.__name__, make)
    return function


def resources_of(modules: list[ModuleType]) -> dict[str, Resource]:
    """The resources that modules declare, by name."""
    found: dict[str, tuple[Resource, str]] = {}
    for module in modules:
        for thing in list(vars(module).values()):
            marked = getattr(thing, "__dict__", {}).get("resource") if inspect.isroutine(thing) else None
            if not isinstance(marked, Marked):
                continue
            make, place = found.setdefault(marked.name, (marked.make, file_of(module)))
            if make is not marked.make:
                raise BadInput(f"resource {marked.name!r} is defined twice: in {place} and in {file_of(module)}")
    return {name: make for name, (make, _) in found.items()}


@asynccontextmanager
async def opened(resources: Mapping[str, Resource], clock: Clock, events: Events) -> AsyncGenerator[dict[str, Any]]:
    """All of them by name, while it lasts. One that cannot be opened is tried again and again."""
    async with AsyncExitStack() as stack:
        yield {name: await _enter(stack, name, make, clock, events) for name, make in resources.items()}


async def _enter(stack: AsyncExitStack, name: str, make: Resource, clock: Clock, events: Events) -> Any:
    delay_s = 1.0
    while True:
        try:
            return await stack.enter_async_context(make())
        except Exception as error:  # the user's
            events.emit("resource_failing", resource=name, error=f"{type(error).__name__}: {error}")
        await clock.sleep(delay_s)
        delay_s = min(delay_s * 2, LONGEST_S)
