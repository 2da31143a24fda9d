"""What a script put to the test, counted from OTP's answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.otp.answers import Step, Steps
from tests.otp.scripts import SUB, TOP, Op, Script, Tree

UNHELD = ("ungated", "starting")


def covered(script: Script, steps: Steps) -> Counter[str]:
    """How often each strategy, restart type, operation and turn of events occurred."""
    counts = Counter(_tree_words(script.tree))
    if steps[0].answer != "ok":
        counts[f"start refused: {steps[0].answer[1]}"] += 1
    for op, step in zip(script.ops, steps[1:], strict=False):
        counts.update(_op_words(op, step))
        counts.update(_turns(script, op, step))
    return counts


def _tree_words(tree: Tree) -> list[str]:
    words = [f"strategy: {tree.strategy}", f"auto_shutdown: {tree.auto_shutdown}"]
    for child in tree.children:
        words += [f"restart: {child.restart}", f"shutdown: {child.shutdown}", f"stop: {child.stop}"]
        if child.inner:
            words += ["inner supervisor", *_tree_words(child.inner)]
    return words


def _op_words(op: Op, step: Step) -> list[str]:
    if op.kind == "gate":
        if set(UNHELD) & set(map(str, step.answer[1:2])):
            return []
        words = ["gate", f"gate: {op.outcome}"]
        for aside, answer in zip(op.during, step.answer[1:], strict=True):
            words.append(f"at the gate: {aside.kind}: {_short(answer)}")
        return words
    if op.kind == "exit":
        return [f"exit: {op.reason}: {step.answer}"]
    return [f"{op.kind}: {_short(step.answer)}"]


def _short(answer: Any) -> str:
    """An answer's word, or that it is a list."""
    match answer:
        case str():
            return answer
        case ["error", str(word), *_]:
            return word
        case ["ok", *_]:
            return "ok"
        case _:
            return "restarting" if "restarting" in str(answer) else "list"


def _turns(script: Script, op: Op, step: Step) -> list[str]:
    """The turns of events that matter: supervisors that end by themselves, and come back."""
    words = []
    touched = {op.target, *(aside.target for aside in op.during)}
    if step.state == "shutdown" and TOP not in touched:
        words.append(f"death by {_cause(script, op)}")
    ends = [entry[:2] for entry in step.log]
    if op.on == SUB and ["ended", SUB] in ends and TOP not in touched:
        back = ["started", SUB] in ends[ends.index(["ended", SUB]) :]
        words.append("escalation: restarted" if back else "escalation: gone")
    return words


def _cause(script: Script, op: Op) -> str:
    """Why the supervisor gave up: where it can be told for certain."""
    if script.tree.auto_shutdown == "never":
        return "intensity"
    clean = op.reason in ("normal", "shutdown", "term")
    significant = any(
        child.id == op.target and child.significant == "true" and (clean or child.restart == "temporary")
        for child in script.tree.children
    )
    return "auto_shutdown" if op.kind == "exit" and significant else "intensity or auto_shutdown"
