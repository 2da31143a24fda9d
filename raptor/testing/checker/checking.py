"""The one judge of histories."""

from __future__ import annotations

from collections import Counter

from raptor.settlement import LAPSED
from raptor.testing.checker.accounts import judge_accounts
from raptor.testing.checker.ending import judge_ending
from raptor.testing.checker.facts import TROUBLES, Facts
from raptor.testing.checker.history import History
from raptor.testing.checker.plans import Plans
from raptor.testing.checker.slots import judge_slots
from raptor.testing.checker.targets import judge_targets
from raptor.testing.checker.tasks import judge_tasks
from raptor.testing.checker.violation import Violation


def check(history: History) -> list[Violation]:
    """Everything that is wrong; empty for a sound history."""
    facts = Facts(history)
    plans = Plans(facts)
    return [
        *facts.contradictions,
        *judge_tasks(facts),
        *judge_slots(facts, plans),
        *judge_targets(facts, plans),
        *judge_accounts(facts, plans),
        *judge_ending(facts, plans),
    ]


def counted(history: History) -> dict[str, int]:
    """How much there was to judge."""
    facts, dump = Facts(history), history.dump
    return {
        "disturbances": sum(fault.what in TROUBLES for fault in facts.faults),
        "kills": sum(fault.what == "kill" for fault in facts.faults),
        "acks": sum(command.acked is not None for command in history.commands),
        "runs": len(facts.executions),
        "lapses": sum(past.info == LAPSED.info for task in dump.tasks for past in task.history),
        **Counter(str(task.state) for task in dump.tasks),
        **Counter(f"{slot.verdict} slots" for slot in dump.slots),
    }
