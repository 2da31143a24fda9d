"""Damage to what a history says of slots, cycles and schedulers."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

from raptor.task import Slot
from raptor.testing.checker import History, Image, Line
from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.plans import Plans
from tests.checker.damage_tasks import Damage, added, pick, replace, with_lines

LOOKED_AT = 8  # slots, for one that damage of its time can be done to


def with_slots(history: History, slots: Iterable[Slot]) -> History:
    return replace(history, dump=replace(history.dump, slots=tuple(slots)))


def changed(history: History, slot: Slot, /, **columns: object) -> History:
    return with_slots(history, (replace(one, **columns) if one is slot else one for one in history.dump.slots))


def without(history: History, run: str | None) -> History:
    return with_lines(history, (line for line in history.lines if line.run != run))


def done(history: History) -> list[Slot]:
    return [slot for slot in history.dump.slots if slot.verdict == "done"]


def between(history: History) -> list[Slot]:
    """Slots that are neither the first nor the last of their service."""
    by_service: dict[str, list[Slot]] = {}
    for slot in sorted(history.dump.slots, key=lambda slot: slot.planned):
        by_service.setdefault(slot.service, []).append(slot)
    return [slot for slots in by_service.values() for slot in slots[1:-1]]


def done_between(history: History) -> list[Slot]:
    return [slot for slot in between(history) if slot.verdict == "done"]


def undisturbed(history: History, rng: random.Random) -> tuple[Slot, Execution, float] | None:
    """A done slot that ran on time, with nothing that would have excused another time; and how late it may be."""
    facts = Facts(history)
    plans, runs = Plans(facts), {run.start.run: run for run in facts.executions}
    slots = done_between(history)
    for slot in rng.sample(slots, min(len(slots), LOOKED_AT)):
        run, plan = runs[slot.run or ""], plans.at(slot.service, slot.planned)
        if plan is None or run.start.attempt != 1 or plan.service.missed == "all" or not plan.holds(run.until + 30):
            continue
        slack = plans.slack(plan)
        if plan.every_s is not None and plan.every_s <= 4 * slack:
            continue
        blocked = Plans(Facts(without(history, slot.run))).blocked(plan)
        if blocked.meeting(slot.planned - 1.0, slot.planned + 3 * slack) is None:
            return slot, run, slack
    return None


def skip_slot(history: History, rng: random.Random) -> History | None:
    """Neither a run nor a line of the ledger."""
    found = undisturbed(history, rng)
    if found is None:
        return None
    slot = found[0]
    return with_slots(without(history, slot.run), (one for one in history.dump.slots if one is not slot))


def say_missed(history: History, rng: random.Random) -> History | None:
    found = undisturbed(history, rng)
    if found is None:
        return None
    return changed(without(history, found[0].run), found[0], verdict="missed", reason="node down", run=None)


def say_overlap(history: History, rng: random.Random) -> History | None:
    found = undisturbed(history, rng)
    if found is None:
        return None
    return changed(without(history, found[0].run), found[0], verdict="skipped", reason="overlap", run=None)


def run_late(history: History, rng: random.Random) -> History | None:
    found = undisturbed(history, rng)
    if found is None:
        return None
    slot, run, slack = found
    by = slot.planned + 2.5 * slack - run.start.at
    moved = (replace(line, at=line.at + by) if line.run == slot.run else line for line in history.lines)
    return with_lines(history, sorted(moved, key=lambda line: line.at))


def forget_slot(history: History, rng: random.Random) -> History | None:
    facts = Facts(history)
    plans = Plans(facts)
    slots = [slot for slot in done_between(history) if plans.over(slot.service, 0.0, facts.read) is not None]
    slot = pick(rng, (slot for slot in slots if not _is_loose(plans, slot)))
    return None if slot is None else with_slots(history, (one for one in history.dump.slots if one is not slot))


def _is_loose(plans: Plans, slot: Slot) -> bool:
    """Whether its result may be lost, so that nothing is amiss without it."""
    facts = plans.facts
    run = next(run for run in facts.of_service[slot.service] if run.start.run == slot.run)
    until = run.until + facts.bounds.settle_s
    return facts.is_lost(run, until) or facts.has_died(run, run.start.at, until)


def tell_twice(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    return None if slot is None else with_slots(history, [*history.dump.slots, slot])


def done_unrun(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    return None if slot is None else without(history, slot.run)


def done_by_nobody(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    return None if slot is None else changed(history, slot, run="nobody")


def done_by_failure(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    if slot is None:
        return None
    failing = (replace(one, what="fail") if one.run == slot.run and one.what == "end" else one for one in history.lines)
    return with_lines(history, failing)


def failed_by_success(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    return None if slot is None else changed(history, slot, verdict="failed", reason="no")


def start_early(history: History, rng: random.Random) -> History | None:
    starts = [line for line in history.lines if line.what == "start" and line.task is None and line.attempt == 1]
    seen: set[tuple[str, float]] = set()
    firsts: list[Line] = []
    for line in starts:
        if (line.service, line.planned) not in seen:
            firsts.append(line)
        seen.add((line.service, line.planned))
    found = pick(rng, firsts)
    if found is None:
        return None
    early = (replace(one, at=one.planned - 0.001) if one is found else one for one in history.lines)
    return with_lines(history, early)


def repeat(history: History, rng: random.Random) -> History | None:
    """A slot runs again whose success is recorded."""
    slot = pick(rng, done(history))
    if slot is None:
        return None
    start, end = (line for line in history.lines if line.run == slot.run)
    at = max(end.at, history.dump.at - 0.5)
    return added(history, *(replace(start, what=what, run="again", at=at) for what in ("start", "end")))


def recorded_before(history: History, rng: random.Random) -> History | None:
    """An image shows a success, and the run comes afterwards."""
    slot = pick(rng, done(history))
    if slot is None:
        return None
    place = next(number for number, line in enumerate(history.lines) if line.run == slot.run)
    image = Image(at=history.lines[place].at, seen=place, recorded=(slot.run or "",))
    return replace(history, images=(*history.images, image))


def run_side_by_side(history: History, rng: random.Random) -> History | None:
    facts = Facts(history)
    pairs = [
        (before, run)
        for before, run in pairwise(facts.of_scheduler.get("main", []))
        if before.what in ("end", "fail") and not facts.is_lost(before, run.start.at) and run.over == run.begun + 1
    ]
    found = pick(rng, pairs)
    if found is None:
        return None
    before, run = found
    lines = [line for number, line in enumerate(history.lines) if number != run.begun]
    lines.insert(int(before.over), run.start)
    return with_lines(history, lines)


def rerun_after_crash(history: History, rng: random.Random) -> History | None:
    """A service runs again that is not to be repeated after a crash."""
    facts = Facts(history)
    spared = {service.name for service in history.services if service.on_crash == "skip"}
    lost = [
        run
        for run in facts.executions
        if run.start.task is None and run.start.service in spared and run.end is None
        and not facts.is_broken_off(run, facts.read)
    ]  # fmt: skip
    run = pick(rng, lost)
    if run is None:
        return None
    at = history.dump.at - 0.5
    return added(history, *(replace(run.start, what=what, run="again", at=at) for what in ("start", "end")))


def unasked(verdict: str, reason: str) -> Damage:
    def damage(history: History, rng: random.Random) -> History | None:
        kept = {service.name for service in history.services if service.on_crash == "rerun"}
        slot = pick(rng, (slot for slot in done(history) if slot.service in kept))
        return None if slot is None else changed(history, slot, verdict=verdict, reason=reason, run=None)

    return damage


def miscount(history: History, rng: random.Random) -> History | None:
    facts = Facts(history)
    plans = Plans(facts)
    ranges = [slot for slot in between(history) if slot.count > 1]
    slot = pick(rng, (slot for slot in ranges if plans.over(slot.service, 0.0, facts.read) is not None))
    return None if slot is None else changed(history, slot, count=slot.count + 1)


def off_the_grid(history: History, rng: random.Random) -> History | None:
    """A slot that is not on the timetable, by all accounts."""
    slot = pick(rng, done_between(history))
    if slot is None or history.dump.definitions["main"].interval_s is not None:
        return None
    by = 0.25
    lines = (
        replace(one, planned=one.planned + by, at=one.at + by) if one.run == slot.run else one for one in history.lines
    )
    moved = with_lines(history, lines)
    declared = next(one for one in history.services if one.name == slot.service)
    if declared.anchor == "end":
        return None
    return changed(moved, slot, planned=slot.planned + by, last=slot.last + by)


def count_wrong(history: History, rng: random.Random) -> History | None:
    slot = pick(rng, done(history))
    facts = Facts(history)
    if slot is None or any(fault.what == "child" for fault in facts.faults):
        return None
    lines = (replace(one, attempt=one.attempt + 3) if one.run == slot.run else one for one in history.lines)
    return with_lines(history, lines)


def lose_definition(history: History, rng: random.Random) -> History | None:
    main = history.dump.definitions["main"]
    definitions = rng.choice([{}, {"main": replace(main, services=main.services[:-1])}])
    return replace(history, dump=replace(history.dump, definitions=definitions)) if history.dump.timing else None


def freeze_plan(history: History, rng: random.Random) -> History | None:
    """What is planned has long been."""
    name = pick(rng, (slot.service for slot in done(history)))
    if name is None:
        return None
    row = history.dump.timing[name]
    past = replace(row, next_due=row.next_due - 5000.0, open=None, retry_at=None)
    return replace(history, dump=replace(history.dump, timing={**history.dump.timing, name: past}))


def stand_still(history: History, rng: random.Random) -> History | None:
    """Nothing runs any more, and nobody was disturbed."""
    facts = Facts(history)
    plans = Plans(facts)
    plan = plans.at(next(iter(history.dump.timing), ""), facts.read)
    if plan is None or not plan.is_fixed or plan.every_s is None or len(history.dump.timing) > 1:
        return None
    at = facts.read - 3 * plan.every_s - 60
    before = {run.start.run for run in facts.of_scheduler.get("main", ()) if run.start.at < at}
    left = [slot for slot in history.dump.slots if slot.recorded >= at]
    if at < max(facts.calm_since, plan.since) + history.bounds.recover_s or not left or not before:
        return None
    lines = (line for line in history.lines if line.task is not None or line.run in before)
    slots = tuple(slot for slot in history.dump.slots if slot not in left)
    row = replace(history.dump.timing[plan.service.name], next_due=min(slot.planned for slot in left), retry_at=None)
    dump = replace(history.dump, slots=slots, timing={plan.service.name: replace(row, open=None)})
    return replace(with_lines(history, lines), dump=dump)


def disorder(history: History, rng: random.Random) -> History | None:
    """The list is the other way round than what ran."""
    plans = Plans(Facts(history))
    runs = plans.facts.of_scheduler.get("main", [])
    ended_well: dict[str, bool] = {}
    plain: list[bool] = []
    for run in runs:
        plain.append(run.start.attempt == 1 and ended_well.get(run.start.service, True))
        ended_well[run.start.service] = run.what == "end"
    for place, (before, run) in enumerate(pairwise(runs)):
        first, second = (plans.at(one.start.service, one.start.at) for one in (before, run))
        if not (plain[place] and plain[place + 1]) or first is None or second is None or first.since != second.since:
            continue
        is_one_check = before.start.planned == run.start.planned and before.start.service != run.start.service
        is_late = plans.is_disturbed(run.start.planned, run.start.at)
        if is_one_check and not is_late and second.service.missed != "all":
            return _reversed(history)
    return None


def _reversed(history: History) -> History:
    commands = tuple(
        one if one.definition is None
        else replace(one, definition=replace(one.definition, services=one.definition.services[::-1]))
        for one in history.commands
    )  # fmt: skip
    main = history.dump.definitions["main"]
    dump = replace(history.dump, definitions={"main": replace(main, services=main.services[::-1])})
    return replace(history, commands=commands, dump=dump)


SLOT_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "a slot has neither a run nor a line": (skip_slot, {"missed", "unaccounted"}),
    "a slot is missed while everybody was there": (say_missed, {"missed", "unaccounted", "unfounded"}),
    "a slot is skipped as overlap without a run": (say_overlap, {"missed", "unaccounted"}),
    "a slot runs late": (run_late, {"late"}),
    "a line of the ledger is lost": (forget_slot, {"unaccounted"}),
    "a slot has two lines": (tell_twice, {"unaccounted"}),
    "a slot is done without a run": (done_unrun, {"unfounded"}),
    "a slot is done by nobody": (done_by_nobody, {"unfounded"}),
    "a slot is done by a run that failed": (done_by_failure, {"unfounded"}),
    "a slot failed by a run that did not": (failed_by_success, {"unfounded"}),
    "a slot runs early": (start_early, {"early"}),
    "a recorded slot runs again": (repeat, {"repeated"}),
    "a slot runs that an image shows as done": (recorded_before, {"repeated"}),
    "a scheduler runs two at a time": (run_side_by_side, {"overlap"}),
    "what is not to be repeated is": (rerun_after_crash, {"extra"}),
    "a slot is paused unasked": (unasked("skipped", "paused"), {"unfounded"}),
    "a slot is removed unasked": (unasked("skipped", "removed"), {"unfounded"}),
    "a slot is given up that was to run again": (unasked("skipped", "interrupted"), {"unfounded"}),
    "a range is counted wrong": (miscount, {"unaccounted"}),
    "a slot is off its grid": (off_the_grid, {"unaccounted"}),
    "tries are counted wrong": (count_wrong, {"attempts"}),
    "a definition is lost": (lose_definition, {"lost"}),
    "a plan lies in the past": (freeze_plan, {"stuck", "unaccounted"}),
    "a scheduler stands still": (stand_still, {"missed", "late", "stuck"}),
    "a cycle runs out of order": (disorder, {"order"}),
}
