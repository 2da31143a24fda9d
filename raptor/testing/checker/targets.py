"""Slots that came, and the runs they should have had: matched by time, whatever anybody says they were for.

Where slots depend on the runs before them, the gap between two runs is judged instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.matching import Window, match
from raptor.testing.checker.plans import Plan, Plans, slots_from
from raptor.testing.checker.spans import Span, Spans
from raptor.testing.checker.violation import Violation

MOMENT_S = 1e-6
"""Planned times are whole microseconds."""


def judge_targets(facts: Facts, plans: Plans) -> Iterator[Violation]:
    for name, listed in plans.of_service.items():
        runs = [run for run in facts.of_service.get(name, []) if run.start.scheduler is not None]
        for plan in listed:
            within = [run for run in runs if plan.holds(run.start.at)]
            yield from _late(facts, plans, plan, runs, within)
            if plan.is_fixed:
                yield from _missed(facts, plans, plan, runs, within)
            else:
                yield from _gaps(plans, plan, within)


def _missed(
    facts: Facts, plans: Plans, plan: Plan, runs: Sequence[Execution], within: Sequence[Execution]
) -> Iterator[Violation]:
    """Each slot that nothing hindered has a run of its own, those of one hindrance at least one together."""
    windows = list(_windows(facts, plans, plan, within))
    complete = [run.start.at for run in runs if run.what in ("end", "fail") or facts.is_broken_off(run, facts.read)]
    for place in match(windows, complete).unmet:
        since, until = windows[place]
        text = f"due at {since}, and no run began until {until}"
        yield Violation("missed", plan.service.name, text)


def _windows(facts: Facts, plans: Plans, plan: Plan, within: Sequence[Execution]) -> Iterator[Window]:
    blocked, slack = plans.blocked(plan), plans.slack(plan)
    own = Spans(plans.span(run) for run in facts.of_service.get(plan.service.name, ()))
    together: dict[Span, float] = {}
    last = -math.inf
    for due in _slots(plan, within):
        if own.meeting(due - facts.bounds.late_s, math.nextafter(due, -math.inf)):
            continue  # it came while the service ran: skipped, or one run with the next
        span = blocked.meeting(due, due + slack)
        if span is not None:
            if span.until + slack <= plan.until and not _is_excused(plans, plan, span):
                together.setdefault(span, due)
        elif due > last + slack and due + slack <= plan.until:  # what is closer together may be one run
            last = due
            yield Window(due, due + slack)
    for span, due in together.items():
        yield Window(due, span.until + slack)


def _is_excused(plans: Plans, plan: Plan, span: Span) -> bool:
    """Whether slots of a disturbance may end without a run."""
    runs = plans.facts.of_service.get(plan.service.name, [])
    if plan.every_s is not None and span.since <= plan.since and not (runs and runs[0].start.at < plan.since):
        return True  # whoever was told of it may have been killed before the first look; a calendar is planned at once
    return plan.may_pass and plans.is_disturbed(span.since, span.until)


def _slots(plan: Plan, within: Sequence[Execution]) -> Sequence[float]:
    """Those of an interval are counted from the first slot that ran."""
    if plan.every_s is None:
        return slots_from(plan.timing, plan.timing.first(plan.since), plan.until)
    if not within:
        return ()
    first = min(run.start.planned for run in within)
    return [slot for slot in slots_from(plan.timing, first, plan.until) if slot >= plan.since]


def _late(
    facts: Facts, plans: Plans, plan: Plan, runs: Sequence[Execution], within: Sequence[Execution]
) -> Iterator[Violation]:
    """The first run for a slot begins in time, and the first run of all."""
    seen = {run.start.planned for run in runs if run.start.at < plan.since}
    for run in within:
        due = run.start.planned
        if run.start.planned in seen or not plan.holds(due):
            continue
        seen.add(run.start.planned)
        if run.start.at > plans.deadline(plan, due) + MOMENT_S and plan.service.missed != "all":
            text = f"run {run.start.run} for {run.start.planned} began {run.start.at - due} s after its time"
            yield Violation("late", plan.service.name, text)
    if plan.every_s is not None and not within:
        due = _demanded(plans, plan, plan.since, plan.since + plan.every_s)
        if plans.deadline(plan, due) < plan.until and plan.every_s == plans.longest(plan.service.name):
            yield Violation("missed", plan.service.name, f"no run from {plan.since} to {plan.until}")


def _gaps(plans: Plans, plan: Plan, within: Sequence[Execution]) -> Iterator[Violation]:
    """Where a slot is counted from the run before it: the next run comes an interval later."""
    assert plan.every_s is not None
    for run, following in pairwise([*within, None]):
        assert run is not None
        span = plans.span(run)
        due = _demanded(plans, plan, run.start.at, span.until + plan.every_s + plans.slack(plan))
        deadline = plans.deadline(plan, due)
        if following is None and deadline < plan.until:
            yield Violation("missed", plan.service.name, f"no run from {span.until} to {plan.until}")
        elif following is not None and following.start.at > deadline + MOMENT_S:
            text = f"run {following.start.run} began {following.start.at - span.until} s after the one before"
            yield Violation("late", plan.service.name, text)


def _demanded(plans: Plans, plan: Plan, since: float, due: float) -> float:
    """The first slot from `due` on that has to run: of a disturbed one that may be the next."""
    assert plan.every_s is not None
    while plan.may_pass and due < plan.until and plans.is_disturbed(since, plans.deadline(plan, due)):
        since = plans.deadline(plan, due)
        due = since + plan.every_s
    return due
