"""What may be wrong with a history."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal[
    "missed", "early", "late", "extra", "repeated", "overlap", "stale", "order", "lost", "unaccounted", "stuck",
    "duplicate", "fence", "attempts", "series", "unfounded",
]  # fmt: skip
"""Kinds of violations.

- missed: a slot came that should have had a run, and had none
- early, late: a run began before its time, or long after it
- extra: more runs than slots, failures, kills and commands explain
- repeated: work ran again whose end was on disk
- overlap: two runs at a time of what runs once at a time
- stale: the result counts of a run that was not the last one entitled to it
- order: services of a cycle did not run in the order of the list, or lines of the ledger contradict each other
- lost: what was acknowledged is not there
- unaccounted: slots of which the ledger of Raptor says nothing, or says it twice, or nothing that can be true
- stuck: something is pending that should long have ended
- duplicate: two runs have the same id
- fence, attempts: these counts are not what they must be
- series: a task that repeats has no successor, several, or one out of time
- unfounded: the store says what no run did
"""


class Violation(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    subject: str  # a task, a service, a scheduler
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.text}"
