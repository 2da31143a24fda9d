"""The ledger of Raptor against what happened: every slot has one line, and each line is true."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from raptor.task import Run, Slot
from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.plans import Plans, slots_from
from raptor.testing.checker.violation import Kind, Violation
from raptor.timing import Every, Timing

MOMENT_S = 2e-6
LOOKED_AT = 1000  # slots of one line


def judge_accounts(facts: Facts, plans: Plans) -> Iterator[Violation]:
    dump = facts.history.dump
    rows: dict[str, list[Slot]] = defaultdict(list)
    for slot in facts.slots:
        rows[slot.service].append(slot)
    by_run = {run.start.run: run for run in facts.executions if run.start.task is None}
    ends = {run.id: run for run in dump.runs}
    for name, slots in rows.items():
        slots.sort(key=lambda slot: (slot.planned, slot.recorded))
        for slot in slots:
            for kind, text in _wrong(facts, plans, slot, by_run):
                yield Violation(kind, name, f"the slot {slot.planned} is {slot.verdict}: {text}")
        for before, slot in pairwise(slots):
            if not facts.is_touched(before.planned, max(before.recorded, slot.recorded) + facts.cycle_s):
                yield from _broken(plans, before, slot, by_run, ends)
        yield from _open_end(facts, plans, name, slots[-1], by_run, ends)
    yield from _unrecorded(facts, rows)
    for id, count in Counter(slot.run for slot in facts.slots if slot.run is not None).items():
        if count > 1:
            yield Violation("unaccounted", "the ledger", f"run {id} closes {count} slots")
    for id, count in Counter(run.id for run in dump.runs).items():
        if count > 1 and id in by_run:
            yield Violation("duplicate", "the ledger", f"run {id} stands there {count} times")


# Each line


def _wrong(facts: Facts, plans: Plans, slot: Slot, by_run: dict[str, Execution]) -> Iterator[tuple[Kind, str]]:
    if slot.verdict in ("done", "failed") and slot.run is not None:
        yield from _wrong_run(facts, slot, by_run.get(slot.run))
        return
    service, recorded = facts.declared(slot.service), facts.by(slot.recorded)
    if slot.verdict == "failed":
        tries = [run for run in facts.of_service.get(slot.service, ()) if run.start.planned == slot.planned]
        failed = any(_has_failed(facts, run) for run in tries) or facts.has_died(None, slot.planned, slot.recorded)
        if not facts.is_stepped and not failed:
            yield "unfounded", "no run for it failed"
    elif slot.verdict == "skipped" and slot.reason in ("paused", "removed"):
        if not plans.asked(slot.service, recorded + facts.cycle_s, paused=slot.reason == "paused"):
            yield "unfounded", f"{slot.reason}, and nobody asked for that"
    elif slot.verdict == "skipped" and slot.reason == "interrupted":
        if service.on_crash != "skip":
            yield "unfounded", "interrupted, and it was to run again"
    elif slot.verdict == "missed" and slot.reason == "node down" and service.missed == "all":
        yield "unfounded", "and whatever is missed was to run"
    elif slot.verdict in ("missed", "coalesced", "skipped"):
        yield from _unhindered(facts, plans, slot)


def _wrong_run(facts: Facts, slot: Slot, run: Execution | None) -> Iterator[tuple[Kind, str]]:
    if run is None:
        yield "unfounded", f"by run {slot.run}, which the ledger of the services does not have"
        return
    if slot.verdict == "done" and run.what != "end":
        yield "unfounded", f"and its run {slot.run} says {run.what}"
    if slot.verdict == "failed" and not _has_failed(facts, run):
        yield "unfounded", f"and its run {slot.run} says {run.what}"
    is_moved = facts.epoch(run.start.at) != facts.epoch(run.until)
    if run.start.service != slot.service or (run.start.planned != slot.planned and not is_moved):
        yield "unaccounted", f"by run {slot.run}, which was for {run.start.service} at {run.start.planned}"
    runs = facts.of_service[run.start.service]
    later = runs[bisect_right(runs, run.begun, key=lambda one: one.begun) :]
    # What a node that stood still begins when it wakes takes nothing from anybody.
    following = next((one for one in later if not facts.is_belated(one)), None)
    if slot.verdict == "done" and following is not None and following.begun < run.over:
        yield "stale", f"by run {slot.run}, which ended when {following.start.run} had begun"


def _has_failed(facts: Facts, run: Execution) -> bool:
    return run.what == "fail" or facts.is_broken_off(run, facts.read)


def _unhindered(facts: Facts, plans: Plans, slot: Slot) -> Iterator[tuple[Kind, str]]:
    """A slot is passed over only if something kept the service from running then."""
    plan = plans.at(slot.service, slot.planned)
    if plan is None or facts.is_stepped or (slot.verdict == "coalesced" and plan.beat_s):
        return
    blocked, slack = plans.blocked(plan), plans.slack(plan)
    if plan.every_s is not None and plan.every_s <= slack:
        return
    for at in slots_from(plan.timing, slot.planned, slot.last, LOOKED_AT):
        if plan.holds(at) and at + slack <= plan.until and blocked.meeting(at, at + slack) is None:
            yield "unaccounted", f"{slot.reason}, and nothing kept it from running at {at}"
            return


def _unrecorded(facts: Facts, rows: dict[str, list[Slot]]) -> Iterator[Violation]:
    """The result of a run that nothing disturbed is there."""
    closing = {slot.run for slots in rows.values() for slot in slots}
    told = {run.id for run in facts.history.dump.runs}
    for state in facts.history.dump.states.values():
        told |= {result.run.id for result in state.results}
    for row in facts.history.dump.timing.values():
        told |= {row.last_run_id or "", *(one.run for one in row.others)}
    if not rows and len(told) <= 1:
        return  # it was not dumped
    for run in facts.executions:
        known = closing if run.what == "end" else told
        is_judged = run.start.task is None and run.start.scheduler is not None and run.what in ("end", "fail")
        until = run.until + facts.bounds.settle_s
        # A slot that a clock set back brings again has its line already.
        if not is_judged or run.start.run in known or (run.start.run in told and facts.is_stepped):
            continue
        if run.start.run in told & facts.tentative:
            continue
        is_excused = facts.is_cut_short(run) or facts.has_died(run, run.start.at, until) or facts.is_lost(run, until)
        if until < min(facts.read, facts.last_alive) and not is_excused:
            text = f"run {run.start.run} for {run.start.planned} says {run.what}, and is not recorded"
            yield Violation("unaccounted", run.start.service, text)


# From one line to the next


def _broken(
    plans: Plans, before: Slot, slot: Slot, by_run: dict[str, Execution], ends: dict[str, Run]
) -> Iterator[Violation]:
    """There is no slot between two lines, and none that two lines tell of."""
    if slot.planned <= before.last:
        text = f"the slot {slot.planned} is {slot.verdict}, and {before.planned} to {before.last} was {before.verdict}"
        yield Violation("unaccounted", slot.service, text)
        return
    yield from _hole(plans, before, slot.planned, slot.recorded, by_run, ends)


def _hole(
    plans: Plans, before: Slot, planned: float, by: float, by_run: dict[str, Execution], ends: dict[str, Run]
) -> Iterator[Violation]:
    facts = plans.facts
    since, until = (-math.inf, math.inf) if facts.is_stepped else (before.planned, by)
    found = plans.over(before.service, since, until)
    if found is None:
        return
    timing, has_beat = found
    wrong = _wrong_count(timing, before)
    if wrong:
        yield Violation("unaccounted", before.service, wrong)
    earliest, latest = _following(timing, has_beat, before, by_run, ends, facts.tentative)
    if facts.is_cut_off(before, by) or (before.run is None and facts.is_parted(before.recorded)):
        latest = math.inf  # a crash or no store between the line and the row: whoever is next counts from its own check
    if not earliest - MOMENT_S <= planned <= latest + MOMENT_S:
        text = f"after {before.last} ({before.verdict}) comes {planned}, and should between {earliest} and {latest}"
        yield Violation("unaccounted", before.service, text)


def _wrong_count(timing: Timing, slot: Slot) -> str | None:
    if slot.count == 1:
        return None if slot.last == slot.planned else f"one slot, from {slot.planned} to {slot.last}"
    last, count = timing.latest(slot.planned, slot.last)
    if (last, count) == (slot.last, slot.count):
        return None
    return f"{slot.count} slots from {slot.planned} to {slot.last}, and there are {count} up to {last}"


def _following(
    timing: Timing, has_beat: bool, slot: Slot, by_run: dict[str, Execution], ends: dict[str, Run], tentative: set[str]
) -> tuple[float, float]:
    """Between which times the next slot lies."""
    exact = timing.after(slot=slot.last, end=slot.last, origin=slot.last)
    run = None if slot.run is None else by_run.get(slot.run)
    if isinstance(timing, Every) and timing.anchor == "grid" and slot.run in tentative:
        # Those that came while it ran have no line before its cycle is taken up.
        return exact, timing.after(slot=slot.last, end=slot.recorded, origin=slot.last)
    if not isinstance(timing, Every) or timing.anchor == "grid" or (timing.anchor == "slot" and not has_beat):
        return exact, exact
    every_s = timing.every_s
    if timing.anchor == "slot":
        return exact, exact if run is None else run.start.shown + every_s
    end = None if slot.run is None or slot.run not in ends else ends[slot.run].end
    if end is not None:
        return end + every_s, end + every_s
    return exact, slot.recorded + every_s


def _open_end(
    facts: Facts, plans: Plans, name: str, last: Slot, by_run: dict[str, Execution], ends: dict[str, Run]
) -> Iterator[Violation]:
    """What is planned follows the last line."""
    row = facts.history.dump.timing.get(name)
    if row is None or row.last_run_id in facts.tentative or facts.is_stepped:
        return
    planned = row.next_due if row.open is None else row.open
    is_lost = last.run is None and facts.is_parted(last.recorded)
    is_cut = is_lost or facts.is_cut_off(last, facts.wall(facts.read))
    if planned == last.planned and is_cut and plans.at(name, facts.read) is None:
        return  # between the line and the row; whoever looks next moves on, and nobody does
    if planned <= last.last:
        text = f"{planned} is planned, and {last.planned} to {last.last} was {last.verdict}"
        yield Violation("unaccounted", name, text)
        return
    yield from _hole(plans, last, planned, facts.wall(facts.read), by_run, ends)
