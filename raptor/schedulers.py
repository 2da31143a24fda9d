"""The supervisor of schedulers, and how each of them is kept."""

from __future__ import annotations

from typing import Any

from raptor.childspec import Backoff, ChildSpec
from raptor.scheduler import Scheduler
from raptor.supervisor import Supervisor
from raptor.workshop import Workshop


class Schedulers(Supervisor):
    """Starts every scheduler that should run: at first those that a crash cut off.

    On a store of many nodes only those that this one was asked to start: the others may run elsewhere.
    """

    def init(self, workshop: Workshop) -> Any:  # type: ignore[override]
        is_alone = workshop.timetable.store.exclusive
        wanted = [
            one for one in workshop.definitions.values() if one.should_run and (is_alone or one.name in workshop.asked)
        ]
        children = [spec_of(definition.name, workshop) for definition in wanted]
        return super().init(children, intensity=5, period_s=10.0, backoff=Backoff(initial_s=0.1, max_s=30.0))


def spec_of(name: str, workshop: Workshop) -> ChildSpec:
    """How a scheduler is kept: restarted after a crash, not after an end that was asked for."""
    return ChildSpec(
        id=name, start=Scheduler, args=(name, workshop), name=f"scheduler:{name}", restart="transient", shutdown=10.0
    )
