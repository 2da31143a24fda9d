"""Draws scripts: a seed gives its script, on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.otp.scripts import (
    ADMIN,
    DYNAMIC,
    FINITE,
    REASONS,
    RESTARTS,
    SIMPLE,
    STRANGER,
    STRATEGIES,
    SUB,
    TEMPLATE,
    TOP,
    UNKNOWN,
    Child,
    Op,
    Script,
    Tree,
)

T = TypeVar("T")


def generate(seed: int) -> Script:
    """The script of a seed."""
    return _Author(seed).script()


class _Dice:
    """Only `random()` is drawn from: its sequence is the one that Python promises to keep."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed).random

    def chance(self, share: float) -> bool:
        return self._draw() < share

    def below(self, end: int) -> int:
        return int(self._draw() * end)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]


class _Author(_Dice):
    """Draws one script: the trees first, then what is done to them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed
        self.keys = 0
        self.trees: dict[str, Tree] = {}

    def script(self) -> Script:
        self.trees[TOP] = tree = self.tree(TOP)
        for child in tree.children:
            if child.inner:
                self.trees[SUB] = child.inner
        dynamic = [on for on in self.trees if self.is_dynamic(on)]
        first = [self.start(on, who) for on in dynamic for who in DYNAMIC[on][:2]]
        ops = [op for _ in range(3 + self.below(9)) for op in self.turn()]
        last = Op("exit", target=TOP, reason=self.pick(("shutdown", "shutdown", "normal", "kill")))
        if self.chance(0.04):
            tree = self.spoiled_tree(tree)
        return Script(self.seed, tree, (*first, *ops, last))

    def is_dynamic(self, on: str) -> bool:
        return self.trees[on].strategy == SIMPLE

    # Trees

    def tree(self, on: str) -> Tree:
        if self.chance(0.1):
            return self.significant_tree(on)
        strategy = self.pick(STRATEGIES)
        simple = strategy == SIMPLE
        auto = "never"
        if not simple and self.chance(0.4):
            auto = self.pick(("any_significant", "all_significant"))
        few = self.pick((0, 1, 2, 2, 3, 3, 4, 5, 6) if on == TOP else (0, 1, 1, 2, 2, 3, 3))
        children = [self.child(name, auto) for name in ((TEMPLATE,) if simple else FINITE[on][:few])]
        if on == TOP and not simple and self.chance(0.4):
            children.insert(self.below(len(children) + 1), self.sub(auto))
        intensity = self.pick((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5))
        return Tree(strategy, intensity, 3600, auto, tuple(children))

    def significant_tree(self, on: str) -> Tree:
        """Few children, all of them significant: the last one matters more often."""
        auto = "all_significant"
        children = [self.child(name, auto) for name in FINITE[on][: 2 + self.below(2)]]
        lasting = self.pick(("transient", "transient", "temporary"))
        last = tuple(replace(child, restart=lasting, significant="true") for child in children)
        return Tree(self.pick(("one_for_one", "rest_for_one")), 5, 3600, auto, last)

    def child(self, name: str, auto: str) -> Child:
        self.keys += 1
        restart = self.pick((*RESTARTS, "permanent", "transient"))
        stop = self.pick(("obey", "obey", "obey", "obey", "slow", "crash", "hang"))
        # A short time only for a child that never obeys: the machine's speed decides nothing.
        patient: tuple[int | str, ...] = (5000, 5000, "infinity", "brutal_kill")
        hasty: tuple[int | str, ...] = (0, 1, 2, 4, "brutal_kill")
        shutdown = self.pick(hasty if stop == "hang" else patient)
        significant = self.significant(restart, auto)
        starts = () if name == TEMPLATE else self.starts()
        return Child(self.keys, name, restart, shutdown, significant, "worker", starts, stop)

    def sub(self, auto: str) -> Child:
        """A supervisor as a child, with children of its own."""
        self.keys += 1
        key, restart = self.keys, self.pick((*RESTARTS, "permanent", "transient"))
        shutdown = "brutal_kill" if self.chance(0.15) else "infinity"
        significant = self.significant(restart, auto)
        starts = self.starts() if self.chance(0.3) else ()
        inner = self.tree(SUB)
        return Child(key, SUB, restart, shutdown, significant, "supervisor", starts, inner=inner)

    def significant(self, restart: str, auto: str) -> str:
        allowed = auto != "never" and restart != "permanent"
        return "true" if allowed and self.chance(0.5) else "false"

    def starts(self) -> tuple[str, ...]:
        """Mostly a good first start, or few trees would ever stand."""
        if self.chance(0.5):
            return ()
        first = "ok"
        if self.chance(0.15):
            first = self.pick(("ignore", "ignore", "error"))
        later = [self.pick(("ok", "error", "error", "ignore")) for _ in range(self.below(5))]
        return (first, *later)

    # Mistakes

    def spoiled_tree(self, tree: Tree) -> Tree:
        """The tree with one mistake in it."""
        flags: tuple[dict[str, Any], ...] = (
            {"strategy": "some_for_one"},
            {"intensity": -1},
            {"period": 0},
            {"auto_shutdown": "sometimes"},
        )
        if not tree.children or self.chance(0.4):
            return replace(tree, **self.pick(flags))
        at = self.below(len(tree.children))
        children = list(tree.children)
        if tree.strategy != SIMPLE and self.chance(0.3):
            children.insert(self.below(len(children) + 1), children[at])
        else:
            children[at] = self.spoiled_child(children[at], tree.auto_shutdown)
        return replace(tree, children=tuple(children))

    def spoiled_child(self, child: Child, auto: str) -> Child:
        mistakes: tuple[dict[str, Any], ...] = (
            {"restart": "sometimes", "significant": "false"},
            {"shutdown": -10},
            {"significant": "maybe"},
            {"type": "clown"},
            {"significant": "true", "restart": "permanent"},
            {"significant": "true", "restart": "permanent" if auto != "never" else "transient"},
        )
        return replace(child, **self.pick(mistakes))

    # What is done

    def turn(self) -> list[Op]:
        """One operation, or a child that is stopped and something done about it."""
        op = self.op()
        if op.kind != "terminate_child" or self.chance(0.3):
            return [op]
        kind = self.pick(("restart_child", "restart_child", "delete_child", "get_childspec", "exit"))
        return [op, replace(op, kind=kind, reason="crash" if kind == "exit" else "")]

    def op(self) -> Op:
        if self.chance(0.2):
            return self.gate()
        if self.chance(0.02):
            return Op("exit", target=TOP, reason=self.pick(("shutdown", "normal", "kill")))
        if self.chance(0.5):
            on = self.pick(tuple(self.trees))
            return Op("exit", on, self.target(on), self.pick((*REASONS, "crash")))
        return self.admin(self.pick(tuple(self.trees)))

    def ids(self, on: str) -> str:
        return DYNAMIC[on] if self.is_dynamic(on) else FINITE[on]

    def target(self, on: str) -> str:
        """Mostly a child that was there at the beginning."""
        present = [child.id for child in self.trees[on].children if child.id != TEMPLATE]
        return self.pick(present) if present and self.chance(0.8) else self.pick(self.ids(on))

    def admin(self, on: str) -> Op:
        kind = self.pick(ADMIN)
        if kind == "start_child":
            return self.start(on, self.pick(self.ids(on)))
        if kind in ("which_children", "count_children"):
            return Op(kind, on)
        target = UNKNOWN if self.chance(0.1) else self.target(on)
        if not self.is_dynamic(on):
            return Op(kind, on, target)
        # By the child itself; a dynamic supervisor refuses an id.
        if kind == "terminate_child" and self.chance(0.8):
            return Op("terminate_dynamic", on, STRANGER if self.chance(0.1) else target)
        return Op(kind, on, TEMPLATE if self.chance(0.5) else target)

    def start(self, on: str, name: str) -> Op:
        tree = self.trees[on]
        child = self.child(name, tree.auto_shutdown)
        if self.is_dynamic(on):
            return Op("start_dynamic", on, name, child=self.by_template(tree.children[0], child))
        if self.chance(0.05):
            child = self.spoiled_child(child, tree.auto_shutdown)
        return Op("start_child", on, name, child=child)

    def by_template(self, template: Child, child: Child) -> Child:
        """What is left to a dynamic child. Its restarts are never ignored: see DEVIATIONS.md."""
        # Whether it hangs is the template's, because the time that it is given is.
        stop = template.stop if "hang" in (template.stop, child.stop) else child.stop
        later = tuple("error" if start == "ignore" else start for start in child.starts[1:])
        return replace(template, key=child.key, id=child.id, starts=child.starts[:1] + later, stop=stop)

    def gate(self) -> Op:
        on = self.pick(tuple(self.trees))
        target = self.restarted(on)
        outcomes = ("ok", "error", "error", "error", "ignore")
        outcome = self.pick(outcomes[:-1] if self.is_dynamic(on) else outcomes)
        reason = self.pick(("crash", "crash", "kill", "normal"))
        during = [op for _ in range(1 + self.below(4)) for op in self.asides(on, target)]
        # Of a dynamic child that is being restarted OTP miscounts the end: see DEVIATIONS.md.
        ended = {target} | {op.target for op in during if op.kind == "exit"}
        kept = [op for op in during if op.kind != "terminate_dynamic" or op.target not in ended]
        return Op("gate", on, target, reason, None, outcome, tuple(kept))

    def restarted(self, on: str) -> str:
        """Somebody whose crash is followed by a start, mostly."""
        tree = self.trees[on]
        lasting = [child.id for child in tree.children if child.restart != "temporary"]
        if not lasting or self.chance(0.1):
            return self.target(on)
        return self.pick(DYNAMIC[on][:2] if self.is_dynamic(on) else lasting)

    def asides(self, held: str, target: str) -> list[Op]:
        """Things done while a supervisor is held at the gate, often to the one who waits there.

        Nothing is done to the other supervisor that could run on by itself meanwhile: the outer one
        is left alone while the inner one is held.
        """
        if held == TOP and self.chance(0.06):
            return [Op("exit", target=TOP, reason="shutdown")]
        on = held if held == SUB or self.chance(0.7) else self.pick(tuple(self.trees))
        if self.chance(0.3):
            return self.aside_exit(on, target)
        op = self.admin(on)
        if op.target and op.child is None and not self.is_dynamic(on) and self.chance(0.5):
            return [replace(op, on=held, target=target)]
        return [op]

    def aside_exit(self, on: str, target: str) -> list[Op]:
        """Another child ends, unheard for now, and often something is asked about it."""
        who, reason = self.bystander(on), self.pick(REASONS)
        if who == SUB:
            # A supervisor at the gate hears nothing but a kill, and what that leaves behind is no answer.
            who, reason = SUB if target != SUB else self.pick(self.ids(on)), "kill"
        end = Op("exit", on, who, reason)
        if self.is_dynamic(on) or self.chance(0.4):
            return [end]
        about = Op(self.pick(ADMIN[1:]), on, who)
        if who != SUB and self.chance(0.3):
            about = self.start(on, who)
        # A request before it is answered when the child is dead and the supervisor has not heard of it.
        return [end, about] if self.chance(0.4) else [about, end]

    def bystander(self, on: str) -> str:
        significant = [child.id for child in self.trees[on].children if child.significant == "true"]
        return self.pick(significant) if significant and self.chance(0.5) else self.target(on)
