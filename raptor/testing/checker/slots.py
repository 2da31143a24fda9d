"""Runs for slots: none too early, none twice without a cause, one at a time, in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.history import Image
from raptor.testing.checker.plans import Plans
from raptor.testing.checker.violation import Violation

MOMENT_S = 1e-6


def judge_slots(facts: Facts, plans: Plans) -> Iterator[Violation]:
    recorded = {slot.run for slot in facts.slots if slot.verdict == "done"}
    for name, runs in facts.of_service.items():
        yield from overlaps(facts, name, runs)
        of_slot: dict[tuple[float, int], list[Execution]] = defaultdict(list)
        for run in runs:
            if run.start.scheduler is None:
                continue
            is_moved = run.start.attempt > 1 and facts.epoch(run.start.at) > 0  # together with its slot
            if not facts.has_come(run.start) and not is_moved:
                early_s = run.start.planned - run.start.shown
                yield Violation("early", name, f"run {run.start.run} began {early_s} s before its slot")
            of_slot[run.start.planned, facts.epoch_of(run.start)].append(run)
        # Of a node that stood still, what it begins when it wakes is for a slot that others have passed.
        in_time = ([run for run in tries if not facts.is_belated(run)] for tries in of_slot.values())
        yield from _too_soon(facts, plans, name, [tries[0] for tries in in_time if tries])
        for (planned, _), tries in of_slot.items():
            yield from _wrong_in_any_order(facts, f"{name} for {planned}", tries, recorded)
        yield from _unwanted(facts, name, runs)
    for name, runs in facts.of_scheduler.items():
        yield from overlaps(facts, f"scheduler {name}", runs)
        yield from _disorder(plans, name, runs)
    yield from _after_images(facts)
    yield from _excess(facts)


def overlaps(facts: Facts, subject: str, runs: Sequence[Execution]) -> Iterator[Violation]:
    """Two runs at a time of what runs once at a time, unless the node of the first had lost it."""
    # What a node that stood still begins when it wakes has no right to be there, and hides nothing of the others.
    for before, run in pairwise(run for run in runs if not facts.is_belated(run)):
        if before.over < run.begun:
            continue
        if before.end is None and facts.is_over(before, run.start.at):
            continue
        if (before.end is None or facts.bounds.shared) and facts.is_lost(before, run.start.at):
            continue
        text = f"run {before.start.run} went on when {run.start.run} had begun"
        yield Violation("overlap", subject, text)


def _wrong_in_any_order(
    facts: Facts, subject: str, tries: Sequence[Execution], recorded: set[str | None]
) -> Iterator[Violation]:
    """A node that woke began what it had decided on before it stood still, or what it took over since."""
    found = list(_wrong_tries(facts, subject, tries, recorded))
    if found and any(facts.since(run) < run.start.at for run in tries):
        found = list(_wrong_tries(facts, subject, sorted(tries, key=facts.since), recorded)) and found
    yield from found


def _wrong_tries(
    facts: Facts, subject: str, tries: Sequence[Execution], recorded: set[str | None]
) -> Iterator[Violation]:
    """All runs for one slot: the first, and those that the end of the one before explains."""
    service = facts.declared(tries[0].start.service)
    first = tries[0].start
    is_moved = facts.epoch(first.at) > 0  # by a step of the clock, with the tries before it
    if first.attempt != 1 and not is_moved and not facts.has_died(None, first.planned, first.at):
        yield Violation("attempts", subject, f"its first run was attempt {first.attempt}")
    for place, (before, run) in enumerate(pairwise(tries)):
        told, last = run.start.attempt, before.start.attempt
        has_failed = before.what == "fail" or facts.is_broken_off(before, run.start.at)
        has_failed = has_failed or facts.has_died(before, before.start.at, run.start.at)
        is_lost = facts.is_lost(before, run.start.at) or facts.is_cut_short(before)
        if any(one.start.run in recorded and one.what == "end" for one in tries[: place + 1]):
            yield Violation("repeated", subject, f"run {run.start.run}, after a success that is recorded")
        elif not has_failed and not is_lost and before.what != "cut":
            yield Violation("extra", subject, f"run {run.start.run}, after one that says {before.what}")
        elif not has_failed and service.on_crash == "skip":
            yield Violation("extra", subject, f"run {run.start.run}, of a service that is not repeated after a crash")
        elif told not in ([last + 1] if has_failed and not is_lost else [last, last + has_failed]):
            yield Violation("attempts", subject, f"run {run.start.run} was attempt {told}, after attempt {last}")
    most = max(run.start.attempt for run in tries)
    if service.max_attempts is not None and most > service.max_attempts:
        yield Violation("attempts", subject, f"attempt {most} of {service.max_attempts}")


def _too_soon(facts: Facts, plans: Plans, name: str, firsts: Sequence[Execution]) -> Iterator[Violation]:
    """An interval lies between two slots, counted as the service says."""
    closing = {slot.run for slot in facts.slots}
    for before, run in pairwise(firsts):
        found = plans.over(name, before.start.at, run.start.at)
        if found is None or facts.epoch(run.start.at) > 0:
            continue  # a step of the clock moves slots along, sooner or later
        timing, _ = found
        planned, last = run.start.planned, before.start.planned
        if timing.every_s is None:
            if timing.first(planned) != planned:
                yield Violation("early", name, f"run {run.start.run} for {planned}, which is no time of its calendar")
        elif planned < last + timing.every_s - MOMENT_S:
            yield Violation("early", name, f"run {run.start.run} for {planned}, less than an interval after {last}")
        elif facts.declared(name).anchor == "end" and before.start.run in closing:
            end = planned if before.end is None else before.end.shown
            if before.end is not None and planned < end + timing.every_s - MOMENT_S:
                text = f"run {run.start.run} for {planned}, less than an interval after the end {end}"
                yield Violation("early", name, text)


def _unwanted(facts: Facts, name: str, runs: Sequence[Execution]) -> Iterator[Violation]:
    """A service that passes over what it missed runs for no slot that came while nobody was there."""
    if facts.declared(name).missed != "skip" or facts.is_stepped or not facts.history.lives:
        return
    before: Execution | None = None
    for run in runs:
        at, is_open = run.start.planned, before is not None and before.what != "end"  # what failed is tried again
        began = next((life.at for life in facts.history.lives if life.life == run.start.life), at)
        # A slot stands on a whole microsecond: the last one before the moment at which a life first looks.
        was_there = any(
            life.at - MOMENT_S < at and (life.ended is None or life.ended >= at) for life in facts.history.lives
        )
        if run.start.scheduler is not None and not is_open and at <= began - MOMENT_S and not was_there:
            yield Violation("extra", name, f"run {run.start.run} for {at}, when nobody was there")
        before = run


def _disorder(plans: Plans, scheduler: str, runs: Sequence[Execution]) -> Iterator[Violation]:
    """What was due at one check runs in the order of the list. Tries of what failed have checks of their own."""
    ended_well: dict[str, bool] = {}
    plain: list[bool] = []  # whether a run is no try of what failed
    for run in runs:
        plain.append(run.start.attempt == 1 and ended_well.get(run.start.service, True))
        ended_well[run.start.service] = run.what == "end"
    for (before, run), are_plain in zip(pairwise(runs), map(all, pairwise(plain)), strict=True):
        first, second = (plans.at(one.start.service, one.start.at) for one in (before, run))
        if first is None or second is None or not are_plain or second.service.missed == "all":
            continue
        is_one_list = (first.since, first.scheduler) == (second.since, scheduler)
        was_due = run.start.planned <= before.start.planned or (
            run.start.cycle != "" and run.start.cycle == before.start.cycle
        )
        if is_one_list and second.position < first.position and was_due and not _hindered(plans, before, run):
            text = f"{before.start.service} ran before {run.start.service}, which was due and stands before it"
            yield Violation("order", f"scheduler {scheduler}", text)


def _hindered(plans: Plans, before: Execution, run: Execution) -> bool:
    """Whether the one that came later could not run with the other: it ran by hand, or somebody was disturbed."""
    own = plans.facts.of_service.get(run.start.service, [])
    by_hand = any(
        one.start.scheduler is None and one.start.at <= run.start.at and one.until >= run.start.planned for one in own
    )
    return by_hand or plans.is_disturbed(before.start.planned, run.start.at)


def _after_images(facts: Facts) -> Iterator[Violation]:
    """Nothing runs for a slot whose success an image of the store shows."""
    by_run = {run.start.run: run for run in facts.executions if run.start.task is None}
    first: dict[str, Image] = {}  # that shows the success of a run
    for image in sorted(facts.history.images, key=lambda image: image.seen):
        for id in image.recorded:
            first.setdefault(id, image)
    of_slot: dict[tuple[object, ...], list[Execution]] = defaultdict(list)
    for run in by_run.values():
        of_slot[_slot(facts, run)].append(run)
    for id, image in first.items():
        for run in of_slot[_slot(facts, by_run[id])] if id in by_run else ():
            if run.begun >= image.seen and not facts.is_belated(run, image.at):
                text = f"run {run.start.run} for {run.start.planned}, whose success was recorded by {image.at}"
                yield Violation("repeated", run.start.service, text)


def _slot(facts: Facts, run: Execution) -> tuple[object, ...]:
    return run.start.service, run.start.scheduler, run.start.planned, facts.epoch_of(run.start)


def _excess(facts: Facts) -> Iterator[Violation]:
    """A disturbance may cost the one run that a scheduler has in flight."""
    for name, runs in facts.of_scheduler.items():
        last: dict[tuple[str, float, int], Execution] = {}
        repeated = 0
        for run in runs:
            key = run.start.service, run.start.planned, facts.epoch_of(run.start)
            before = last.get(key)
            repeated += before is not None and before.what not in ("fail", "cut") and not facts.is_broken_off(
                before, run.start.at
            )  # fmt: skip
            last[key] = run
        if repeated > facts.cost:
            text = f"{repeated} runs were repeated, for {facts.cost} disturbances"
            yield Violation("extra", f"scheduler {name}", text)
