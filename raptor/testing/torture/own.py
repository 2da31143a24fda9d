"""A user's own services under torture: their settings on scratch state, with lines written around each run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from raptor.clock import Clock
from raptor.config import Config, Log, MetricsSettings
from raptor.payload import form_of
from raptor.runners import RUNNERS, Closing, Context, Runner
from raptor.runners.output import RunLog
from raptor.service import Service
from raptor.task import VERDICTS, Outcome, Result
from raptor.testing.checker.history import Asked, Fault, What
from raptor.testing.torture.services import FAULTS, LIFE, note, now
from raptor.testing.torture.writing import append
from raptor.timing import has_timing


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """Where a user's services are found."""

    modules: tuple[str, ...]
    file: str | None = None  # the raptor.toml


def settings(own: Own, flags: Mapping[str, object]) -> Config:
    """As the user has them, but for what is written and where it answers: nothing of theirs is touched."""
    config = Config.load({**flags, "module": list(own.modules), "config": own.file})
    home, store = Path(str(flags["home"])), flags.get("store")
    return msgspec.structs.replace(
        config, home=home, store=None if store is None else str(store), log=Log(), metrics=MetricsSettings()
    )


def schedules(config: Config, services: Iterable[Service]) -> dict[str, tuple[str | None, list[str]]]:
    """Schedulers of raptor.toml; without any, one for all services that say themselves when they run."""
    if config.schedulers:
        return {one.name: (None, [entry.name for entry in one.services]) for one in config.schedulers}
    timed = [service.name for service in services if has_timing(service)]
    return {"main": ("auto", timed)} if timed else {}


def alone(services: Iterable[Service]) -> list[str]:
    """Those that need no data, and can be put as tasks."""
    return [
        service.name
        for service in services
        if service.kind in ("python", "command")
        and service.batch is None
        and not form_of(service.function, False).required
    ]


class Noted:
    """A runner that writes lines around whatever it runs."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        note("start", context)
        try:
            result = await self._runner.run(service, context, log)
        except asyncio.CancelledError:
            note("cut", context)
            raise
        if result.died:
            append(os.environ[FAULTS], Fault(what="child", at=now(), life=int(os.environ[LIFE])))
        else:
            note(*_line(result, context))
        return result

    async def close(self) -> None:
        if isinstance(self._runner, Closing):
            await self._runner.close()


def _line(result: Result, context: Context) -> tuple[What, Context, Asked]:
    if result.outcome is Outcome.OK:
        asked = "" if result.decision is None else VERDICTS[type(result.decision)]
        return "end", context, msgspec.convert(asked, Asked)
    return "cut" if result.outcome is Outcome.INTERRUPTED else "fail", context, ""


def note_all_runs() -> None:
    """From now on, in this process."""

    def noting(make: Callable[[Clock], Runner]) -> Callable[[Clock], Runner]:
        return lambda clock: Noted(make(clock))

    RUNNERS.update({kind: noting(make) for kind, make in RUNNERS.items()})
