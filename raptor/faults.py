"""Named points at which a test may have the process killed: RAPTOR_FAULT=after_timing:2 kills at the second passing."""

from __future__ import annotations

import os
import signal
from collections import Counter

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


async def point(name: str) -> None:
    """Nothing, unless the environment asks for a kill here."""
    wanted = os.environ.get("RAPTOR_FAULT")
    if wanted is None:
        return
    where, _, count = wanted.partition(":")
    if where == name:
        _passed[name] += 1
        if _passed[name] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)
