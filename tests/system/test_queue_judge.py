"""The judge of histories: a sound one passes, and each kind of damage is told."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from raptor.settlement import LAPSED
from raptor.task import State, Task, Try
from tests.system.queue_judge import Ack, Death, Line, Story


def line(what: str, task: int, fence: int, life: int, at: float) -> Line:
    return Line(what=what, task=task, fence=fence, attempt=fence - 1, life=life, pid=1, planned=1.0, at=at)


LAPSE = Try(start=2.0, end=4.0, verdict="retry", info=LAPSED.info)
FAILURE = Try(start=2.0, end=4.0, verdict="retry", info="no")
PLAIN = Task(id=1, service="quick", due=1.0, state=State.DONE, fence=1)
KILLED = Task(id=2, service="quick", due=1.0, state=State.DONE, fence=2, history=(LAPSE,), attempts=1)
FAILED = Task(
    id=3, service="doomed", due=1.0, state=State.DEAD, fence=2, history=(FAILURE,), attempts=2, reason="failed"
)
REPEATED = Task(id=4, service="quick", due=1.0, state=State.DONE, fence=1, timing="{}")
NEXT = Task(id=5, service="quick", due=9.0, timing="{}", parent=4)

LINES = (
    line("start", 1, 1, 0, 2.0),
    line("start", 2, 1, 0, 2.1),
    line("end", 1, 1, 0, 2.2),
    line("start", 4, 1, 0, 2.3),
    line("end", 4, 1, 0, 2.4),
    line("start", 3, 1, 0, 2.5),
    line("fail", 3, 1, 0, 2.6),
    line("start", 2, 2, 1, 5.0),
    line("end", 2, 2, 1, 5.1),
    line("start", 3, 2, 1, 6.0),
    line("fail", 3, 2, 1, 6.1),
)
SOUND = Story(
    acks=[Ack(id, 1.0, True) for id in (1, 2, 3, 4)],
    lines=LINES,
    tasks=[PLAIN, KILLED, FAILED, REPEATED, NEXT],
    deaths=[Death(0, frozenset({1, 4}), ("owner",))],
    lanes=2,
)


def with_task(task: Task, **changes: object) -> Story:
    changed = msgspec.structs.replace(task, **changes)
    return replace(SOUND, tasks=[changed if one is task else one for one in SOUND.tasks])


def with_lines(*more: Line) -> Story:
    return replace(SOUND, lines=sorted([*LINES, *more], key=lambda one: one.at))


def test_a_sound_history_has_no_complaint() -> None:
    assert SOUND.complaints() == []


DAMAGED = {
    "a lost task": (replace(SOUND, tasks=SOUND.tasks[1:]), "task 1 was acknowledged and is gone"),
    "one left over": (with_task(PLAIN, state=State.READY, fence=0), "task 1 (quick) ended as ready"),
    "one that is taken for ever": (with_task(KILLED, state=State.TAKEN), "task 2 (quick) ended as taken"),
    "done without a run": (replace(SOUND, lines=LINES[3:]), "task 1 (quick): done, and its run 1 says None"),
    "done by a run that failed": (with_task(FAILED, state=State.DONE, attempts=1), "done, and its run 2 says fail"),
    "a run after the end": (
        with_lines(line("start", 1, 2, 1, 7.0), line("end", 1, 2, 1, 7.1)),
        "task 1 had ended in life 0, and ran in life 1",
    ),
    "two results": (
        with_lines(line("start", 1, 2, 0, 2.21), line("end", 1, 2, 0, 2.22)),
        "task 1 (quick): runs [1, 2], and the row says 1",
    ),
    "a fence used twice": (
        with_lines(line("start", 2, 2, 1, 7.0), line("end", 2, 2, 1, 7.1)),
        "task 2 (quick): runs [1, 2, 2], and the row says 2",
    ),
    "two runs at a time": (
        with_lines(line("start", 1, 2, 0, 2.1)),
        "task 1: run 2 began while 1 ran",
    ),
    "a copy that outlived its node": (
        with_lines(line("end", 2, 1, 0, 5.05)),
        "task 2: run 1 ended, and was not the one that ran",
    ),
    "a lapse without a kill": (replace(SOUND, deaths=[]), "run 1 lapsed, and life 0 was not killed"),
    "a lapse that is free": (
        with_task(KILLED, history=(msgspec.structs.replace(LAPSE, verdict="again"),), attempts=0),
        "task 2 (quick): it lapsed, which is again and cost no attempt",
    ),
    "a retry without a failure": (
        with_task(KILLED, history=(FAILURE,)),
        "task 2 (quick): a try that failed, and its run: [None]",
    ),
    "a run that no try tells of": (
        with_task(KILLED, history=(), attempts=0),
        "task 2 (quick): run 1 of life 0 is in no try of the row",
    ),
    "an attempt too many": (with_task(KILLED, attempts=2), "2 attempts, for 1 that failed or lapsed"),
    "a series that stops": (replace(SOUND, tasks=SOUND.tasks[:-1]), "task 4 is done and has 0 successors"),
    "a series that forks": (
        replace(SOUND, tasks=[*SOUND.tasks, msgspec.structs.replace(NEXT, id=6)]),
        "task 4 is done and has 2 successors",
    ),
    "more taken than lanes": (
        replace(SOUND, deaths=[replace(SOUND.deaths[0], taken=("owner",) * 3)]),
        "life 0: 3 tasks were taken by owner, for 2 lanes",
    ),
    "more repeated than lanes": (replace(SOUND, lanes=0), "1 runs too many, for 1 kills of 0 lanes"),
    "an early run": (
        replace(SOUND, lines=[replace(LINES[0], planned=2.5), *LINES[1:]]),
        "task 1: run 1 began 0.5 s early",
    ),
    "a run before its time": (
        replace(SOUND, acks=[Ack(1, 1.5, True), *SOUND.acks[1:]]),
        "task 1 was put for 1.5, and ran for 1.0",
    ),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_history_is_told(damage: str) -> None:
    story, complaint = DAMAGED[damage]
    assert any(complaint in told for told in story.complaints()), story.complaints()
