"""What excuses a run, and the nearest history that it must not excuse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from raptor.rows import Definition, Ended, Scheduled, SchedulerState, ServiceTiming
from raptor.service import Overlap
from raptor.task import Run, Slot, State, Try
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
    Unrecorded,
    check,
)
from raptor.testing.checker.history import What
from tests.checker.test_tasks import CANCEL, FAILURE, KILLED, LINES, REPEATED, SOUND, TASKS, line

replace = msgspec.structs.replace
FAILED_TRY = replace(
    SOUND.dump, tasks=tuple(replace(task, history=(FAILURE,)) if task is KILLED else task for task in TASKS)
)

NEVER_RAN = "missed: s: no run from 0.0 to 30.0"


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


def with_first_slot(planned: float, life: int = 1) -> History:
    """A service that passes over what it missed runs in a life that began at 2.0000004, or in the one after it."""
    line = Line(what="start", run="1", service="s", scheduler="main", life=life, planned=planned, at=2.1)
    return History(
        services=(Declared(name="s", missed="skip", every_s=10.0),),
        lives=(Life(life=0, at=0.5, ended=1.0), Life(life=1, at=2.0000004, ended=2.05), Life(life=2, at=2.06)),
        lines=(line, replace(line, what="end", at=2.2)),
        dump=Dump(at=2.5),
        bounds=Bounds(),
    )


def with_wait(overlap: Overlap) -> History:
    """Two slots of a pass while another scheduler runs what stands on the list with it."""

    def define(name: str, *services: str) -> Command:
        listed = tuple(Scheduled(name=service) for service in services)
        return Command(
            what="define", at=0.0, acked=0.0, definition=Definition(name=name, services=listed, should_run=True)
        )

    def ran(service: str, scheduler: str, planned: float, at: float, until: float) -> list[Line]:
        line = Line(what="start", run=f"{service}{at}", service=service, scheduler=scheduler, planned=planned, at=at)
        return [line, replace(line, what="end", at=until)]

    before, after = ran("a", "main", 10.0, 10.0, 10.1), ran("a", "main", 30.0, 37.1, 38.0)
    return History(
        services=(Declared(name="a", every_s=10.0), Declared(name="b", every_s=60.0, overlap=overlap)),
        lives=(Life(life=0, at=0.0),),
        commands=(define("main", "a", "b"), define("beat", "b")),
        lines=(*before, *ran("b", "beat", 12.0, 12.0, 37.0), *after),
        dump=Dump(at=39.0),
        bounds=Bounds(recover_s=1.0),
    )


def with_outage(until: float, **options: Any) -> History:
    """A service that never ran."""
    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    return History(
        services=(Declared(name="s", every_s=10.0, **options),),
        lives=(Life(life=0, at=0.0),),
        faults=(Fault(what="outage", at=9.0, until=until),),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        dump=Dump(at=30.0),
        bounds=Bounds(recover_s=1.0),
    )


def with_crash(at: float, *, lost: bool = False) -> History:
    """The clock is an hour ahead. A life that closed a slot was killed, or lost the store, and the next planned by its
    own look."""
    listed = Definition(name="main", services=(Scheduled(name="s"),), paused=True, should_run=True)
    passed = Slot(
        service="s", planned=3620.0, last=3620.0, verdict="skipped", reason="paused", scheduler="main", recorded=3621.0
    )
    return History(
        services=(Declared(name="s", every_s=10.0, anchor="end"),),
        lives=(Life(life=0, at=0.0, ended=22.5, killed=not lost), Life(life=1, at=23.0)),
        faults=(
            Fault(what="step", at=1.0, by=3600.0),
            Fault(what="outage" if lost else "kill", at=at, until=at, life=0),
        ),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        dump=Dump(at=35.0, slots=(passed, replace(passed, planned=3633.0, last=3633.0, recorded=3634.0))),
        bounds=Bounds(recover_s=1.0),
    )


def with_unseen(**options: Any) -> History:
    """A life was killed just after a calendar service was listed; its slot came before the next, and nothing ran."""
    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    return History(
        services=(Declared(name="s", cron="* * * * *", timezone="UTC", **options),),
        lives=(Life(life=0, at=0.0, ended=30.1, killed=True), Life(life=1, at=70.0)),
        commands=(Command(what="define", at=30.0, acked=30.0, definition=listed),),
        dump=Dump(at=100.0),
        bounds=Bounds(recover_s=1.0),
    )


def with_series(revived: int) -> History:
    """Task 4, which repeats and has its successor, is cancelled; a task was revived at 2.6."""
    commands = (Command(what="revive", at=2.6, acked=2.6, task=revived), replace(CANCEL, at=2.7, acked=2.8, task=4))
    cancelled = replace(REPEATED, state=State.CANCELLED, reason="cancelled", fence=2, ended=2.8)
    tasks = tuple(cancelled if task is REPEATED else task for task in TASKS)
    return replace(SOUND, commands=(*SOUND.commands, *commands), dump=replace(SOUND.dump, tasks=tasks), images=())


def with_meeting_tries(until: float, fence: int = 2) -> History:
    """A task was given back at 3.0, taken again at once, and failed at 3.4; what is heard of its run lasts so long."""
    given_back = Try(start=2.0, end=3.0, verdict="again", info="interrupted")
    task = Kept(
        id=7, service="quick", due=1.0, state=State.DONE, fence=3, attempts=1,
        history=(given_back, replace(FAILURE, start=3.0, end=3.4)),
    )  # fmt: skip
    first, last = replace(line("start", 7, fence, 0, 3.0), attempt=0), replace(line("start", 7, 3, 1, 5.0), attempt=1)
    ends = replace(first, what="fail", at=until), replace(last, what="end", at=5.1)
    return History(
        lives=SOUND.lives, lines=(first, ends[0], last, ends[1]), dump=Dump(at=8.5, tasks=(task,)), bounds=SOUND.bounds
    )


def with_cancelled_run(told: int) -> History:
    """A try that never began lapsed at 4.0, and the task was taken again in that moment; then it was cancelled."""
    task = replace(KILLED, state=State.CANCELLED, reason="cancelled")
    start = replace(line("start", 2, 2, 1, 4.0), attempt=told)
    return History(
        lives=SOUND.lives,
        commands=(replace(CANCEL, at=4.1, acked=4.1, task=2),),
        lines=(start, replace(start, what="cut", at=4.1)),
        dump=Dump(at=8.5, tasks=(task,)),
        bounds=SOUND.bounds,
    )


def with_try_before(fence: int) -> History:
    """A try never began, since its node stood still; when it woke the task was given back, taken again, and failed."""
    given_back = Try(start=2.0, end=77.0, verdict="again", info="interrupted")
    task = Kept(
        id=7, service="quick", due=1.0, state=State.DONE, fence=3, attempts=1,
        history=(given_back, replace(FAILURE, start=77.0, end=77.0)),
    )  # fmt: skip
    failed, last = (
        replace(line("start", 7, fence, 0, 77.0), attempt=0),
        replace(line("start", 7, 3, 0, 78.0), attempt=1),
    )
    return History(
        lives=SOUND.lives[1:],
        faults=(Fault(what="freeze", at=2.0, until=77.0, life=1),),
        lines=(failed, replace(failed, what="fail"), last, replace(last, what="end", at=78.1)),
        dump=Dump(at=79.0, tasks=(task,)),
        bounds=SOUND.bounds,
    )


def with_unmoved_row(at: float, *, paused: bool = True, lost: bool = False, beside: float = 20.9) -> History:
    """A life that closed a slot at its check of 21 was killed, or lost the store, and its row still plans it.

    Its scheduler had begun another service just before, for a slot of its own.
    """
    listed = Definition(name="main", services=(Scheduled(name="s"),), paused=True, should_run=True)
    passed = Slot(
        service="s", planned=20.0, last=20.0, verdict="skipped", reason="paused", scheduler="main", recorded=21.0
    )
    resumed = Command(what="define", at=22.0, acked=22.0, definition=replace(listed, paused=paused))
    other = Line(what="start", run="t", service="t", scheduler="main", life=0, planned=beside, at=21.3)
    return History(
        services=(Declared(name="s", every_s=60.0),),
        lines=(other,),
        lives=(Life(life=0, at=0.0, ended=at, killed=not lost), Life(life=1, at=21.9)),
        faults=(Fault(what="partition", at=at, until=at + 0.2, life=0),) if lost else (),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed), resumed),
        dump=Dump(at=23.0, slots=(passed,), timing={"s": ServiceTiming(next_due=20.0)}, definitions={"main": listed}),
        bounds=Bounds(),
    )


def with_late_start(frozen: int) -> History:
    """Life 0 begins the slot of 10 in the middle of the run of life 1 for that of 20, after somebody stood still."""

    def ran(what: What, run: str, life: int, planned: float, at: float) -> Line:
        return Line(what=what, run=run, service="s", scheduler="main", life=life, planned=planned, at=at)

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    done = Slot(
        service="s", planned=20.0, last=20.0, verdict="done", reason="", scheduler="main", run="b", recorded=22.0
    )
    return History(
        services=(Declared(name="s", every_s=10.0, on_crash="skip"),),
        lives=(Life(life=0, at=0.0), Life(life=1, at=0.0)),
        faults=(Fault(what="freeze", at=9.0, until=21.0, life=frozen),),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        lines=(
            ran("start", "b", 1, 20.0, 20.0),
            ran("start", "a", 0, 10.0, 21.5),
            ran("cut", "a", 0, 10.0, 21.6),
            ran("end", "b", 1, 20.0, 22.0),
        ),
        dump=Dump(at=22.5, slots=(done,)),
        bounds=Bounds(shared=True, recover_s=60.0),
    )


def with_long_run(until: float) -> History:
    """A run, in the middle of which its node stood still, and the next."""

    def ran(run: str, at: float, until: float) -> list[Line]:
        line = Line(what="start", run=run, service="s", scheduler="main", planned=at, at=at)
        return [line, replace(line, what="end", at=until)]

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    return History(
        services=(Declared(name="s", every_s=10.0, anchor="end"),),
        lives=(Life(life=0, at=0.0),),
        faults=(Fault(what="freeze", at=12.0, until=29.0, life=0),),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        lines=(*ran("a", 10.0, until), *ran("b", 40.0, 40.1)),
        dump=Dump(at=41.0),
        bounds=Bounds(recover_s=1.0, run_s=5.0),
    )


def with_stop(stopping: float | None, *, again: bool = False) -> History:
    """A service never ran. A life was killed at 5, told to stop or not; somebody may have started it again."""
    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    started = Command(what="define", at=0.0, acked=0.0, definition=listed)
    return History(
        services=(Declared(name="s", every_s=10.0),),
        lives=(Life(life=0, at=0.0, ended=5.0, killed=True, stopping=stopping), Life(life=1, at=5.1)),
        commands=(started, *([replace(started, at=6.0, acked=6.0)] if again else ())),
        dump=Dump(at=30.0),
        bounds=Bounds(recover_s=1.0),
    )


def with_slow_stop(stopping: float | None) -> History:
    """A slot of 20 runs at 22, by the life that took over from one that was killed at 21.5, told to stop or not."""

    def ran(run: str, life: int, planned: float, at: float) -> list[Line]:
        line = Line(what="start", run=run, service="s", scheduler="main", life=life, planned=planned, at=at)
        return [line, replace(line, what="end", at=at + 0.1)]

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    return History(
        services=(Declared(name="s", every_s=10.0),),
        lives=(Life(life=0, at=0.0, ended=21.5, killed=True, stopping=stopping), Life(life=1, at=0.0)),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        lines=(*ran("a", 0, 10.0, 10.0), *ran("b", 1, 20.0, 22.0)),
        dump=Dump(at=23.0),
        bounds=Bounds(shared=True, recover_s=1.0),
    )


def with_step(at: float) -> History:
    """The slots of an interval are a second off from one line to the next, and the clock was set by that."""
    listed = Definition(name="main", services=(Scheduled(name="s"),), paused=True, should_run=True)
    passed = Slot(
        service="s", planned=20.0, last=20.0, verdict="skipped", reason="paused", scheduler="main", recorded=20.0
    )
    return History(
        services=(Declared(name="s", every_s=10.0),),
        lives=(Life(life=0, at=0.0),),
        faults=(Fault(what="step", at=at, by=1.0),),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        dump=Dump(at=100.0, slots=(passed, replace(passed, planned=31.0, last=31.0, recorded=31.0))),
        bounds=Bounds(recover_s=1.0, run_s=40.0),
    )


def with_slot_again(wall: float) -> History:
    """A slot of 600 failed, was tried again with the clock set back by two minutes, and runs when that shows `wall`."""

    def ran(run: str, planned: float, at: float, by: float, what: What = "end", attempt: int = 1) -> list[Line]:
        line = Line(
            what="start", run=run, service="s", scheduler="main", attempt=attempt, planned=planned, at=at, wall=at + by
        )
        return [line, replace(line, what=what, at=at + 0.1, wall=at + by + 0.1)]

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    failed = Run(id="a", service="s", scheduler="main", planned=600.0, attempt=1, start=600.0, end=600.1)
    done = Slot(service="s", planned=600.0, last=600.0, verdict="done", scheduler="main", run="b", recorded=483.1)
    slots = (done, replace(done, planned=540.0, last=540.0, run="c", recorded=540.1))
    return History(
        services=(Declared(name="s", cron="* * * * *", timezone="UTC"),),
        lives=(Life(life=0, at=599.0),),
        faults=(Fault(what="step", at=602.0, by=-120.0),),
        commands=(Command(what="define", at=599.0, acked=599.0, definition=listed),),
        lines=(
            *ran("a", 600.0, 600.0, 0.0, "fail"),
            *ran("b", 600.0, 603.0, -120.0, attempt=2),
            *ran("c", 540.0, 660.0, -120.0),
            *ran("d", 600.0, wall + 120.0, -120.0),
        ),
        dump=Dump(at=721.0, slots=slots, runs=(failed,)),
        bounds=Bounds(recover_s=1.0),
    )


def with_pending(end: float, *, told: bool = True) -> History:
    """The slot of 30 ran to that time, and its node died before it was journalled; what came next was passed over."""

    def ran(run: str, planned: float, until: float) -> list[Line]:
        line = Line(what="start", run=run, service="s", scheduler="main", planned=planned, at=planned)
        return [line, replace(line, what="end", at=until)]

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    paused = replace(listed, paused=True)
    first = Slot(service="s", planned=0.0, last=0.0, verdict="done", scheduler="main", run="a", recorded=0.1)
    passed = replace(first, planned=120.0, last=150.0, count=2, verdict="skipped", reason="paused", run=None)
    state = SchedulerState(
        cycle="c", slot=30.0, started=30.0, services_queue=(), current_service="s",
        current_run=Run(id="b", service="s", scheduler="main", planned=30.0, attempt=1, start=30.0),
    )  # fmt: skip
    other = Ended(run="b", scheduler="main", verdict="done", outcome="ok", end=end)
    row = ServiceTiming(next_due=180.0, last_run_id="c", last_outcome="ok", others=(other,) if told else ())
    return History(
        services=(Declared(name="s", every_s=30.0, anchor="grid"),),
        lives=(Life(life=0, at=0.0, ended=end + 0.1, killed=True),),
        commands=(
            Command(what="define", at=0.0, acked=0.0, definition=listed),
            Command(what="define", at=110.0, acked=110.0, definition=paused),
        ),
        lines=(*ran("a", 0.0, 0.1), *ran("b", 30.0, end)),
        dump=Dump(
            at=170.0,
            timing={"s": row},
            states={"main": state},
            definitions={"main": paused},
            slots=(first, replace(passed, recorded=160.0)),
        ),
        bounds=Bounds(run_s=100.0),
    )


def with_lock(until: float, *, shared: bool = True, lost: bool = True, said: str = "") -> History:
    """A run ended at 10.1, and another life stood still to that time; its own stopped, and the run was repeated.

    It may have said of a run that it could not record it.
    """

    def ran(run: str, life: int, at: float) -> list[Line]:
        line = Line(what="start", run=run, service="s", scheduler="main", life=life, planned=10.0, at=at)
        return [line, replace(line, what="end", at=at + 0.1)]

    listed = Definition(name="main", services=(Scheduled(name="s"),), should_run=True)
    return History(
        services=(Declared(name="s", every_s=60.0),),
        lives=(Life(life=0, at=0.0, ended=13.5, stopping=9.9), Life(life=1, at=0.0)),
        faults=(
            Fault(what="freeze", at=9.0, until=until, life=1),
            *([Fault(what="outage", at=12.4, until=13.0)] if lost else ()),
        ),
        commands=(Command(what="define", at=0.0, acked=0.0, definition=listed),),
        lines=(*ran("a", 0, 10.0), *ran("b", 1, 16.0)),
        unrecorded=(Unrecorded(life=0, run=said, at=13.5),) if said else (),
        dump=Dump(at=17.0),
        bounds=Bounds(shared=shared),
    )


def with_unsaid_start(frozen: float) -> History:
    """Life 0 looked at the clock at 2.1 to say that it began task 2, and said it when another had run that."""
    begun, cut = line("start", 2, 1, 0, 2.1), line("cut", 2, 1, 0, 6.4)
    return replace(
        SOUND,
        lives=(Life(life=0, at=0.5), Life(life=1, at=3.6)),
        faults=(Fault(what="freeze", at=frozen, until=frozen + 4.0, life=0),),
        lines=(*(one for one in LINES if one.run != "2.1"), begun, cut),
        images=(Image(at=6.3, seen=10, ended=(2,)),),
        bounds=replace(SOUND.bounds, shared=True),
    )


def with_unwritten_end(
    until: float, *, at: float = 12.4, said: str = "a", stopping: float | None = 9.9, again: float = 16.0
) -> History:
    """A run ended at 10.1, and its life at 13.5, in an outage; the run was repeated."""
    history = with_lock(9.1, said=said)
    life, *others = history.lives
    line = replace(history.lines[2], at=again)
    return replace(
        history,
        lives=(replace(life, stopping=stopping), *others),
        faults=(Fault(what="outage", at=at, until=until),),
        lines=(*history.lines[:2], line, replace(line, what="end", at=again + 0.1)),
    )


def with_unwritten_task(until: float, *, at: float = 2.9, said: str = "2.1", own: bool = True) -> History:
    """Task 2 had ended when its node stopped, in an outage to that time; it lapsed, and ran again."""
    history = with_end(0.1)
    life, *others = history.lives
    ended = 3.5  # it lapsed at 4
    return replace(
        history,
        lives=(replace(life, ended=ended, killed=False, stopping=2.1), *others),
        faults=(Fault(what="partition", at=at, until=until, life=0 if own else 1),),
        unrecorded=(Unrecorded(life=0, run=said, at=ended),),
    )


@pytest.mark.parametrize(
    ("sound", "bad", "told"),
    [
        (with_child(1), with_child(99), "a try that failed, and its run says nothing"),
        (with_child(99, silent=True), with_child(1, silent=True), "a try that failed, and its run says nothing"),
        (with_end(1.0), with_end(0.1), "run 1 lapsed, and life 0 was not disturbed"),
        (with_first_slot(2.0), with_first_slot(1.999999), "when nobody was there"),
        (with_first_slot(2.0, life=2), with_first_slot(1.999999, life=2), "when nobody was there"),
        (with_wait("queue"), with_wait("skip"), "due at 20.0, and no run began until 21.0"),
        (with_outage(22.0, missed="skip"), with_outage(12.0, missed="skip"), NEVER_RAN),
        (with_outage(22.0, on_crash="skip"), with_outage(12.0, on_crash="skip"), NEVER_RAN),
        (with_outage(22.0, missed="skip"), with_outage(22.0), NEVER_RAN),
        (with_crash(22.0), with_crash(20.0), "comes 3633.0, and should between 3630.0 and 3631.0"),
        (
            with_crash(22.0, lost=True),
            with_crash(20.0, lost=True),
            "comes 3633.0, and should between 3630.0 and 3631.0",
        ),
        (with_step(70.0), with_step(72.0), "comes 31.0, and should between 30.0 and 30.0"),
        (with_slot_again(600.0), with_slot_again(599.9), "run d, after a success that is recorded"),
        (with_unmoved_row(21.5), with_unmoved_row(20.5), "20.0 is planned, and 20.0 to 20.0 was skipped"),
        (with_unmoved_row(21.5), with_unmoved_row(21.5, paused=False), "20.0 is planned, and 20.0 to 20.0 was skipped"),
        (
            with_unmoved_row(21.5, lost=True),
            with_unmoved_row(20.5, lost=True),
            "20.0 is planned, and 20.0 to 20.0 was skipped",
        ),
        (
            with_unmoved_row(21.5),
            with_unmoved_row(21.5, beside=21.2),
            "20.0 is planned, and 20.0 to 20.0 was skipped",
        ),
        (with_late_start(frozen=0), with_late_start(frozen=2), "which ended when a had begun"),
        (with_late_start(frozen=0), with_late_start(frozen=2), "for 10.0, less than an interval after 20.0"),
        (with_long_run(30.0), with_long_run(15.0), "run b began 25.0 s after the one before"),
        (with_stop(4.9), with_stop(None), NEVER_RAN),
        (with_stop(4.9), with_stop(4.9, again=True), "missed: s: no run from 6.0 to 30.0"),
        (with_slow_stop(19.9), with_slow_stop(None), "run b for 20.0 began 2.0 s after its time"),
        (with_slow_stop(19.9), with_slow_stop(21.2), "run b for 20.0 began 2.0 s after its time"),
        (with_unseen(missed="skip"), with_unseen(), "due at 60.0, and no run began until 72.0"),
        (with_meeting_tries(3.4), with_meeting_tries(3.0, fence=1), "a try that failed, and its run says nothing"),
        (with_try_before(fence=2), with_try_before(fence=1), "a try that was broken off, and its run says fail"),
        (with_cancelled_run(told=1), with_cancelled_run(told=0), "run 2 lapsed, and life 1 was not disturbed"),
        (with_cancelled_run(told=1), with_cancelled_run(told=2), "run 2 was told of 2 failures, after 1"),
        (with_pending(100.0), with_pending(100.0, told=False), "after 0.0 (done) comes 120.0"),
        (with_pending(100.0), with_pending(80.0), "after 30.0 (done) comes 120.0, and should between 60.0 and 90.0"),
        (with_series(revived=4), with_series(revived=1), "task 4: it is cancelled and has 1 successors"),
        (with_lock(12.5), with_lock(10.3), "run b, after one that says end"),
        (with_lock(12.5), with_lock(12.5, shared=False), "run b, after one that says end"),
        (with_unsaid_start(2.2), with_unsaid_start(6.2), "it had ended by 6.3, and ran in life 0"),
        (with_lock(12.5, lost=False, said="a"), with_lock(12.5, lost=False), "run b, after one that says end"),
        (
            with_lock(12.5, lost=False, said="a"),
            with_lock(11.4, lost=False, said="a"),
            "run b, after one that says end",
        ),
        (
            with_lock(12.5, lost=False, said="a"),
            with_lock(12.5, lost=False, said="a", shared=False),
            "run b, after one that says end",
        ),
        (with_unwritten_end(13.0), with_unwritten_end(13.0, said=""), "run b, after one that says end"),
        (with_unwritten_end(13.0), with_unwritten_end(13.0, said="b"), "run b, after one that says end"),
        (with_unwritten_end(13.0, at=12.2), with_unwritten_end(13.0, stopping=None), "run b, after one that says end"),
        (with_unwritten_end(13.0), with_unwritten_end(13.7, at=13.6), "run b, after one that says end"),
        (with_unwritten_end(13.0), with_unwritten_end(13.0, again=13.4), "run b, after one that says end"),
        (with_unwritten_task(3.3), with_unwritten_task(3.3, said="2.2"), "run 1 lapsed, and life 0 was not disturbed"),
        (
            with_unwritten_task(3.3, at=2.3),
            with_unwritten_task(3.3, at=2.3, said="2.2"),
            "run 1 lapsed, and life 0 stopped without a word of it",
        ),
        (with_unwritten_task(3.3), with_unwritten_task(3.2), "run 1 lapsed, and life 0 was not disturbed"),
        (with_unwritten_task(3.3), with_unwritten_task(3.3, own=False), "run 1 lapsed, and life 0 was not disturbed"),
    ],
    ids=[
        "its own process was killed",
        "one that had said nothing was killed",
        "its end was not recorded yet",
        "a slot is of the microsecond in which its life began",
        "and so it is for the life that takes its cycle up",
        "its scheduler waits for another's run",
        "its slots came in an outage, and it passes over them",
        "it may have begun before a crash, and is not repeated",
        "what is to run after an outage has to",
        "its life was killed before its next slot was planned, by a clock that was set",
        "it lost the store before its next slot was planned, by a clock that was set",
        "the clock was set before the line was written, in the cycle of its check",
        "it comes again by a clock that was set back before it was tried again",
        "its life was killed between the line and the row",
        "nobody has looked since",
        "it lost the store between the line and the row",
        "no later check had begun, before which the row is written",
        "a node that stood still takes nothing from the one that ran meanwhile",
        "a node that stood still begins a slot that others have passed",
        "the run before it took longer, since its node stood still",
        "its life was killed while it stopped in order, and may have written that nothing comes back",
        "what was started again after that is to run",
        "its life stopped in order, which a kill broke off, and began nothing any more",
        "its life had not been told to stop by then",
        "what a calendar is to make up for is not lost before the first look at it",
        "it was taken again in the moment that the try before it ended",
        "it was taken again in the moment that the try before it was given back",
        "a cancelled run was taken in the moment that the try before it ended",
        "a run that ended its task was told how many failed before it",
        "its line is still to come, from the row of its service",
        "slots that came while it ran have theirs with it",
        "it had ended before, and has its successor from then",
        "another stood still with a lock, and the store was away before its end could be recorded",
        "nobody else has a lock",
        "it stood still between its look at the clock and its line",
        "another stood still with a lock, and its life, which was to stop, said that it waited no longer",
        "it was free again before its life had ended",
        "nobody else has a lock that it could say so of",
        "the store was away when its life, which had stopped, said that it could not record it",
        "it said so of this run, and of no other",
        "nobody had told it to stop",
        "the store was away before its life had ended",
        "it ran again when its life had ended",
        "of a task it is said by its fence",
        "the store was away when it ended, and its life stopped, and said so",
        "the store was away to the end of its life",
        "it was away for its own life",
    ],
)
def test_an_excuse_holds_for_its_reason_and_no_further(sound: History, bad: History, told: str) -> None:
    assert check(sound) == []
    assert any(told in str(one) for one in check(bad)), check(bad)
