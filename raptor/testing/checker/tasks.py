"""What the tasks of a history must be: none lost, none run twice without a cause, and rows that tell the truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from raptor.settlement import CANCELLED, LAPSED, LIVES, REPEATED
from raptor.task import ENDED, PENDING, State, Try
from raptor.testing.checker.facts import Execution, Facts
from raptor.testing.checker.history import Image, Kept
from raptor.testing.checker.slots import overlaps
from raptor.testing.checker.violation import Kind, Violation

JUDGED = ("failed", "lapsed", "poison")
"""Reasons of a dead task that Raptor itself gave after a run."""

MOMENT_S = 1e-6
"""Due times are whole microseconds."""


def judge_tasks(facts: Facts) -> Iterator[Violation]:
    tasks = facts.history.dump.tasks
    known = {task.id for task in tasks}
    for command in facts.commands("put"):
        if command.acked is not None and command.task is not None and command.task not in known:
            yield Violation("lost", f"task {command.task}", "it was acknowledged and is gone")
    for id, runs in facts.of_task.items():
        yield from overlaps(facts, f"task {id}", runs)
    yield from _early(facts)
    yield from _after_images(facts)
    yield from _series(facts)
    yield from _excess(facts)
    for task in tasks:
        for kind, text in _wrong(facts, task):
            yield Violation(kind, f"task {task.id} ({task.service})", text)


def _wrong(facts: Facts, task: Kept) -> Iterator[tuple[Kind, str]]:
    runs = facts.of_task.get(task.id, [])
    fences = [run.start.fence for run in runs]
    if sorted(set(fences)) != fences or (fences and fences[-1] > task.fence):
        yield "fence", f"runs {fences}, and the row says {task.fence}"
    yield from _stuck(facts, task, runs)
    yield from _wrong_end(facts, task, runs)
    if task.id not in facts.revived:
        yield from _wrong_tries(facts, task, runs)


def _stuck(facts: Facts, task: Kept, runs: Sequence[Execution]) -> Iterator[tuple[Kind, str]]:
    if task.state not in PENDING:
        return
    since = max(task.due, facts.wall(facts.calm_since))
    if task.state is State.TAKEN:
        since = max(since, task.started or 0.0)
        if runs and runs[-1].end is None and not facts.is_lost(runs[-1], facts.read):
            since = max(since, runs[-1].start.shown + facts.bounds.run_s)
        elif runs and runs[-1].end is not None:
            since = max(since, runs[-1].end.shown)
    if since + facts.bounds.settle_s < facts.wall(min(facts.last_alive, facts.read)):
        yield "stuck", f"it is {task.state} in the end, and was due at {task.due}"


def _early(facts: Facts) -> Iterator[Violation]:
    earliest = {
        command.task: command.due
        for command in facts.commands("put")
        if command.acked is not None and command.new and command.due is not None
    }
    for id, runs in facts.of_task.items():
        for run in runs:
            if not facts.has_come(run.start):
                early_s = run.start.planned - run.start.shown
                yield Violation("early", f"task {id}", f"run {run.start.fence} began {early_s} s early")
        due = earliest.get(id)
        if due is not None and runs[0].start.planned < due - MOMENT_S and id not in facts.revived:
            yield Violation("early", f"task {id}", f"it was put for {due}, and ran for {runs[0].start.planned}")


def _after_images(facts: Facts) -> Iterator[Violation]:
    """Nothing runs that an image of the store shows as ended."""
    first: dict[int, Image] = {}  # that shows a task as ended
    for image in sorted(facts.history.images, key=lambda image: image.seen):
        for id in image.ended:
            first.setdefault(id, image)
    for id, image in first.items():
        for run in facts.of_task.get(id, ()):
            if run.begun >= image.seen and id not in facts.revived and not facts.is_belated(run, image.at):
                text = f"it had ended by {image.at}, and ran in life {run.start.life}"
                yield Violation("repeated", f"task {id}", text)
    for image in facts.history.images:
        for owner, count in Counter(image.taken).items():
            is_late = facts.is_late(image.at)  # what had ended could not be recorded, and gave up its lane
            if count > facts.bounds.lanes * (1 + is_late):
                text = f"{count} tasks were taken at {image.at}, for {facts.bounds.lanes} lanes"
                yield Violation("extra", f"owner {owner}", text)


def _series(facts: Facts) -> Iterator[Violation]:
    """Each that repeats has one successor when it has ended, and none before."""
    tasks, following = facts.history.dump.tasks, Counter[int]()
    ends = {task.id: task.ended for task in tasks if task.id not in facts.revived}
    for task in tasks:
        if task.timing is not None and task.parent is not None:
            following[task.parent] += 1
            end = ends.get(task.parent)
            if end is not None and task.due < end - MOMENT_S and not facts.is_stepped:
                text = f"its successor {task.id} is due at {task.due}, before its end at {end}"
                yield Violation("series", f"task {task.parent}", text)
    for task in tasks:
        if task.timing is None:
            continue
        is_over = task.state in ENDED and not (task.state is State.CANCELLED and task.reason == CANCELLED)
        # One that was revived had ended before, and may have its successor from then.
        if following[task.id] not in (is_over, task.id in facts.revived or is_over):
            text = f"it is {task.state} and has {following[task.id]} successors"
            yield Violation("series", f"task {task.id}", text)


def _wrong_end(facts: Facts, task: Kept, runs: Sequence[Execution]) -> Iterator[tuple[Kind, str]]:
    """The end that the row tells is that of its last run."""
    if task.state not in ENDED:
        return
    last = runs[-1] if runs and runs[-1].start.fence == task.fence else None
    ended = "nothing" if last is None else last.what
    asked = last.end.asked if last is not None and last.end is not None else ""
    if task.state is State.DONE:
        if ended != "end" or asked not in ("", "done"):
            others = any(run.what == "end" and run.end is not None and not run.end.asked for run in runs)
            yield ("stale" if others else "unfounded"), f"done, and its run {task.fence} says {asked or ended}"
    elif task.state is State.CANCELLED:
        yield from _wrong_cancel(facts, task, last, asked)
    elif task.reason == "failed":
        is_failed = ended == "fail" or asked == "retry" or (last is not None and facts.is_broken_off(last, facts.read))
        if not is_failed and not facts.has_died(last, task.started, task.ended):
            yield "unfounded", f"dead, and its run {task.fence} says {asked or ended}"
    elif task.reason == "lapsed":
        if last is not None and not facts.is_lost(last, facts.by(task.ended)):
            yield "unfounded", f"lapsed, and life {last.start.life} was not disturbed"
        elif last is not None and not facts.is_stepped and facts.is_concealed(last, task.ended or 0.0):
            yield "unfounded", f"lapsed, and life {last.start.life} stopped without a word of it"
    elif task.reason == "poison" and not facts.has_died(last, task.started, task.ended):
        yield "unfounded", f"poison, and its run {task.fence} says {asked or ended}"
    if task.state is State.DEAD and task.reason in ("failed", "lapsed") and task.attempts < (task.max_attempts or 0):
        yield "attempts", f"{task.reason} after {task.attempts} attempts of {task.max_attempts}"


def _wrong_cancel(facts: Facts, task: Kept, last: Execution | None, asked: str) -> Iterator[tuple[Kind, str]]:
    if asked == "skipped":
        return
    if task.reason == "interrupted":
        spared = facts.declared(task.service).on_crash == "skip"
        if not spared or (last is not None and not facts.is_lost(last, facts.by(task.ended))):
            yield "unfounded", "given up as interrupted, and it was to run again or was not disturbed"
    elif task.id not in facts.cancelled:
        yield "lost", f"it is cancelled ({task.reason}), and nobody asked for that"


def _wrong_tries(facts: Facts, task: Kept, runs: Sequence[Execution]) -> Iterator[tuple[Kind, str]]:
    """Each run is the last one, or a try that the row remembers; and the counts are theirs."""
    if task.max_attempts is not None and task.attempts >= task.max_attempts and task.state is not State.DEAD:
        yield "attempts", f"{task.state} after {task.attempts} attempts of {task.max_attempts}"
    yield from _wrong_count(task, runs)
    if len(task.history) >= LIVES or facts.is_stepped:
        return  # some are forgotten, or their times say nothing
    place = 0
    for run in runs:
        found = _place(facts, task, run, place)
        if _is_last(task, run, found):
            yield from _wrong_telling(run, task.history)
            continue
        if found is None:
            yield "unaccounted", f"run {run.start.fence} of life {run.start.life} is in no try of the row"
            continue
        for past in task.history[place:found]:
            yield from _wrong_try(facts, past, None)
        yield from _wrong_try(facts, task.history[found], run)
        yield from _wrong_telling(run, task.history[:found])
        place = found + 1
    for past in task.history[place:]:
        yield from _wrong_try(facts, past, None)


def _is_last(task: Kept, run: Execution, place: int | None) -> bool:
    """Whether a run is the one that goes on, or that ended its task: it is in no try after those of the runs before."""
    if run.start.fence < task.fence or task.state is State.READY:
        return False
    # It may begin at the moment that a try before it ended, which it was told of.
    return task.state is not State.CANCELLED or place is None or _failures(task.history[:place]) != run.start.attempt


def _wrong_telling(run: Execution, before: Sequence[Try]) -> Iterator[tuple[Kind, str]]:
    """A run is told how many tries before it failed."""
    if run.start.attempt != (failed := _failures(before)):
        yield "attempts", f"run {run.start.fence} was told of {run.start.attempt} failures, after {failed}"


def _failures(history: Sequence[Try]) -> int:
    return sum(past.verdict == "retry" for past in history)


def _wrong_count(task: Kept, runs: Sequence[Execution]) -> Iterator[tuple[Kind, str]]:
    if len(task.history) >= LIVES:
        return
    failed = sum(past.verdict == "retry" for past in task.history)
    last = runs[-1] if runs and runs[-1].start.fence == task.fence else None
    gave_up = last is not None and last.end is not None and last.end.asked == "failed"
    is_failure = task.state is State.DEAD and (task.reason in JUDGED or gave_up)
    if task.attempts != failed + is_failure:
        yield "attempts", f"{task.attempts} attempts, for {failed + is_failure} that failed or lapsed"


def _place(facts: Facts, task: Kept, run: Execution, first: int) -> int | None:
    """Which try of the row a run is: the one it began in, or, of a node that stood still before, began after."""
    begun = [past.end if past.start is None else past.start for past in task.history]
    ends = [past.end for past in task.history]
    for since in (run.start.shown, facts.since(run)):
        places = [at for at in range(first, len(ends)) if begun[at] <= run.start.shown and since <= ends[at]]
        if places:
            # Of two that meet at the moment it began, the one that it was told of, that lasted as long as it did, and
            # that began last; but each had a fence of its own.
            return max(
                places,
                key=lambda at: (
                    _failures(task.history[:at]) == run.start.attempt,
                    _lasted(run, ends[at]),
                    begun[at] if at < run.start.fence else -math.inf,
                ),
            )
    return None


def _lasted(run: Execution, end: float) -> bool:
    """Whether a try went on to the last that was heard of a run; one that says nothing more lasted for a while."""
    return end > run.start.shown if run.end is None else end >= run.end.shown


def _wrong_try(facts: Facts, past: Try, run: Execution | None) -> Iterator[tuple[Kind, str]]:
    what = "nothing" if run is None else run.what
    asked = run.end.asked if run is not None and run.end is not None else ""
    is_cut_short = run is not None and facts.is_cut_short(run)
    if past.info == LAPSED.info:
        if past.verdict != "retry":
            yield "attempts", f"it lapsed, which is {past.verdict} and cost no attempt"
        if run is not None and not facts.is_lost(run, facts.by(past.end)):
            yield "unfounded", f"run {run.start.fence} lapsed, and life {run.start.life} was not disturbed"
        elif run is not None and facts.is_concealed(run, past.end):
            yield "unfounded", f"run {run.start.fence} lapsed, and life {run.start.life} stopped without a word of it"
    elif past.verdict == "retry":
        is_failed = what == "fail" or asked == "retry" or (run is not None and facts.is_broken_off(run, facts.read))
        if not is_failed and not facts.has_died(run, past.start, past.end):
            yield "unfounded", f"a try that failed, and its run says {asked or what}"
    elif past.verdict == "again" and what not in ("nothing", "cut") and asked != "again" and not is_cut_short:
        yield "unfounded", f"a try that was broken off, and its run says {asked or what}"


def _excess(facts: Facts) -> Iterator[Violation]:
    """A disturbance may cost what was in the lanes, and no more."""
    extra = 0
    for task in facts.history.dump.tasks:
        costly = sum(past.info != LAPSED.info and past.verdict != REPEATED for past in task.history)
        if len(task.history) < LIVES and task.id not in facts.revived:
            extra += max(0, len(facts.of_task.get(task.id, ())) - 1 - costly)
    if extra > facts.cost * facts.bounds.lanes:
        text = f"{extra} runs too many, for {facts.cost} disturbances of {facts.bounds.lanes} lanes"
        yield Violation("extra", "tasks", text)
