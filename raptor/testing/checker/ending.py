"""The store at the end: what was acknowledged is there, and nothing is overdue."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from raptor.rows import Definition
from raptor.testing.checker.facts import Facts
from raptor.testing.checker.history import Command
from raptor.testing.checker.plans import Plans
from raptor.testing.checker.violation import Violation


def judge_ending(facts: Facts, plans: Plans) -> Iterator[Violation]:
    yield from _lost(facts)
    yield from _cancelled(facts)
    yield from _overdue(facts, plans)
    yield from _standing(facts)


def _lost(facts: Facts) -> Iterator[Violation]:
    """The last definition of each scheduler that was acknowledged, or one that was asked for since."""
    dump, defined = facts.history.dump, defaultdict[str, list[Command]](list)
    for command in facts.commands("define"):
        if command.definition is not None:
            defined[command.definition.name].append(command)
    if not dump.definitions and not dump.timing:
        return  # they were not dumped
    for name, commands in defined.items():
        last = max((one.at for one in commands if one.acked is not None), default=math.inf)
        possible = [_core(one.definition) for one in commands if one.definition is not None and one.at >= last]
        found = dump.definitions.get(name)
        if possible and (found is None or _core(found) not in possible):
            yield Violation("lost", f"scheduler {name}", f"its acknowledged definition; there is {found}")


def _core(definition: Definition) -> tuple[object, ...]:
    """What only a command changes: an orderly stop clears `should_run`."""
    return definition.interval_s, definition.services, definition.paused, definition.paused_services


def _cancelled(facts: Facts) -> Iterator[Violation]:
    """What was cancelled does not begin any more."""
    for command in facts.commands("cancel"):
        if command.acked is None or command.task is None or command.task in facts.revived:
            continue
        late = [run for run in facts.of_task.get(command.task, ()) if run.start.at > command.acked]
        if late:
            text = f"it was cancelled by {command.acked}, and run {late[0].start.fence} began at {late[0].start.at}"
            yield Violation("lost", f"task {command.task}", text)


def _overdue(facts: Facts, plans: Plans) -> Iterator[Violation]:
    """No service waits that may run."""
    horizon = min(facts.read, facts.last_alive)
    for name, row in facts.history.dump.timing.items():
        plan = plans.at(name, horizon)
        gate = row.next_due if row.retry_at is None else row.retry_at
        if plan is None:
            continue
        due = max(gate, plan.since)
        if plans.deadline(plan, due) + facts.bounds.settle_s < horizon:
            yield Violation("stuck", name, f"it may run since {gate}, and did not until {facts.wall(horizon)}")


def _standing(facts: Facts) -> Iterator[Violation]:
    """No cycle stands still."""
    horizon = facts.wall(min(facts.read, facts.last_alive))
    for name, state in facts.history.dump.states.items():
        run = state.current_run
        since = max(
            state.started,
            0.0 if run is None else run.start + facts.bounds.run_s,
            facts.wall(facts.calm_since),
            *(one.end.shown for one in facts.of_scheduler.get(name, [])[-1:] if one.end is not None),
        )
        definition = facts.history.dump.definitions.get(name)
        if since + facts.bounds.settle_s < horizon and (definition is None or definition.should_run):
            text = f"its cycle has stood since {since}, with {list(state.services_queue)} to come"
            yield Violation("stuck", f"scheduler {name}", text)
