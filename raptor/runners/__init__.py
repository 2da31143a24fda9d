"""How services are run: the protocol of runners, the context of a run, and the kinds of runners by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from raptor.errors import BadInput
from raptor.task import Again, Dead, Retry

if TYPE_CHECKING:
    from pathlib import Path

    from raptor.clock import Clock
    from raptor.lane import Lane
    from raptor.runners.output import RunLog
    from raptor.service import Service
    from raptor.task import Result, Task

DEFAULT_TIMEOUT_S = 3600.0
DEFAULT_TIMEOUTS_S = {"http": 30.0, "publish": 30.0}


class Progress(NamedTuple):
    """How far a run has come, by its own word."""

    done: float
    total: float | None
    text: str


def _unheard(progress: Progress) -> None:
    """Nobody asked for progress."""


_SILENT = logging.Logger("raptor.service", logging.CRITICAL + 1)


class Context(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a service may know of its run: handed over when it has a parameter `ctx`, or one annotated Context."""

    run_id: str
    service: str
    scheduler: str | None = None
    attempt: int = 1
    planned: float  # the slot, UTC seconds since the epoch
    key: str  # the same for every attempt of a slot: for work that must not happen twice
    log: logging.Logger = _SILENT  # goes into the run's output; the runner puts it in place
    data: Any = None
    on_progress: Callable[[Progress], None] = _unheard  # called on the event loop
    lane: Lane | None = None  # that it runs in; None: in one of its own
    task: Task | None = None  # of a queue, rather than a slot
    desk: Desk | None = None  # where tasks are put
    resources: Mapping[str, Any] = MappingProxyType({})  # what the node keeps open, by name; not in a process apart

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell how far the work has come. Cheap: what nobody has looked at yet is replaced."""
        self.on_progress(Progress(float(done), None if total is None else float(total), str(text)))

    def put(self, service: str | Callable[..., Any], data: Any = None, **options: Any) -> Any:
        """Put a task, whose parent this one is. To be awaited on the event loop; in a thread it blocks."""
        if self.desk is None:
            raise RuntimeError("this run has no node to put tasks into")
        parent = None if self.task is None else self.task.id
        return self.desk.put_from(service, data, parent=parent, **options)

    def retry(self, in_s: float | None = None, *, at: float | None = None) -> Retry:
        """To be returned: run it again, at a time or after so many seconds. It counts as an attempt."""
        return Retry(self._when(in_s, at))

    def again(self, in_s: float | None = None, *, at: float | None = None) -> Again:
        """To be returned: run it again, at a time or after so many seconds, and count no attempt."""
        return Again(self._when(in_s, at))

    def give_up(self, reason: str) -> Dead:
        """To be returned: no more tries; it goes to the dead ones."""
        return Dead(reason)

    def _when(self, in_s: float | None, at: float | None) -> float:
        if in_s is not None and at is not None:
            raise ValueError("a time and a delay: give one of them")
        if at is not None:
            return at
        return (self.planned if self.desk is None else self.desk.now()) + (in_s or 0.0)


class Desk(Protocol):
    """What a run may ask of its node."""

    home: Path | None  # whose socket a process of its own can ask

    def put_from(self, service: str | Callable[..., Any], data: Any, **options: Any) -> Any: ...

    def now(self) -> float: ...


class Runner(Protocol):
    def run(self, service: Service, context: Context, log: RunLog) -> Coroutine[Any, Any, Result]:
        """Run a service once.

        What the service does never raises here: it is in the result. A cancellation ends the work first, within a
        bound of a few seconds, and is raised again; a second one ends it at once.
        """
        ...


def _python(clock: Clock) -> Runner:
    from raptor.runners.python import PythonRunner

    return PythonRunner(clock)


def _command(clock: Clock) -> Runner:
    from raptor.runners.command import CommandRunner

    return CommandRunner(clock)


def _http(clock: Clock) -> Runner:
    from raptor.runners.http import HttpRunner

    return HttpRunner(clock)


def _publish(clock: Clock) -> Runner:
    from raptor.runners.publish import PublishRunner

    return PublishRunner(clock)


RUNNERS: dict[str, Callable[[Clock], Runner]] = {
    "python": _python, "command": _command, "http": _http, "publish": _publish
}  # fmt: skip
"""By `Service.kind`. Each is imported when it is used."""


def check(service: Service) -> None:
    """Refuse, as BadInput, a service that its runner could never run."""
    if service.kind == "python":
        from raptor.runners import python

        python.check(service)
    elif service.kind == "command":
        from raptor.runners import command

        command.check(service)
    elif service.kind == "http":
        from raptor.runners import http

        http.check(service)
    elif service.kind == "publish":
        from raptor.runners import publish

        publish.check(service)
    else:
        raise BadInput(f"service {service.name!r}: kind: {service.kind!r} is none of {', '.join(RUNNERS)}")


def time_limit(service: Service) -> float | None:
    """Seconds that a run may take; None: for ever."""
    default = DEFAULT_TIMEOUTS_S.get(service.kind, DEFAULT_TIMEOUT_S)
    return default if service.timeout_s is None else service.timeout_s or None


@runtime_checkable
class Closing(Protocol):
    """A runner that keeps something open between runs."""

    async def close(self) -> None: ...


async def close_runners(runners: Iterable[Runner]) -> None:
    """Close what is open, when nothing runs any more. It takes a few seconds at most, whoever does not answer."""
    for runner in runners:
        if isinstance(runner, Closing):
            await runner.close()
