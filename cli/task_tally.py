"""Task events as records: one each while there are few, and in a flood one a second that counts them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raptor.cli.chronicle import Record

if TYPE_CHECKING:
    from raptor.events import Event
    from raptor.task import Move, Result, Task, Verdict

TASKS = ("task_started", "task_ended", "task_cancelled", "result_refused")
"""The events that are heard."""

MOST = 20  # records of a second
BAD = 5  # of those that died, whatever else there is
COUNTED = {"done": "ok", "retry": "to_retry", "again": "given_back", "failed": "dead", "missed": "dead"}


class Tally:
    """Hears the tasks of a node. It belongs to one event loop."""

    def __init__(self, put: Callable[[Record], None], now: Callable[[], float]) -> None:
        self.ended: Counter[str] = Counter()  # what became of them, from the start on
        self._put = put
        self._now = now
        self._heard = self._told_bad = 0  # in this second
        self._left: Counter[str] = Counter()  # what was not told in this second
        self._flooded = False
        self._second: asyncio.TimerHandle | None = None

    def hear(self, event: Event) -> None:
        what = _what(event)
        if what != "begun":
            self.ended[what] += 1
        self._heard += 1
        if self._second is None:
            self._second = asyncio.get_running_loop().call_later(1.0, self._tick)
        if self._may_tell(what):
            self._put(record_of_task(event))
        else:
            self._left[what] += 1

    def _may_tell(self, what: str) -> bool:
        if what in ("dead", "refused") and self._told_bad < BAD:
            self._told_bad += 1
            return True
        return not self._flooded and self._heard <= MOST

    def close(self) -> None:
        """The last of it."""
        if self._second is not None:
            self._second.cancel()
            self._second = None
        self._count()

    def _tick(self) -> None:
        self._count()
        self._flooded = self._heard > MOST
        going_on = self._heard > 0
        self._heard = self._told_bad = 0
        self._second = asyncio.get_running_loop().call_later(1.0, self._tick) if going_on else None

    def _count(self) -> None:
        if self._left:
            self._put({"at": self._now(), "event": "tasks_counted", **self._left})
            self._left.clear()


def _what(event: Event) -> str:
    match event.name:
        case "task_started":
            return "begun"
        case "task_ended":
            verdict: Any = event.facts["verdict"]
            return COUNTED.get(_tag(verdict), "cancelled")
        case "result_refused":
            return "refused"
        case _:
            return "cancelled"


def record_of_task(event: Event) -> Record:
    """An event about a task as plain values."""
    facts: dict[str, Any] = dict(event.facts)
    task: Task = facts["task"]
    made: Record = {"at": event.at, "event": event.name, "task": task.id, "queue": task.queue, "service": task.service}
    made |= {"attempt": task.attempts + 1, "max_attempts": task.max_attempts}
    if event.name == "task_ended":
        made |= _ended(event.at, task, facts["result"], facts["verdict"], facts["move"])
    elif event.name == "task_cancelled":
        made["reason"] = str(facts.get("reason") or "")
    return made


def _ended(at: float, task: Task, result: Result, verdict: Verdict, move: Move) -> Record:
    made: Record = {"verdict": _tag(verdict), "outcome": str(result.outcome), "info": result.info}
    made["reason"] = move.reason
    made["took_s"] = None if task.started is None else max(at - task.started, 0.0)
    if move.ended is None:
        made["retry_at"] = move.due
    if move.successor is not None:
        made["next_due"] = move.successor.due
    return made


def _tag(verdict: Verdict) -> str:
    return str(verdict.__struct_config__.tag)
