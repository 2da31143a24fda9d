"""Scripts for supervisors: the trees, the children's plans, and what is done to them.

Records and their JSON. author.py draws them; otp.py and on_raptor.py run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SIMPLE = "simple_one_for_one"
STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one", SIMPLE)
RESTARTS = ("permanent", "transient", "temporary")
REASONS = ("normal", "shutdown", "term", "crash", "kill")
ADMIN = (
    "start_child",
    "terminate_child",
    "restart_child",
    "delete_child",
    "get_childspec",
    "which_children",
    "count_children",
)
# The supervisor under test, and the one child of its that may be a supervisor too.
TOP, SUB = "sup", "m"
# The ids of their children, and what the children of dynamic ones are called here.
FINITE = {TOP: "abcdef", SUB: "pqr"}
DYNAMIC = {TOP: "xyz", SUB: "uvw"}
TEMPLATE = "template"
# Nobody is ever called so; and a live process that is nobody's child.
UNKNOWN, STRANGER = "nobody", "stranger"


@dataclass(frozen=True)
class Child:
    """One child: its specification, what its starts come to, and how it takes a shutdown."""

    key: int  # of this record: a child that comes back under an old id has a plan of its own
    id: str
    restart: str = "permanent"
    shutdown: int | str = 5000
    significant: str = "false"
    type: str = "worker"
    starts: tuple[str, ...] = ()  # then ok, for ever
    stop: str = "obey"
    inner: Tree | None = None


@dataclass(frozen=True)
class Tree:
    """One supervisor. Under simple_one_for_one the only child is the template."""

    strategy: str
    intensity: int
    period: int
    auto_shutdown: str
    children: tuple[Child, ...]


@dataclass(frozen=True)
class Op:
    """One thing done, to the supervisor `on`. A gate holds the target's next start, and `during` it."""

    kind: str
    on: str = TOP
    target: str = ""
    reason: str = ""
    child: Child | None = None
    outcome: str = ""
    during: tuple[Op, ...] = ()


@dataclass(frozen=True)
class Script:
    """A tree and what is done to it, one thing after another."""

    seed: int
    tree: Tree
    ops: tuple[Op, ...]


def to_json(script: Script) -> list[Any]:
    """Lists, words and numbers only: what raptor_otp.erl reads."""
    return [script.seed, _tree_json(script.tree), [_op_json(op) for op in script.ops]]


def _tree_json(tree: Tree) -> list[Any]:
    children = [_child_json(child) for child in tree.children]
    return [tree.strategy, tree.intensity, tree.period, tree.auto_shutdown, children]


def _child_json(child: Child) -> list[Any]:
    spec = [child.key, child.id, child.restart, child.shutdown, child.significant, child.type]
    return [*spec, list(child.starts), child.stop, _tree_json(child.inner) if child.inner else []]


def _op_json(op: Op) -> list[Any]:
    child = _child_json(op.child) if op.child else []
    during = [_op_json(other) for other in op.during]
    return [op.kind, op.on, op.target, op.reason, child, op.outcome, during]


def from_json(data: Sequence[Any]) -> Script:
    """The script that to_json wrote."""
    seed, tree, ops = data
    return Script(seed, _tree(tree), tuple(_op(op) for op in ops))


def _tree(data: Sequence[Any]) -> Tree:
    strategy, intensity, period, auto_shutdown, children = data
    known = tuple(_child(child) for child in children)
    return Tree(strategy, intensity, period, auto_shutdown, known)


def _child(data: Sequence[Any]) -> Child:
    key, name, restart, shutdown, significant, kind, starts, stop, inner = data
    known = _tree(inner) if inner else None
    return Child(key, name, restart, shutdown, significant, kind, tuple(starts), stop, known)


def _op(data: Sequence[Any]) -> Op:
    kind, on, target, reason, child, outcome, during = data
    known = _child(child) if child else None
    return Op(kind, on, target, reason, known, outcome, tuple(_op(other) for other in during))


def every_op(script: Script) -> Iterator[Op]:
    """The operations, with those that are done while a gate is shut."""
    for op in script.ops:
        yield op
        yield from op.during
