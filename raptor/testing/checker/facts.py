"""A history as the rules look at it: runs from their lines, and who was disturbed when."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise

import msgspec

from raptor.journal import recovered, slots_of
from raptor.rows import CycleResult, SchedulerState
from raptor.task import Slot
from raptor.testing.checker.history import Command, Declared, Dump, Fault, History, Life, Line
from raptor.testing.checker.violation import Violation

TROUBLES = ("kill", "freeze", "partition", "outage")
"""Faults after which a node may have lost what it ran."""

HOLDS = ("freeze", "partition", "outage")
"""Faults during which a node does nothing, and goes on when they are over."""

MOMENT_S = 1e-3
"""How far sums of times may be off."""

RECORDED = 2.0
"""How often `late_s` it takes at most to record the end of a run that nothing hinders."""


class Execution(msgspec.Struct, frozen=True):
    """One run, as the ledger has it."""

    start: Line
    end: Line | None  # None: nothing was heard of it again
    begun: int  # the place of its lines in the ledger
    over: float
    told: float  # when its start was written, at the earliest: what stands before it says so

    @property
    def what(self) -> str:
        """How it ended."""
        return "nothing" if self.end is None else self.end.what

    @property
    def until(self) -> float:
        return math.inf if self.end is None else self.end.at


class Facts:
    """What the rules ask of a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.bounds = history.bounds
        self.read = history.dump.at
        self.services = {service.name: service for service in history.services}
        self.lives = {life.life: life for life in history.lives}
        self.executions, self.contradictions = _paired(history.lines)
        self.of_task: dict[int, list[Execution]] = defaultdict(list)
        self.of_service: dict[str, list[Execution]] = defaultdict(list)  # for slots, and by hand
        self.of_scheduler: dict[str, list[Execution]] = defaultdict(list)
        for execution in self.executions:
            start = execution.start
            if start.task is not None:
                self.of_task[start.task].append(execution)
                continue
            self.of_service[start.service].append(execution)
            if start.scheduler is not None:
                self.of_scheduler[start.scheduler].append(execution)
        self.revived = {command.task for command in self.commands("revive")}
        self.cancelled = {command.task for command in self.commands("cancel")}
        self.faults = _all_faults(history)
        self._unrecorded = {(one.life, one.run) for one in history.unrecorded}
        self._heard = {(line.life, line.pid) for line in history.lines}  # processes that have said something
        self._met: dict[int | None, list[Fault]] = defaultdict(list)  # by life, None: everybody
        for fault in self.faults:
            self._met[fault.life].append(fault)
        self._freezes = [fault for fault in self.faults if fault.what == "freeze"] if self.bounds.shared else []
        for runs in self.of_task.values():
            if any(map(self.is_belated, runs)):
                runs.sort(key=lambda run: run.start.fence)
        steps = [fault for fault in self.faults if fault.what == "step"]
        self._steps = [fault.at for fault in steps]
        self._offsets = [0.0, *accumulate(fault.by for fault in steps)]
        self._jumps = [
            (at + before, at + after) for at, (before, after) in zip(self._steps, pairwise(self._offsets), strict=True)
        ]  # what the wall clock showed before and after each
        self.is_stepped = bool(self._steps)
        self.tentative = {
            state.current_run.id for state in history.dump.states.values() if state.current_run is not None
        }  # runs whose timing may be recorded while their line is not
        self.slots = [*history.dump.slots, *_journalled(history.dump)]
        lives = history.lives
        self.last_alive = max((self.read if one.ended is None else one.ended for one in lives), default=self.read)
        self.calm_since = max(
            [*(self.end_of(fault) for fault in self.faults), *(life.at for life in lives)], default=-math.inf
        )

    @property
    def cycle_s(self) -> float:
        """How much later than it says a line may be written: it bears the time of its check, and others run before."""
        return self.bounds.run_s * len(self.history.services)

    def declared(self, service: str) -> Declared:
        return self.services.get(service) or Declared(name=service)

    def commands(self, *whats: str) -> Iterator[Command]:
        return (command for command in self.history.commands if command.what in whats)

    def end_of(self, fault: Fault) -> float:
        if fault.until is not None:
            return fault.until
        return self.read if fault.what in HOLDS else fault.at

    def troubles(self, life: int, since: float, until: float, whats: Iterable[str] = TROUBLES) -> list[Fault]:
        """The faults that met a life within a time."""
        met = (*self._met.get(None, ()), *self._met.get(life, ()))
        return [fault for fault in met if fault.what in whats and fault.at <= until and self.end_of(fault) >= since]

    def since(self, execution: Execution, whats: Iterable[str] = HOLDS) -> float:
        """When its node may have decided to start it: one that stood still after that says so when it wakes."""
        return min(execution.start.at, self._held(execution, whats))

    def is_belated(self, execution: Execution, since: float = math.inf) -> bool:
        """Whether its node stood still before it began, from that time on, and others may have run it meanwhile.

        One that does not reach the store goes on by itself: it begins at once what it has a right to, or asks again.
        """
        return self.bounds.shared and self._held(execution, ["freeze"]) < since

    def _held(self, execution: Execution, whats: Iterable[str]) -> float:
        """Since when its node stood still when it began, or had looked at the clock and not said yet that it did."""
        start, since = execution.start, execution.told
        while held := [
            fault.at
            for fault in self.troubles(start.life, min(start.at, since) - self.bounds.late_s, execution.told, whats)
            if fault.at < since
        ]:
            since = min(held)
        return since if since < execution.told else math.inf

    def is_lost(self, execution: Execution, by: float) -> bool:
        """Whether its node may have lost it by then: while it ran, or when its end was not recorded yet."""
        life, within = execution.start.life, self.bounds.late_s * RECORDED
        recorded = self._recorded(execution.until + within, within)
        return self._has_given_up(execution, by) or bool(self.troubles(life, self.since(execution), min(by, recorded)))

    def _has_given_up(self, execution: Execution, by: float) -> bool:
        """Whether its life had stopped in order by then, and said that it could not record it.

        To the end something must have kept it from that: the store was away, or another stood still, with a lock
        perhaps. When that is over there is time to record it.
        """
        life = self.lives.get(execution.start.life)
        if life is None or life.stopping is None or life.killed or not self.is_gone(life.life, by):
            return False
        if (life.life, execution.start.run) not in self._unrecorded or life.ended is None:
            return False
        since, until = life.ended - self.bounds.late_s * RECORDED, life.ended
        others = (fault for fault in self._freezes if fault.at <= until and self.end_of(fault) >= since)
        return any(others) or bool(self.troubles(life.life, since, until, HOLDS))

    def is_concealed(self, execution: Execution, by: float) -> bool:
        """Whether its life had stopped in order by then, and said nothing of it, though it had it to the end."""
        life = self.lives.get(execution.start.life)
        if life is None or life.stopping is None or life.killed:
            return False
        slack = self.bounds.late_s if self.bounds.shared else 0.0  # clocks of nodes may differ a little
        is_said = (life.life, execution.start.run) in self._unrecorded
        return not is_said and self.is_gone(life.life, by - slack)

    def _recorded(self, by: float, within: float) -> float:
        """By when it is: another node that stands still may hold a lock that has to be waited for."""
        for fault in self._freezes:
            if fault.at <= by:
                by = max(by, self.end_of(fault) + within)
        return by

    def is_late(self, at: float) -> bool:
        """Whether the store was, or had just been, out of reach for somebody."""
        return self.is_away(at - self.bounds.settle_s, at)

    def is_away(self, since: float, until: float) -> bool:
        """Whether the store was out of reach for somebody in that time."""
        away = (fault for fault in self.faults if fault.what in ("partition", "outage"))
        return any(fault.at <= until and self.end_of(fault) >= since for fault in away)

    def is_parted(self, shown: float) -> bool:
        """Whether the store was out of reach for somebody just after the wall clock showed that."""
        return any(self.is_away(at, at + self.bounds.late_s) for at in self._moments(shown))

    def is_gone(self, life: int, by: float) -> bool:
        """Whether a life had ended by then, one way or another, and its processes with it."""
        return life in self.lives and (ended := self.lives[life].ended) is not None and ended <= by

    def is_cut_off(self, slot: Slot, by: float) -> bool:
        """Whether a life may have been killed between a line that no run wrote and its row, before that wall clock.

        Not one whose scheduler was at a later check already: a check is over when all of it is written.
        """
        kills = (one for one in self.faults if one.what == "kill" and slot.recorded <= self.wall(one.at) <= by)
        return slot.run is None and any(self.is_stepped or not self._has_gone_on(slot, kill) for kill in kills)

    def _has_gone_on(self, slot: Slot, kill: Fault) -> bool:
        """Whether the scheduler of a slot ran, in a life that was killed, what came after the check of the slot."""
        runs = self.of_scheduler.get(slot.scheduler or "", ())
        return any(
            run.start.life == kill.life and run.start.at < kill.at and run.start.planned > slot.recorded for run in runs
        )

    def is_apart(self, execution: Execution) -> bool:
        """Whether it may have had a process of its own."""
        life = self.lives.get(execution.start.life)
        return life is None or life.pid is None or life.pid != execution.start.pid

    def is_cut_short(self, execution: Execution) -> bool:
        """Whether its life stopped just after its last word: a process of its own has to end as well, and may not."""
        stopped = execution.until + self.bounds.late_s * RECORDED
        return execution.what == "end" and self.is_apart(execution) and self.is_gone(execution.start.life, stopped)

    def is_broken_off(self, execution: Execution, by: float) -> bool:
        """Whether its work was ended by then, by its time limit or with its process, and the node saw that."""
        start, until = execution.start, min(by, execution.until)
        if execution.end is not None and execution.end.what != "cut":
            return False
        timeout_s = self.declared(start.service).timeout_s
        is_over = timeout_s is not None and until >= start.at + timeout_s - MOMENT_S
        return is_over or self._has_ended(execution, start.at, until)

    def has_died(self, execution: Execution | None, since: float | None, by: float | None) -> bool:
        """Whether a process of its own may have ended with it, between its take and its verdict.

        It may have been killed before it could say that it began, or when it had said that all was well.
        """
        begun = -math.inf if since is None or self.is_stepped else since
        if execution is not None:
            return self._has_ended(execution, begun, self.by(by))
        return any(
            fault.what == "child" and begun <= fault.at <= self.by(by) and (fault.life, fault.pid) not in self._heard
            for fault in self.faults
        )

    def _has_ended(self, execution: Execution, since: float, until: float) -> bool:
        """Whether a process ended in that time that may have been its own."""
        met = self.troubles(execution.start.life, since, until, ["child"])
        return any(fault.pid in (None, execution.start.pid) for fault in met)

    def is_over(self, execution: Execution, by: float) -> bool:
        """Whether a run of which nothing was heard is over all the same."""
        return self.is_broken_off(execution, by) or self.is_gone(execution.start.life, by)

    def epoch(self, at: float) -> int:
        """How often the wall clock had been set: a slot of another epoch is another slot."""
        return bisect_right(self._steps, at)

    def epoch_of(self, line: Line) -> int:
        """That in which its slot had come: what a clock that was set back has yet to show again came before that."""
        shown = [*(before for before, _ in self._jumps[: self.epoch(line.at)]), line.shown]
        return max((epoch for epoch, last in enumerate(shown) if last >= line.planned), default=len(shown) - 1)

    def is_touched(self, since: float, until: float) -> bool:
        """Whether the wall clock was set from, to or over a time within these, by the wall clock."""
        return any(min(jump) <= until and max(jump) >= since for jump in self._jumps)

    def wall(self, at: float) -> float:
        """What the wall clock showed then."""
        return at + self._offsets[self.epoch(at)]

    def _moments(self, shown: float) -> Iterator[float]:
        """When the wall clock showed that: never, if it was set over it, and several times, if it was set back."""
        for epoch, offset in enumerate(self._offsets):
            if self.epoch(shown - offset) == epoch:
                yield shown - offset

    def by(self, shown: float | None) -> float:
        """The latest time at which the wall clock may have shown that."""
        return self.read if shown is None or self.is_stepped else shown

    def has_come(self, line: Line) -> bool:
        """Whether the wall clock had shown its planned time: a clock that is set back makes nothing early."""
        shown = (before for before, _ in self._jumps[: self.epoch(line.at)])
        return max([line.shown, *shown]) >= line.planned

    @cached_property
    def cost(self) -> int:
        """How many lives were disturbed, each time."""
        return sum(
            1 if fault.life is not None else max(1, sum(self._lives_on(life, fault.at) for life in self.history.lives))
            for fault in self.faults
            if fault.what in TROUBLES
        )

    def _lives_on(self, life: Life, at: float) -> bool:
        return life.at <= at and (life.ended is None or life.ended >= at)


def _paired(lines: Iterable[Line]) -> tuple[list[Execution], list[Violation]]:
    """Runs in the order of their starts, and lines that fit none."""
    runs: list[tuple[Line, int, float]] = []
    told = -math.inf
    ends: dict[int, tuple[Line, int]] = {}
    latest: dict[tuple[str, int | None], int] = {}
    wrong: list[Violation] = []
    for number, line in enumerate(lines):
        key, told = (line.run, line.task), max(told, line.at)
        known = latest.get(key)
        if line.what == "start":
            if known is not None:
                wrong.append(Violation("duplicate", line.service, f"run {line.run} began twice"))
            latest[key] = len(runs)
            runs.append((line, number, told))
        elif known is None:
            wrong.append(Violation("order", line.service, f"run {line.run} ended, and had not begun"))
        elif known in ends:
            wrong.append(Violation("duplicate", line.service, f"run {line.run} ended twice"))
        else:
            ends[known] = line, number
    nothing = None, math.inf
    executions = [
        Execution(start, (end := ends.get(place, nothing))[0], number, end[1], written)
        for place, (start, number, written) in enumerate(runs)
    ]
    return executions, wrong


def _journalled(dump: Dump) -> Iterator[Slot]:
    """Lines of the ledger that still stand in the state row of a cycle, or in the row of a service beside it."""
    known = {(slot.service, slot.planned) for slot in dump.slots}
    for name, state in dump.states.items():
        for result in [*state.results, *_recorded(dump, state)]:
            slots = slots_of(result, name, result.run.end or result.run.start)
            yield from (slot for slot in slots if (slot.service, slot.planned) not in known)


def _recorded(dump: Dump, state: SchedulerState) -> Iterator[CycleResult]:
    """The result of a run whose scheduler ended between the two writes: whoever takes its cycle up tells it so."""
    run = state.current_run
    row = None if run is None else dump.timing.get(run.service)
    ended = None if run is None or row is None else row.ended(run.id)
    if run is not None and ended is not None:
        yield recovered(run, ended, state.current_closed)


def _all_faults(history: History) -> list[Fault]:
    """Those that were told, and the kills that only the lives tell of."""
    told = {fault.life for fault in history.faults if fault.what == "kill"}
    deaths = [
        Fault(what="kill", at=life.ended, life=life.life)
        for life in history.lives
        if life.killed and life.ended is not None and life.life not in told
    ]
    return sorted([*history.faults, *deaths], key=lambda fault: fault.at)
