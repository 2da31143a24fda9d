"""What was to run when: the definitions that were in force, and the times at which nothing can be demanded.

Only what is certain counts: from the acknowledgement of a command to the sending of the next.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

import msgspec

from raptor.errors import BadInput
from raptor.rows import Definition
from raptor.service import Service
from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.history import Command, Declared
from raptor.testing.checker.spans import Span, Spans
from raptor.timing import Timing, timing_of

LONGEST_RETRY_S = 3600.0
"""No retry of a slot is later than that after a failure, nor than the service's interval."""

CATCH_UP_S = 1.0
"""Between two runs that make up for downtime."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A service on the list of a scheduler that runs, for as long as nothing changes and no clock is set."""

    scheduler: str
    service: Declared
    timing: Timing
    beat_s: float  # of the scheduler; 0: it wakes when something is due
    position: int  # on the list
    since: float
    until: float

    @property
    def every_s(self) -> float | None:
        return self.timing.every_s

    @property
    def is_fixed(self) -> bool:
        """Whether its slots lie where they lie, whenever it runs."""
        return (
            self.every_s is None or self.service.anchor == "grid" or (self.service.anchor == "slot" and not self.beat_s)
        )

    @property
    def may_pass(self) -> bool:
        """Whether a disturbed slot may end without a run: as missed, or since it may have begun before a crash."""
        return self.service.missed == "skip" or self.service.on_crash == "skip"

    def holds(self, at: float) -> bool:
        return self.since <= at <= self.until


class Plans:
    """All plans of a history."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._defined: dict[str, list[Command]] = defaultdict(list)
        for command in sorted(facts.commands("define"), key=lambda one: one.at):
            if command.definition is not None:
                self._defined[command.definition.name].append(command)
        listed: dict[str, set[str]] = defaultdict(set)
        for name, commands in self._defined.items():
            for command in commands:
                for entry in _definition(command).services:
                    listed[entry.name].add(name)
        self._listed_by = listed
        self.shared = {name for name, schedulers in listed.items() if len(schedulers) > 1}
        self._later = {name: _later(commands) for name, commands in self._defined.items()}
        self._timings: dict[tuple[str, int], Timing | None] = {}
        self._schedulers = {name: next(iter(schedulers)) for name, schedulers in listed.items()}
        self.of_service: dict[str, list[Plan]] = defaultdict(list)
        for name in self._defined:
            for plan in self._plans(name):
                if plan.service.name not in self.shared:
                    self.of_service[plan.service.name].append(plan)
        self._blocked: dict[tuple[object, ...], Spans] = {}

    def at(self, service: str, at: float) -> Plan | None:
        plans = self.of_service.get(service, [])
        place = bisect_left(plans, at, key=_end)
        return plans[place] if place < len(plans) and plans[place].holds(at) else None

    def over(self, service: str, since: float, until: float) -> tuple[Timing, bool] | None:
        """The one timing that was in force, and whether its scheduler has a beat; None if there may be several."""
        if service in self.shared or service not in self._schedulers:
            return None
        found: list[tuple[Timing, bool]] = []
        commands, later = self._defined[self._schedulers[service]], self._later[self._schedulers[service]]
        # Those before had given way to another that was acknowledged by then.
        for command in commands[bisect_left(later, since) : bisect_right(commands, until, key=_sent)]:
            timing = self._timing(_definition(command), service)
            if timing is not None:
                found.append((timing, _definition(command).interval_s is not None))
        return found[0] if found and all(one == found[0] for one in found) else None

    def longest(self, service: str) -> float:
        """The longest interval that it ever had."""
        return max((plan.every_s or 0.0 for plan in self.of_service.get(service, ())), default=0.0)

    def asked(self, service: str, by: float, *, paused: bool) -> bool:
        """Whether somebody paused a service, or took it off the list, by then."""
        commands = [one for name in sorted(self._listed_by.get(service, ())) for one in self._defined[name]]
        if paused:
            held = (_definition(one) for one in commands if one.at <= by)
            return any(one.paused or service in one.paused_services for one in held)
        return any(
            one.at <= by and service not in {entry.name for entry in _definition(one).services} for one in commands
        )

    # What keeps a service from running

    def slack(self, plan: Plan) -> float:
        """How late a slot may be that nothing hinders."""
        return self.facts.bounds.late_s + plan.beat_s

    def blocked(self, plan: Plan) -> Spans:
        """When nothing can be demanded: a disturbance, or a run before it; with gaps in which nothing must happen."""
        key = plan.scheduler, plan.service.name, plan.timing, plan.beat_s
        if key not in self._blocked:
            spans = [*self.disturbed, *self._busy(plan.scheduler), *self._own(plan)]
            self._blocked[key] = Spans(spans, gap=self.slack(plan))
        return self._blocked[key]

    def deadline(self, plan: Plan, due: float) -> float:
        """When a slot that is due then has begun, by the steady clock."""
        slack = self.slack(plan)
        span = self.blocked(plan).meeting(due, due + slack)
        return (due if span is None else max(due, span.until)) + slack

    def is_disturbed(self, since: float, until: float) -> bool:
        return self._all_disturbed.meeting(since, until) is not None

    @cached_property
    def _all_disturbed(self) -> Spans:
        return Spans(self.disturbed)

    @cached_property
    def disturbed(self) -> list[Span]:
        """Faults, starts and ends of lives, and commands, each with the time that it takes to recover."""
        facts, recover_s = self.facts, self.facts.bounds.recover_s
        spans = [Span(fault.at, facts.end_of(fault) + recover_s) for fault in facts.faults if fault.what != "child"]
        spans += [
            Span(command.at, max(command.at, command.acked or 0.0) + recover_s) for command in facts.commands("define")
        ]
        lives = facts.history.lives
        for life in lives:
            spans.append(Span(life.at, life.at + recover_s))
            if life.ended is not None:  # in order: it begins nothing for a while before
                since = life.ended - (0.0 if life.killed else recover_s)
                since = since if life.stopping is None else min(since, life.stopping)
                spans.append(Span(since, life.ended + recover_s))
        up = Spans((life.at, facts.read if life.ended is None else life.ended) for life in lives).spans
        for before, after in pairwise(up):
            spans.append(Span(before.until, after.since + recover_s))
        return spans

    def _busy(self, scheduler: str) -> Iterator[Span]:
        """Its own runs, and those for whose end its cycle waits: overlap="queue" means that, whoever runs it."""
        for run in self.facts.of_scheduler.get(scheduler, ()):
            yield self.span(run)
        for name, schedulers in self._listed_by.items():
            if scheduler in schedulers and self.facts.declared(name).overlap == "queue":
                others = (run for run in self.facts.of_service.get(name, ()) if run.start.scheduler != scheduler)
                yield from map(self.span, others)

    def _own(self, plan: Plan) -> Iterator[Span]:
        """Its own runs, by hand as well, and the waits after those that failed."""
        runs = self.facts.of_service.get(plan.service.name, [])
        wait_s = min(plan.every_s or LONGEST_RETRY_S, LONGEST_RETRY_S)
        for place, run in enumerate(runs):
            span = self.span(run)
            span = Span(span.since, span.until + self.facts.bounds.late_s)  # its end is recorded a little later
            if run.what != "end":
                following = runs[place + 1].start.at if place + 1 < len(runs) else span.until + wait_s
                span = Span(span.since, max(span.until, min(span.until + wait_s, following)))
            if plan.service.missed == "all" and self.is_disturbed(run.start.planned, run.start.at):
                span = Span(min(span.since, run.start.planned), span.until + CATCH_UP_S)
            yield span

    def span(self, run: Execution) -> Span:
        """To its end, however late a node that stood still came to it; without one, until it could be no more."""
        return Span(run.start.at, run.start.at + self.facts.bounds.run_s if run.end is None else run.until)

    # From commands to plans

    def _plans(self, scheduler: str) -> Iterator[Plan]:
        commands, horizon = self._defined[scheduler], min(self.facts.read, self.facts.last_alive)
        for place, command in enumerate(commands):
            if command.acked is None:
                continue
            definition = _definition(command)
            until = commands[place + 1].at if place + 1 < len(commands) else horizon
            if not definition.should_run or definition.paused:
                continue
            end = self._steady(command.acked, min(until, horizon))
            if command.acked < end:
                yield from self._listed(definition, command.acked, end)

    def _listed(self, definition: Definition, since: float, until: float) -> Iterator[Plan]:
        for position, entry in enumerate(definition.services):
            timing = self._timing(definition, entry.name)
            if timing is not None and entry.name not in definition.paused_services:
                yield Plan(
                    scheduler=definition.name, service=self.facts.declared(entry.name), timing=timing,
                    beat_s=definition.interval_s or 0.0, position=position, since=since, until=until,
                )  # fmt: skip

    def _steady(self, since: float, until: float) -> float:
        """Until when that is certain: a scheduler waits to be started after an orderly stop, even one that a kill broke
        off, since what is to come back is written first; and a clock that is set moves what was planned."""
        if not self.facts.bounds.shared:
            lives = self.facts.history.lives
            stops = (life.ended for life in lives if life.ended is not None and not life.killed)
            broken_off = (life.stopping for life in lives if life.stopping is not None and life.killed)
            until = min([until, *(stop - self.facts.bounds.recover_s for stop in stops if stop >= since)])
            until = min([until, *(stop for stop in broken_off if stop >= since)])
        return min([until, *(fault.at for fault in self.facts.faults if fault.what == "step")])

    def _timing(self, definition: Definition, name: str) -> Timing | None:
        key = name, id(definition)  # commands keep it
        if key not in self._timings:
            self._timings[key] = self._made(definition, name)
        return self._timings[key]

    def _made(self, definition: Definition, name: str) -> Timing | None:
        entry = next((entry for entry in definition.services if entry.name == name), None)
        if entry is None:
            return None
        declared = self.facts.declared(name)
        service = Service(
            name=name, every_s=declared.every_s, cron=declared.cron, timezone=declared.timezone, anchor=declared.anchor
        )
        try:
            return timing_of(service, every_s=entry.every_s, cron=entry.cron, interval_s=definition.interval_s)
        except BadInput:  # nothing says when: it never runs
            return None


def slots_from(timing: Timing, first: float, until: float, most: int = 100_000) -> Sequence[float]:
    """The slots from one on, by the wall clock."""
    slots: list[float] = []
    every_s = timing.every_s
    at = first
    while at <= until and len(slots) < most:
        slots.append(at)
        at = round(first + len(slots) * every_s, 6) if every_s else timing.after(slot=at, end=at, origin=first)
    return slots


def _later(commands: Sequence[Command]) -> list[float]:
    """For each, when one of those after it was first acknowledged."""
    acked = [math.inf if command.acked is None else command.acked for command in commands]
    return list(accumulate(reversed([*acked[1:], math.inf]), min))[::-1]


def _sent(command: Command) -> float:
    return command.at


def _end(plan: Plan) -> float:
    return plan.until


def _definition(command: Command) -> Definition:
    assert command.definition is not None
    return command.definition
