"""What a supervisor answered to a script, in the one form in which two of them are compared.

A step is what was seen after the start, and after each operation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.otp.scripts import DYNAMIC, FINITE, SUB, TOP, Script, to_json

_DYNAMIC_IDS = frozenset("".join(DYNAMIC.values()))
_INNER_IDS = frozenset(FINITE[SUB] + DYNAMIC[SUB])
_TYPES = ("worker", "supervisor")
# Raptor names the field; OTP has two words for what can be wrong about this one.
_SAME_WORD = {"bad_combination": "invalid_significant"}


class Step(NamedTuple):
    """The answer to an operation and the state after it."""

    answer: Any
    state: str  # of the supervisor: alive, its exit reason, and dead from then on
    children: list[Any]  # [id, births so far or undefined or restarting, type], newest first
    counts: list[Any]  # specs, active, supervisors, workers
    inner: list[Any]  # children and counts of the inner supervisor, if it is there
    log: list[list[Any]]  # starts and ends since the last step, in order


Steps = list[Step]


@dataclass(frozen=True)
class Divergence:
    """The first step at which two runs of a script differ."""

    script: Script
    at: int
    otp: Step | None
    raptor: Step | None

    def __str__(self) -> str:
        done = "the start" if self.at == 0 else json.dumps(to_json(self.script)[2][self.at - 1])
        lines = [f"seed {self.script.seed}, step {self.at}: {done}"]
        for name in Step._fields if self.otp and self.raptor else ():
            ours, theirs = getattr(self.raptor, name), getattr(self.otp, name)
            if ours != theirs:
                lines += [f"  {name}", f"    otp    {json.dumps(theirs)}", f"    raptor {json.dumps(ours)}"]
        if self.otp is None or self.raptor is None:
            lines += [f"  otp    {self.otp}", f"  raptor {self.raptor}"]
        return "\n".join([*lines, f"script {json.dumps(to_json(self.script))}"])


def compare(script: Script, otp: Steps, raptor: Steps) -> Divergence | None:
    """Both in normal form."""
    for at in range(max(len(otp), len(raptor))):
        theirs = otp[at] if at < len(otp) else None
        ours = raptor[at] if at < len(raptor) else None
        if theirs != ours:
            return Divergence(script, at, theirs, ours)
    return None


def normal(steps: Sequence[Sequence[Any]]) -> Steps:
    """The steps without what is left to chance: the order among processes that run in parallel."""
    return [_normal(Step(*step)) for step in steps]


def _normal(step: Step) -> Step:
    log = _after_kill(step.log) if _was_killed(step.log, TOP) else _in_groups(step.log)
    return Step(
        _plain(step.answer),
        step.state,
        _plain(step.children),
        step.counts,
        _plain(step.inner),
        log,
    )


def _plain(value: Any) -> Any:
    """Children of a dynamic supervisor have no order."""
    if isinstance(value, str):
        return _SAME_WORD.get(value, value)
    if not isinstance(value, list):
        return value
    plain = [_plain(item) for item in value]
    return sorted(plain, key=str) if plain and all(_is_dynamic(item) for item in plain) else plain


def _is_dynamic(item: Any) -> bool:
    match item:
        case [str(name), int() | str(), str(kind)]:
            return kind in _TYPES and (name in _DYNAMIC_IDS or name == "dynamic")
        case _:
            return False


def _was_killed(log: list[list[Any]], name: str) -> bool:
    return any(entry[:2] == ["ended", name] and entry[3] == "killed" for entry in log)


def _after_kill(log: list[list[Any]]) -> list[list[Any]]:
    """Nothing is left; how it went is not compared (DEVIATIONS.md)."""
    return sorted(entry[:3] for entry in log)


def _in_groups(log: list[list[Any]]) -> list[list[Any]]:
    """Dynamic children are stopped together; so are those of a supervisor that is killed."""
    orphans: list[list[Any]] = []
    if _was_killed(log, SUB):
        orphans = [e for e in log if e[0] == "ended" and e[1] in _INNER_IDS and e[3] == "killed"]
        log = [entry for entry in log if entry not in orphans]
    result, group = sorted(orphans), list[list[Any]]()
    for entry in log:
        if entry[0] == "ended" and entry[1] in _DYNAMIC_IDS:
            group.append(entry)
        else:
            result += [*sorted(group), entry]
            group = []
    return result + sorted(group)
