"""Damage to what a history says of tasks. Each kind is done where it applies, and is then to be told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from raptor.settlement import LAPSED
from raptor.task import State
from raptor.testing.checker import History, Image, Kept, Line
from raptor.testing.checker.facts import Execution, Facts

T = TypeVar("T")
Damage = Callable[[History, random.Random], History | None]

replace = msgspec.structs.replace


def pick(rng: random.Random, found: Iterable[T]) -> T | None:
    found = list(found)
    return rng.choice(found) if found else None


def with_tasks(history: History, tasks: Iterable[Kept]) -> History:
    return replace(history, dump=replace(history.dump, tasks=tuple(tasks)))


def changed(history: History, task: Kept, /, **columns: object) -> History:
    return with_tasks(history, (replace(one, **columns) if one is task else one for one in history.dump.tasks))


def with_lines(history: History, lines: Iterable[Line]) -> History:
    return replace(history, lines=tuple(lines))


def added(history: History, *lines: Line) -> History:
    return with_lines(history, sorted([*history.lines, *lines], key=lambda line: line.at))


def runs_of(history: History, task: Kept) -> Sequence[Execution]:
    return Facts(history).of_task.get(task.id, [])


def with_runs(history: History, *states: State, count: int = 1) -> list[Kept]:
    facts = Facts(history)
    return [
        task for task in history.dump.tasks if task.state in states and len(facts.of_task.get(task.id, ())) >= count
    ]


def lose(history: History, rng: random.Random) -> History | None:
    put = {command.task for command in history.commands if command.what == "put"}
    task = pick(rng, (task for task in history.dump.tasks if task.id in put))
    return None if task is None else with_tasks(history, (one for one in history.dump.tasks if one is not task))


def leave(history: History, rng: random.Random) -> History | None:
    facts = Facts(history)
    calm = max(facts.calm_since, 0.0) + history.bounds.settle_s < facts.read
    ended = [task for task in history.dump.tasks if task.state is State.DONE and task.due + 60 < facts.read]
    task = pick(rng, ended if calm else [])
    return None if task is None else changed(history, task, state=rng.choice([State.READY, State.TAKEN]), ended=None)


def never_run(history: History, rng: random.Random) -> History | None:
    task = pick(rng, with_runs(history, State.DONE))
    if task is None:
        return None
    last = f"{task.id}.{task.fence}"
    return with_lines(history, (line for line in history.lines if line.run != last))


def call_done(history: History, rng: random.Random) -> History | None:
    task = pick(rng, (task for task in history.dump.tasks if task.reason == "failed"))
    return None if task is None else changed(history, task, state=State.DONE, reason="")


def run_again(history: History, rng: random.Random) -> History | None:
    task = pick(rng, with_runs(history, State.DONE, State.DEAD))
    if task is None:
        return None
    start = runs_of(history, task)[-1].start
    at = history.dump.at - 1.0
    more = replace(start, run=f"{task.id}.{task.fence + 1}", fence=task.fence + 1, at=at)
    return added(history, more, replace(more, what="end"))


def begin_twice(history: History, rng: random.Random) -> History | None:
    line = pick(rng, (line for line in history.lines if line.what == "start"))
    return None if line is None else added(history, line)


def end_twice(history: History, rng: random.Random) -> History | None:
    line = pick(rng, (line for line in history.lines if line.what != "start"))
    return None if line is None else added(history, line)


def end_without_start(history: History, rng: random.Random) -> History | None:
    line = pick(rng, (line for line in history.lines if line.what == "end"))
    starts = (one for one in history.lines if line is None or one.run != line.run or one.what != "start")
    return None if line is None else with_lines(history, starts)


def run_at_once(history: History, rng: random.Random) -> History | None:
    ends = [line for line in history.lines if line.what in ("end", "fail") and line.task is not None]
    line = pick(rng, ends)
    if line is None:
        return None
    place = history.lines.index(line)
    more = replace(line, what="start", run=f"{line.task}.{line.fence + 1}", fence=line.fence + 1)
    facts = Facts(history)
    if facts.troubles(line.life, 0.0, line.at):
        return None
    return with_lines(history, [*history.lines[:place], more, *history.lines[place:]])


def run_early(history: History, rng: random.Random) -> History | None:
    line = pick(rng, (line for line in history.lines if line.what == "start" and line.task is not None))
    if line is None:
        return None
    return with_lines(history, (replace(one, planned=one.at + 1.0) if one is line else one for one in history.lines))


def put_later(history: History, rng: random.Random) -> History | None:
    facts = Facts(history)
    put = pick(rng, (one for one in history.commands if one.what == "put" and one.task in facts.of_task))
    if put is None or put.due is None:
        return None
    commands = tuple(replace(one, due=put.due + 5000.0) if one is put else one for one in history.commands)
    return replace(history, commands=commands)


def count_wrong(history: History, rng: random.Random) -> History | None:
    task = pick(rng, history.dump.tasks)
    return None if task is None else changed(history, task, attempts=task.attempts + rng.choice([1, 2]))


def tell_wrong_count(history: History, rng: random.Random) -> History | None:
    task = pick(rng, with_runs(history, State.DONE, State.READY, count=2))
    if task is None:
        return None
    first = runs_of(history, task)[0].start
    return with_lines(history, (replace(one, attempt=7) if one is first else one for one in history.lines))


def forget_try(history: History, rng: random.Random) -> History | None:
    found = with_runs(history, State.DONE, State.DEAD, count=2)
    task = pick(rng, (task for task in found if len(task.history) < len(runs_of(history, task))))
    if task is None:
        return None
    failed = task.history[-1].verdict == "retry"
    return changed(history, task, history=task.history[:-1], attempts=task.attempts - failed)


def _lapsed(history: History) -> list[Kept]:
    """Tasks with a run that lapsed."""
    facts = Facts(history)
    return [
        task
        for task in history.dump.tasks
        for past in task.history
        if past.info == LAPSED.info
        and any((past.start or past.end) <= run.start.at <= past.end for run in facts.of_task.get(task.id, ()))
    ]


def lapse_unkilled(history: History, rng: random.Random) -> History | None:
    if not _lapsed(history):
        return None
    return replace(history, faults=(), lives=tuple(replace(life, killed=False) for life in history.lives))


def lapse_free(history: History, rng: random.Random) -> History | None:
    task = pick(rng, _lapsed(history))
    if task is None:
        return None
    tries = tuple(replace(past, verdict="again") if past.info == LAPSED.info else past for past in task.history)
    lapses = sum(past.info == LAPSED.info for past in task.history)
    return changed(history, task, history=tries, attempts=task.attempts - lapses)


def fail_unfailed(history: History, rng: random.Random) -> History | None:
    """A retry of a run that says nothing of a failure, where no process died that might have been its own."""
    task = pick(rng, _lapsed(history))
    if task is None or any(fault.what == "child" for fault in history.faults):
        return None
    return changed(history, task, history=tuple(replace(past, info="no") for past in task.history))


def _series(history: History) -> list[Kept]:
    ids = {task.id for task in history.dump.tasks}
    return [task for task in history.dump.tasks if task.timing is not None and task.parent in ids]


def stop_series(history: History, rng: random.Random) -> History | None:
    task = pick(rng, _series(history))
    return None if task is None else with_tasks(history, (one for one in history.dump.tasks if one is not task))


def fork_series(history: History, rng: random.Random) -> History | None:
    task = pick(rng, _series(history))
    twin = None if task is None else replace(task, id=10_000, state=State.READY, due=history.dump.at + 9)
    return None if twin is None else with_tasks(history, [*history.dump.tasks, twin])


def hurry_series(history: History, rng: random.Random) -> History | None:
    task = pick(rng, _series(history))
    return None if task is None else changed(history, task, due=1.0)


def cancel_unasked(history: History, rng: random.Random) -> History | None:
    if not any(task.state is State.CANCELLED and task.reason == "cancelled" for task in history.dump.tasks):
        return None
    return replace(history, commands=tuple(one for one in history.commands if one.what != "cancel"))


def take_stale(history: History, rng: random.Random) -> History | None:
    task = pick(rng, with_runs(history, State.DONE))
    return None if task is None else changed(history, task, fence=task.fence + 1)


def lower_fence(history: History, rng: random.Random) -> History | None:
    task = pick(rng, with_runs(history, State.DONE, State.DEAD, count=2))
    if task is None:
        return None
    first, last = runs_of(history, task)[0].start, runs_of(history, task)[-1].start
    swapped = {first.run: last, last.run: first}
    lines = (
        replace(one, run=swapped[one.run].run, fence=swapped[one.run].fence) if one.run in swapped else one
        for one in history.lines
    )
    return with_lines(history, lines)


def take_too_many(history: History, rng: random.Random) -> History | None:
    image = Image(at=history.dump.at, seen=len(history.lines), taken=("owner",) * (history.bounds.lanes + 1))
    return replace(history, images=(*history.images, image))


def recorded_before(history: History, rng: random.Random) -> History | None:
    """An image shows it as ended, and it ran afterwards, on a node that had not stood still."""
    facts, over = Facts(history), with_runs(history, State.DONE, State.DEAD)
    runs = ((task, runs_of(history, task)[-1]) for task in over)
    found = pick(rng, ((task, run) for task, run in runs if not facts.is_belated(run, run.start.at)))
    if found is None:
        return None
    task, run = found
    return replace(history, images=(*history.images, Image(at=run.start.at, seen=run.begun, ended=(task.id,))))


TASK_DAMAGE: dict[str, tuple[Damage, set[str]]] = {
    "an acknowledged task is lost": (lose, {"lost"}),
    "a task is left over": (leave, {"stuck"}),
    "a task is done without a run": (never_run, {"unfounded", "stale"}),
    "a task that failed is done": (call_done, {"unfounded", "stale"}),
    "a task runs after its end": (run_again, {"fence"}),
    "a run begins twice": (begin_twice, {"duplicate"}),
    "a run ends twice": (end_twice, {"duplicate"}),
    "a run ends that never began": (end_without_start, {"order"}),
    "a task runs twice at a time": (run_at_once, {"overlap"}),
    "a task runs before it is due": (run_early, {"early"}),
    "a task is due before what was asked": (put_later, {"early"}),
    "attempts are counted wrong": (count_wrong, {"attempts"}),
    "a run is told a wrong count": (tell_wrong_count, {"attempts"}),
    "a try is forgotten": (forget_try, {"unaccounted"}),
    "a task lapses and nobody was killed": (lapse_unkilled, {"unfounded"}),
    "a lapse costs nothing": (lapse_free, {"attempts"}),
    "a lapse is told as a failure": (fail_unfailed, {"unfounded"}),
    "a series stops": (stop_series, {"series"}),
    "a series forks": (fork_series, {"series"}),
    "a series runs ahead": (hurry_series, {"series"}),
    "a task is cancelled unasked": (cancel_unasked, {"lost"}),
    "a stale result is taken": (take_stale, {"stale"}),
    "fences do not rise": (lower_fence, {"fence"}),
    "more is taken than there are lanes": (take_too_many, {"extra"}),
    "a recorded task runs again": (recorded_before, {"repeated"}),
}
