"""The live supervision tree as data, and as something to print."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from raptor.child import Child
from raptor.ref import Ref
from raptor.supervisor import Supervisor

if TYPE_CHECKING:
    from rich.tree import Tree

State: TypeAlias = Literal["running", "busy", "restarting", "stopped"]

_MARKS: dict[State, tuple[str, str]] = {
    "running": ("●", "green"),
    "busy": ("●", "cyan"),
    "restarting": ("↻", "yellow"),
    "stopped": ("○", "dim"),
}


@dataclass(frozen=True, slots=True)
class Branch:
    """One actor in the tree, with what is below it."""

    name: str
    kind: str  # its class
    state: State
    restarts: int
    uptime_s: float | None  # None while it does not run
    mailbox: int  # messages that wait
    busy_s: float | None  # how long it has been with its message, if it waits for something
    children: tuple[Branch, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "restarts": self.restarts,
            "uptime_s": self.uptime_s,
            "mailbox": self.mailbox,
            "busy_s": self.busy_s,
            "children": [child.plain() for child in self.children],
        }

    def walk(self) -> Iterator[Branch]:
        """This branch and all below it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()

    def __rich__(self) -> Tree:
        from rich.text import Text
        from rich.tree import Tree

        # Text, not markup: a name is shown as it is, whatever it holds.
        mark, colour = _MARKS[self.state]
        label = Text.assemble((f"{mark} ", colour), (_printable(self.name), "bold"), ("  " + self._facts(), "dim"))
        printed = Tree(label, guide_style="dim")
        for child in self.children:
            printed.children.append(child.__rich__())
        return printed

    def _facts(self) -> str:
        facts = [self.kind, self.state]
        if self.busy_s is not None:
            facts[-1] += f" {self.busy_s:.1f} s"
        if self.uptime_s is not None:
            facts.append(f"up {self.uptime_s:.1f} s")
        if self.restarts:
            facts.append(f"{self.restarts} restart{'s' * (self.restarts != 1)}")
        if self.mailbox:
            facts.append(f"{self.mailbox} waiting")
        return " · ".join(facts)


def tree(ref: Ref) -> Branch:
    """The tree below an actor, as it is now. It asks nobody, so a stuck supervisor is shown like any other."""
    return _branch(ref, ref.name or repr(ref), restarts=0)


def _branch(ref: Ref, name: str, restarts: int) -> Branch:
    now = ref.runtime.clock.monotonic()
    actor = ref.actor
    children = actor.children.values() if isinstance(actor, Supervisor) else ()
    return Branch(
        name=name,
        kind=ref.kind.__name__,
        state="stopped" if actor is None else "running" if ref.busy_since is None else "busy",
        restarts=restarts,
        uptime_s=None if actor is None else now - ref.started_at,
        mailbox=ref.mailbox,
        busy_s=None if ref.busy_since is None else now - ref.busy_since,
        children=tuple(_child(child) for child in children),
    )


def _child(child: Child) -> Branch:
    restarts = max(0, child.starts - 1)
    if child.ref is not None:
        return _branch(child.ref, _label(child.key, child.ref), restarts)
    return Branch(
        name=str(child.key),
        kind=child.spec.start.__name__,
        state="restarting" if child.restarting else "stopped",
        restarts=restarts,
        uptime_s=None,
        mailbox=0,
        busy_s=None,
    )


def _label(key: Hashable, ref: Ref) -> str:
    return ref.name or str(key)


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in name)
