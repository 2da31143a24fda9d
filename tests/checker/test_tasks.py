"""The rules on tasks, one by one: a sound history passes, and each kind of damage is told."""

from __future__ import annotations

import msgspec
import pytest

from raptor.settlement import LAPSED
from raptor.task import State, Try
from raptor.testing.checker import (
    Bounds,
    Command,
    Declared,
    Dump,
    Fault,
    History,
    Image,
    Kept,
    Life,
    Line,
    Violation,
    check,
)
from raptor.testing.checker.history import What
from raptor.testing.checker.violation import Kind

replace = msgspec.structs.replace


def line(what: What, task: int, fence: int, life: int, at: float) -> Line:
    return Line(
        what=what, run=f"{task}.{fence}", service="quick", task=task, fence=fence, attempt=fence - 1, life=life, pid=1,
        planned=1.0, at=at,
    )  # fmt: skip


def put(task: int, due: float = 1.0) -> Command:
    return Command(what="put", at=0.9, acked=0.95, task=task, due=due)


LAPSE = Try(start=2.0, end=4.0, verdict="retry", info=LAPSED.info)
FAILURE = Try(start=2.0, end=4.0, verdict="retry", info="no")
PLAIN = Kept(id=1, service="quick", due=1.0, state=State.DONE, fence=1)
KILLED = Kept(id=2, service="quick", due=1.0, state=State.DONE, fence=2, history=(LAPSE,), attempts=1)
FAILED = Kept(
    id=3, service="doomed", due=1.0, state=State.DEAD, fence=2, history=(FAILURE,), attempts=2, max_attempts=2,
    reason="failed",
)  # fmt: skip
REPEATED = Kept(id=4, service="quick", due=1.0, state=State.DONE, fence=1, timing="{}", ended=2.5)
NEXT = Kept(id=5, service="quick", due=9.0, timing="{}", parent=4)
CUT_OFF = Kept(id=6, service="quick", due=1.0, state=State.CANCELLED, reason="cancelled")
TASKS = (PLAIN, KILLED, FAILED, REPEATED, NEXT, CUT_OFF)

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
CANCEL = Command(what="cancel", at=1.5, acked=1.6, task=6)
SOUND = History(
    lives=(Life(life=0, at=0.5, ended=3.5, killed=True), Life(life=1, at=3.6, ended=8.0)),
    commands=(*(put(id) for id in (1, 2, 3, 4, 6)), CANCEL),
    lines=LINES,
    images=(Image(at=3.5, seen=7, life=0, ended=(1, 4), taken=("owner",)),),
    dump=Dump(at=8.5, tasks=TASKS),
    bounds=Bounds(lanes=2, settle_s=1.0, run_s=1.0),
)


def with_tasks(*tasks: Kept) -> History:
    return replace(SOUND, dump=replace(SOUND.dump, tasks=tasks))


def with_task(task: Kept, **changes: object) -> History:
    return with_tasks(*(replace(one, **changes) if one is task else one for one in TASKS))


def with_lines(*more: Line) -> History:
    return replace(SOUND, lines=tuple(sorted([*LINES, *more], key=lambda one: one.at)))


def with_kills(*faults: Fault) -> History:
    """Other lives, none of them killed, and these faults."""
    return replace(SOUND, lives=(Life(life=0, at=0.5), Life(life=1, at=3.6)), faults=faults)


def test_a_sound_history_has_no_violation() -> None:
    assert check(SOUND) == []


GIVEN_UP = Kept(
    id=7, service="once", due=1.0, state=State.CANCELLED, fence=2, attempts=1, reason="interrupted",
    history=(replace(FAILURE, end=2.2),),
)  # fmt: skip
TWICE = (line("start", 7, 1, 0, 2.0), line("fail", 7, 1, 0, 2.2), line("start", 7, 2, 0, 3.1))
CHILD = Fault(what="child", at=2.15, life=0)
SOUND_TOO = {
    "a child that was killed is a failure": replace(
        with_kills(CHILD),
        dump=replace(
            SOUND.dump, tasks=tuple(replace(task, history=(FAILURE,)) if task is KILLED else task for task in TASKS)
        ),
    ),
    "a child was killed before its first word": replace(
        with_kills(CHILD),
        lines=tuple(one for one in LINES if one.run != "2.1"),
        dump=replace(
            SOUND.dump, tasks=tuple(replace(task, history=(FAILURE,)) if task is KILLED else task for task in TASKS)
        ),
    ),
    "a child was killed after its last word": replace(
        with_kills(replace(CHILD, at=2.9)),
        lines=(*LINES[:7], line("end", 2, 1, 0, 2.8), *LINES[7:]),
        dump=replace(
            SOUND.dump, tasks=tuple(replace(task, history=(FAILURE,)) if task is KILLED else task for task in TASKS)
        ),
    ),
    "a second run that began after an outage is given up": replace(
        SOUND,
        services=(Declared(name="once", on_crash="skip"),),
        faults=(Fault(what="outage", at=2.1, until=3.0),),
        lines=tuple(sorted((*LINES, *(replace(one, service="once") for one in TWICE)), key=lambda one: one.at)),
        dump=replace(SOUND.dump, tasks=(*TASKS, GIVEN_UP)),
    ),
    "a life that stood still begins what another has run": replace(
        with_kills(Fault(what="freeze", at=2.05, until=6.0, life=0)),
        lines=(*(one for one in LINES if one.run != "2.1"), line("start", 2, 1, 0, 6.3), line("cut", 2, 1, 0, 6.4)),
        images=(Image(at=5.5, seen=8, ended=(2,)),),
        bounds=replace(SOUND.bounds, shared=True),
    ),
    "a life that stood still loses what it ran": replace(
        with_kills(Fault(what="freeze", at=2.15, until=6.0, life=0)),
        lines=(*LINES, line("cut", 2, 1, 0, 6.2)),
        bounds=replace(SOUND.bounds, shared=True),
    ),
    "what came due just now is pending": with_tasks(*TASKS, replace(NEXT, id=7, due=7.9, timing=None)),
}


@pytest.mark.parametrize("name", SOUND_TOO)
def test_a_history_is_sound_as_well_when(name: str) -> None:
    assert check(SOUND_TOO[name]) == []


DAMAGED: dict[str, tuple[History, Kind, str]] = {
    "a lost task": (with_tasks(*TASKS[1:]), "lost", "task 1: it was acknowledged and is gone"),
    "one left over": (with_task(PLAIN, state=State.READY, fence=0), "stuck", "it is ready in the end"),
    "one that is taken for ever": (with_task(KILLED, state=State.TAKEN), "stuck", "it is taken in the end"),
    "one that was cancelled unasked": (
        replace(SOUND, commands=SOUND.commands[:-1]),
        "lost",
        "task 6 (quick): it is cancelled (cancelled), and nobody asked for that",
    ),
    "done without a run": (
        replace(SOUND, lines=LINES[3:]),
        "unfounded",
        "task 1 (quick): done, and its run 1 says nothing",
    ),
    "done by a run that failed": (
        with_task(FAILED, state=State.DONE, attempts=1),
        "unfounded",
        "done, and its run 2 says fail",
    ),
    "done by a run that was not the last": (
        with_task(PLAIN, fence=2, history=(Try(start=2.0, end=2.3, verdict="again"),)),
        "stale",
        "done, and its run 2 says nothing",
    ),
    "a run after the end": (
        with_lines(line("start", 1, 2, 1, 7.0), line("end", 1, 2, 1, 7.1)),
        "repeated",
        "task 1: it had ended by 3.5, and ran in life 1",
    ),
    "two results": (
        with_lines(line("start", 1, 2, 0, 2.21), line("end", 1, 2, 0, 2.22)),
        "fence",
        "task 1 (quick): runs [1, 2], and the row says 1",
    ),
    "a fence used twice": (
        with_lines(line("start", 2, 2, 1, 7.0), line("end", 2, 2, 1, 7.1)),
        "duplicate",
        "run 2.2 began twice",
    ),
    "two runs at a time": (
        with_lines(line("start", 1, 2, 0, 2.1)),
        "overlap",
        "task 1: run 1.1 went on when 1.2 had begun",
    ),
    "a copy that outlived its node": (
        with_lines(line("end", 2, 1, 0, 5.05)),
        "overlap",
        "task 2: run 2.1 went on when 2.2 had begun",
    ),
    "a lapse without a kill": (with_kills(), "unfounded", "run 1 lapsed, and life 0 was not disturbed"),
    "a lapse that is free": (
        with_task(KILLED, history=(replace(LAPSE, verdict="again"),), attempts=0),
        "attempts",
        "task 2 (quick): it lapsed, which is again and cost no attempt",
    ),
    "a retry without a failure": (
        with_task(KILLED, history=(FAILURE,)),
        "unfounded",
        "task 2 (quick): a try that failed, and its run says nothing",
    ),
    "a run that no try tells of": (
        with_task(KILLED, history=(), attempts=0),
        "unaccounted",
        "task 2 (quick): run 1 of life 0 is in no try of the row",
    ),
    "an attempt too many": (with_task(KILLED, attempts=2), "attempts", "2 attempts, for 1 that failed or lapsed"),
    "attempts beyond the limit": (with_task(KILLED, max_attempts=1), "attempts", "done after 1 attempts of 1"),
    "given up before the limit": (with_task(FAILED, max_attempts=3), "attempts", "failed after 2 attempts of 3"),
    "a run that was told a wrong count": (
        replace(SOUND, lines=tuple(replace(one, attempt=7) if one.run == "2.1" else one for one in LINES)),
        "attempts",
        "run 1 was told of 7 failures, after 0",
    ),
    "a series that stops": (with_tasks(*TASKS[:4], CUT_OFF), "series", "task 4: it is done and has 0 successors"),
    "a series that forks": (
        with_tasks(*TASKS, replace(NEXT, id=7)),
        "series",
        "task 4: it is done and has 2 successors",
    ),
    "a series that runs ahead": (with_task(NEXT, due=2.0), "series", "task 4: its successor 5 is due at 2.0"),
    "more taken than lanes": (
        replace(SOUND, images=(replace(SOUND.images[0], taken=("owner",) * 3),)),
        "extra",
        "owner owner: 3 tasks were taken at 3.5, for 2 lanes",
    ),
    "more repeated than lanes": (
        replace(SOUND, bounds=replace(SOUND.bounds, lanes=0)),
        "extra",
        "1 runs too many, for 1 disturbances of 0 lanes",
    ),
    "an early run": (
        replace(SOUND, lines=(replace(LINES[0], planned=2.5), *LINES[1:])),
        "early",
        "task 1: run 1 began 0.5 s early",
    ),
    "a run before its time": (
        replace(SOUND, commands=(put(1, due=1.5), *SOUND.commands[1:])),
        "early",
        "task 1: it was put for 1.5, and ran for 1.0",
    ),
    "an end without a start": (with_lines(line("end", 9, 1, 0, 2.0)), "order", "run 9.1 ended, and had not begun"),
    "a run that ended twice": (with_lines(line("end", 1, 1, 0, 2.3)), "duplicate", "run 1.1 ended twice"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_history_is_told(damage: str) -> None:
    history, kind, text = DAMAGED[damage]
    found = check(history)
    assert any(one.kind == kind and text in str(one) for one in found), found


def test_a_violation_reads_as_a_line() -> None:
    assert str(Violation("lost", "task 1", "it is gone")) == "lost: task 1: it is gone"
