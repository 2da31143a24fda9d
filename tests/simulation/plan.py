"""What goes wrong, when and how often: drawn from a seed, of which each enables some kinds of faults and not others."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.loop import NEVER

SHARED_CALLS = ("delay", "slow", "unreachable", "full", "lost", "unknown", "crash_before", "crash_after")
PRIVATE_CALLS = ("delay", "slow", "busy", "full", "broken", "crash_before", "crash_after")
"""What may become of one call of a store: that of many nodes, and that of one."""

SHARED_TROUBLES = ("crash", "freeze", "partition", "outage", "restart")
PRIVATE_TROUBLES = ("crash", "freeze", "outage", "restart", "step")
"""What may happen at any time."""

WORKS = ("fail", "hang", "kill", "long")
"""What a run of a service may do, other than end well and soon."""

STRUCK_S = 75.0
"""How long a strike that does not kill holds: longer than a lease."""

RARE = {"broken": 0.1, "crash_before": 0.2, "crash_after": 0.2}
"""Those that cost a whole life, as against those that cost a call."""


class Strike(NamedTuple):
    """A fault at a point of its own: crash, freeze, partition, or what becomes of the next call."""

    point: int
    kind: str = "crash"


@dataclass
class Plan:
    """`upto` is the number of faults after which there are no more."""

    rng: random.Random
    calls: dict[str, float] = field(default_factory=dict[str, float])  # the chance of each, at each call
    troubles: dict[str, float] = field(default_factory=dict[str, float])  # the mean seconds between two
    works: dict[str, float] = field(default_factory=dict[str, float])  # the chance of each, for each run
    steps: float = 0.0  # the mean number of steps between two crashes in the middle of anything; 0: none
    strikes: Sequence[Strike] = ()
    upto: int | None = None
    over: bool = False  # the faults have stopped
    done: Counter[str] = field(default_factory=Counter[str])
    fired: int = 0

    def __post_init__(self) -> None:
        self._limits: list[tuple[float, str]] = []
        total = 0.0
        for kind, chance in self.calls.items():
            total += chance
            self._limits.append((total, kind))
        self._total = total
        self._strikes = iter(sorted(self.strikes))
        self._next_strike = next(self._strikes, Strike(NEVER))
        self._fate: str | None = None  # of the next call
        self._next_step = self._gap(0)

    @property
    def alarm(self) -> int:
        """The next point at which somebody may be struck."""
        return min(self._next_strike.point, self._next_step)

    def fire(self, kind: str) -> bool:
        """Whether this fault really happens; if so it is counted."""
        if self.over or (self.upto is not None and self.fired >= self.upto):
            return False
        self.fired += 1
        self.done[kind] += 1
        return True

    def of_call(self) -> str | None:
        """What becomes of the next call; None: nothing of note."""
        if self._fate is not None:
            kind, self._fate = self._fate, None
            return kind if self.fire(kind) else None
        if self._total and (drawn := self.rng.random()) < self._total:
            kind = next(kind for limit, kind in self._limits if drawn < limit)
            return kind if self.fire(kind) else None
        return None

    def of_run(self) -> str | None:
        drawn = self.rng.random()
        for kind, chance in self.works.items():
            drawn -= chance
            if drawn < 0:
                return kind if self.fire(kind) else None
        return None

    def reached(self, point: int) -> str | None:
        """What strikes whoever came to this point: crash, freeze, partition, or nothing."""
        if point >= self._next_strike.point:
            kind, self._next_strike = self._next_strike.kind, next(self._strikes, Strike(NEVER))
            if kind in SHARED_CALLS:
                self._fate = kind
                return None
            return kind if self.fire(f"{kind}_at") else None
        if point >= self._next_step:
            self._next_step = self._gap(point)
            return "crash" if self.fire("crash_step") else None
        return None

    def _gap(self, point: int) -> int:
        return point + 1 + int(self.rng.expovariate(1 / self.steps)) if self.steps else NEVER


def drawn(seed: int, *, shared: bool, calm: float = 1.0, upto: int | None = None) -> Plan:
    """A plan of a swarm: a random half of the faults, at random rates, and so many times rarer where it is calm."""
    rng = random.Random(f"plan {seed}")
    harm = rng.choice((0.3, 1.0, 1.0, 3.0)) / calm
    calls = {
        kind: harm * RARE.get(kind, 1.0) * rng.choice((0.002, 0.005, 0.01))
        for kind in (SHARED_CALLS if shared else PRIVATE_CALLS)
        if rng.random() < 0.5
    }
    troubles = {
        kind: rng.choice((120.0, 400.0, 1200.0)) / harm
        for kind in (SHARED_TROUBLES if shared else PRIVATE_TROUBLES)
        if rng.random() < 0.5
    }
    works = {kind: rng.choice((0.02, 0.1, 0.2)) / calm**0.5 for kind in WORKS if rng.random() < 0.5}
    steps = rng.choice((0, 0, 3000.0, 20000.0)) / harm
    return Plan(rng, calls=calls, troubles=troubles, works=works, steps=steps, upto=upto)
