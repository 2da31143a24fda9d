"""The one table of commands behind every door: socket, embedded handle, command line.

Each is a function of a Site and JSON values, and answers in JSON values; its module is imported when it is performed,
so that a command that only reads does without the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_type_hints

import msgspec

from raptor.errors import (
    AlreadyRunning,
    BadInput,
    BadSpec,
    CallTimeout,
    NoSuchName,
    NotRunning,
    NotWritten,
    RefusedState,
)

if TYPE_CHECKING:
    from raptor.commands.answers import Answer
    from raptor.site import Site

VAR_KEYWORD: Final = Parameter.VAR_KEYWORD

Needs: TypeAlias = Literal["look", "read", "write", "node"]
"""What a command works on: the rows of the tables, which takes no event loop; the whole store; the same to write; or a
node that runs."""


class Command(NamedTuple):
    """One command: where its function is, and what it needs."""

    place: str  # module:function, in this package
    needs: Needs
    shared: Needs | None = None  # on a store of many nodes, if that is something else

    def load(self) -> Callable[..., Awaitable[Answer]]:
        module, _, function = self.place.partition(":")
        found: Callable[..., Awaitable[Answer]] = getattr(import_module(f"{__name__}.{module}"), function)
        return found


COMMANDS: dict[str, Command] = {
    "start": Command("running:start", "node"),
    "schedule": Command("writing:schedule", "write"),
    "status": Command("reading:status", "look"),
    "stop": Command("running:stop", "node", shared="write"),
    "pause": Command("writing:pause", "write"),
    "resume": Command("writing:resume", "write"),
    "run": Command("running:run", "write"),
    "next": Command("reading:preview", "look"),
    "history": Command("reading:history", "read"),
    "why": Command("reading:why", "read"),
    "tree": Command("running:show_tree", "node", shared="read"),
    "reload": Command("running:reload", "node"),
    "dump": Command("reading:dump", "look"),
    "reset": Command("writing:reset", "write"),
    "config": Command("reading:settings", "look"),
    "put": Command("tasks:put", "write"),
    "tasks": Command("tasks:tasks", "read"),
    "task": Command("tasks:task", "read"),
    "wait": Command("tasks:wait", "node", shared="read"),
    "cancel": Command("tasks:cancel", "write"),
    "retry": Command("tasks:retry", "write"),
    "drop": Command("tasks:drop", "write"),
    "queues": Command("tasks:queues", "read"),
    "queue": Command("tasks:queue", "write"),
}


def find(name: str) -> Command:
    """The command of that name; an unknown one is refused like any bad name."""
    if name not in COMMANDS:
        raise NoSuchName("command", name, COMMANDS)
    return COMMANDS[name]


def load_all() -> None:
    """Import every command now."""
    for command in COMMANDS.values():
        command.load()


async def perform(site: Site, name: str, params: dict[str, Any]) -> Answer:
    """Run a command of the table; wrong names and parameters are refused like any bad input."""
    run = find(name).load()
    given = {key: _fitting(name, key, value, run) for key, value in params.items()}
    try:
        work = run(site, **given)
    except TypeError as error:
        raise BadInput(f"{name}: {error}") from None
    return await work


def _fitting(command: str, name: str, value: Any, run: Callable[..., Awaitable[Answer]]) -> Any:
    """A value as its parameter is annotated; whoever asks may have sent anything."""
    try:
        return msgspec.convert(value, _kinds(run).get(name, Any))
    except msgspec.ValidationError as error:
        raise BadInput(f"{command}: {name}: {error}") from None


@cache
def _kinds(run: Callable[..., Awaitable[Answer]]) -> dict[str, Any]:
    """Of the named parameters, not of those that are taken as they come."""
    named = [parameter.name for parameter in signature(run).parameters.values() if parameter.kind is not VAR_KEYWORD]
    hints = get_type_hints(run, include_extras=True)
    return {name: hints[name] for name in named}


def exit_code(error: BaseException) -> int:
    """What the command line ends with."""
    match error:
        case BadInput() | BadSpec():
            return 2
        case NotRunning() | NotWritten(reason="unreachable"):
            return 3
        case NoSuchName():
            return 4
        case AlreadyRunning():
            return 5
        case RefusedState() | NotWritten() | PermissionError():
            return 6
        case CallTimeout():
            return 124
        case _:
            return 1
