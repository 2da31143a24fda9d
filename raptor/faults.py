"""Named points at which a test may have the process killed: RAPTOR_FAULT=after_timing:2 kills at the second passing."""

from __future__ import annotations

import os
import signal
from collections import Counter
from functools import cache

_passed: Counter[str] = Counter()

POINTS = (
    "before_state",
    "after_state",
    "before_timing",
    "after_timing",
    "before_ledger",
    "before_delete",
    "after_delete",
)
TASK_POINTS = ("before_put", "after_put", "before_take", "after_take", "before_settle", "after_settle")


@cache
def _wanted() -> str | None:
    return os.environ.get("RAPTOR_FAULT")


def point(name: str) -> None:
    """Nothing, unless the environment asked for a kill here when the process began."""
    wanted = _wanted()
    if wanted is None:
        return
    where, _, count = wanted.partition(":")
    if where == name:
        _passed[name] += 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
