"""What excuses a run, and the nearest history that it must not excuse."""

from __future__ import annotations

import msgspec
import pytest

from raptor.testing.checker import Fault, History, Life, check
from tests.checker.test_tasks import FAILURE, KILLED, LINES, SOUND, TASKS, line

replace = msgspec.structs.replace
FAILED_TRY = replace(
    SOUND.dump, tasks=tuple(replace(task, history=(FAILURE,)) if task is KILLED else task for task in TASKS)
)


def with_child(pid: int, *, silent: bool = False) -> History:
    """The process of somebody was killed, and the try of task 2 failed; lines are of process 1."""
    return replace(
        SOUND,
        lives=(Life(life=0, at=0.5, pid=7), Life(life=1, at=3.6, pid=8)),
        faults=(Fault(what="child", at=2.15, life=0, pid=pid),),
        lines=tuple(one for one in LINES if not silent or one.run != "2.1"),
        dump=FAILED_TRY,
    )


def with_end(late_s: float) -> History:
    """Task 2 had ended 1.3 s before its node was killed, and ran again."""
    return replace(
        SOUND,
        lines=(*LINES[:3], line("end", 2, 1, 0, 2.2), *LINES[3:]),
        images=(),
        bounds=replace(SOUND.bounds, late_s=late_s),
    )


@pytest.mark.parametrize(
    ("sound", "bad", "told"),
    [
        (with_child(1), with_child(99), "a try that failed, and its run says nothing"),
        (with_child(99, silent=True), with_child(1, silent=True), "a try that failed, and its run says nothing"),
        (with_end(1.0), with_end(0.1), "run 1 lapsed, and life 0 was not disturbed"),
    ],
    ids=["its own process was killed", "one that had said nothing was killed", "its end was not recorded yet"],
)
def test_an_excuse_holds_for_its_reason_and_no_further(sound: History, bad: History, told: str) -> None:
    assert check(sound) == []
    assert any(told in str(one) for one in check(bad)), check(bad)
