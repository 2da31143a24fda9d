"""One task, or a batch of them, on its way through a lane."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from raptor.lane import Lane
from raptor.runners import Context, Desk, Progress
from raptor.service import Service
from raptor.settlement import judge_task
from raptor.task import Done, Result, Task, Verdict

NONE: frozenset[int] = frozenset()


class Assignment(msgspec.Struct, eq=False):
    """Tasks that one run is for: a single one, but for a batch handler."""

    service: Service
    tasks: Sequence[Task]
    values: Sequence[Any]  # their data, decoded
    desk: Desk
    resources: Mapping[str, Any]
    run: str
    queue: str
    lease: float  # until when it is ours, for sure
    each: list[tuple[Result, Verdict]] | None = None  # what became of each of a batch
    lane: Lane | None = None  # what to cancel
    unwanted: frozenset[int] = NONE  # cancelled by command: their results are dropped
    gone: frozenset[int] = NONE  # those, and whose lease is another's

    def context(self, lane: Lane, on_progress: Callable[[Progress], None]) -> Context:
        self.lane = lane
        if self.gone:
            self._end_if_all_gone()
        if self.desk.now() > self.lease:  # it waited for a store that did not answer: it may be another's by now
            lane.cancel()
        task = self.tasks[0]
        return Context(
            run_id=self.run,
            service=self.service.name,
            attempt=task.attempts,
            planned=task.due,
            key=f"task {task.id}",
            data=self.values[0] if self.service.batch is None else list(self.values),
            on_progress=on_progress,
            lane=lane,
            task=task,
            desk=self.desk,
            resources=self.resources,
        )

    def let_go(self, id: int, *, unwanted: bool = False) -> None:
        """Nobody waits for this one. A batch goes on for the others; without any the run is ended, once."""
        if unwanted:
            self.unwanted |= {id}
        if id not in self.gone:
            self.gone |= {id}
            self._end_if_all_gone()

    def _end_if_all_gone(self) -> None:
        if self.lane is not None and len(self.gone) == len(self.tasks):
            self.lane.cancel()

    def judge(self, result: Result, now: float, rng: random.Random) -> Verdict:
        """Of a batch the first that is not done stands for all; `each` has them one by one."""
        if self.service.batch is None:
            return judge_task(self.tasks[0], self.service, result, now, rng)
        shares = _shares(result, len(self.tasks))
        self.each = [
            (share, judge_task(task, self.service, share, now, rng))
            for task, share in zip(self.tasks, shares, strict=True)
        ]
        return next((verdict for _, verdict in self.each if not isinstance(verdict, Done)), Done())


def _shares(result: Result, count: int) -> list[Result]:
    """A batch handler may answer with a list: a value, or a verdict, for each task."""
    answer = cast("list[Any]", result.value)
    values = answer if isinstance(result.value, list) and len(answer) == count else [None] * count
    return [
        msgspec.structs.replace(result, value=None, decision=value)
        if isinstance(value, Verdict)
        else msgspec.structs.replace(result, value=value)
        for value in values
    ]
