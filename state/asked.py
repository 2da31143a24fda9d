"""What a put takes of a task, and what no store accepts. The rest of a task begins as new."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from raptor.errors import BadInput
from raptor.task import Task

ASKED = (
    "queue", "service", "data", "priority", "due", "max_attempts", "key", "key_until", "parent", "active_s",
    "timeout_s", "timing",
)  # fmt: skip


def check(tasks: Iterable[Task]) -> None:
    """Raise BadInput for a task that could not be taken in its order."""
    for task in tasks:
        if not 0 <= task.priority <= 9:
            raise BadInput(f"a task's priority is 0 to 9, not {task.priority}")
        if not isfinite(task.due):
            raise BadInput(f"a task's due time is a number of seconds, not {task.due}")
