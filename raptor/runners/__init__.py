"""How services are run: the protocol of runners, the context of a run, and the kinds of runners by name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raptor.errors import BadInput

if TYPE_CHECKING:
    from raptor.clock import Clock
    from raptor.runners.output import RunLog
    from raptor.service import Service
    from raptor.task import Result

DEFAULT_TIMEOUT_S = 3600.0


class Progress(NamedTuple):
    """How far a run has come, by its own word."""

    done: float
    total: float | None
    text: str


def _unheard(progress: Progress) -> None:
    """Nobody asked for progress."""


_SILENT = logging.Logger("raptor.service", logging.CRITICAL + 1)


@dataclass(frozen=True, kw_only=True)
class Context:
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

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell how far the work has come. Cheap: what nobody has looked at yet is replaced."""
        self.on_progress(Progress(float(done), None if total is None else float(total), str(text)))


class Runner(Protocol):
    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
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


RUNNERS: dict[str, Callable[[Clock], Runner]] = {"python": _python, "command": _command}
"""By `Service.kind`. Each is imported when it is used."""


def check(service: Service) -> None:
    """Refuse, as BadInput, a service that its runner could never run."""
    if service.kind == "python":
        from raptor.runners import python

        python.check(service)
    elif service.kind == "command":
        from raptor.runners import command

        command.check(service)
    elif service.kind not in RUNNERS:
        raise BadInput(f"service {service.name!r}: kind: {service.kind!r} is none of {', '.join(RUNNERS)}")


def time_limit(service: Service) -> float | None:
    """Seconds that a run may take; None: for ever."""
    return DEFAULT_TIMEOUT_S if service.timeout_s is None else service.timeout_s or None
