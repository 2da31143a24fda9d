"""The unit of a Cycle: a service that is about to run for its slot."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from raptor.due import Due, rounded
from raptor.judge import judge
from raptor.lane import Lane
from raptor.rows import ServiceTiming
from raptor.runners import Context, Progress
from raptor.service import Service
from raptor.task import Result, Run, Verdict
from raptor.timetable import moved
from raptor.timing import Timing


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A service that is about to run for its slot."""

    due: Due
    run: Run
    timing: Timing
    row: ServiceTiming | None
    stepped: float = 0.0  # how far the clock had been set by then
    resources: Mapping[str, Any] = {}  # that are open
    may_start: Callable[[], bool] = lambda: True  # it may be another's by now

    @property
    def service(self) -> Service:
        return self.due.service

    def context(self, lane: Lane, on_progress: Callable[[Progress], None]) -> Context:
        run = self.run
        if not self.may_start():
            lane.cancel()
        return Context(
            run_id=run.id,
            service=run.service,
            scheduler=run.scheduler,
            attempt=run.attempt,
            planned=run.planned,
            key=f"{run.service}@{run.planned:.6f}",
            on_progress=on_progress,
            lane=lane,
            resources=self.resources,
        )

    def judge(self, result: Result, now: float, rng: random.Random) -> Verdict:
        return judge(self.due, self.timing, result, self.row, now=now, rng=rng)

    def by_the_clock(self, stepped: float) -> tuple[Due, ServiceTiming | None]:
        """What the run is judged by, if the clock was set while it ran."""
        step = stepped - self.stepped
        if not step or self.timing.every_s is None:
            return self.due, self.row
        planned, slot = rounded(self.due.planned + step), rounded(self.due.slot + step)
        due = msgspec.structs.replace(self.due, planned=planned, slot=slot)
        return due, None if self.row is None else moved(self.row, step)
