"""Many simulations: seeds of the swarm, and small scenarios crashed at every point and at pairs of points."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulation import plan, scenario
from tests.simulation.drive import Verdict, simulate
from tests.simulation.plan import Plan
from tests.simulation.world import in_silence

BURIED = 20  # small simulations between two burials


@dataclass(frozen=True)
class Case:
    """One simulation, as one line can name it."""

    seed: int = 0
    scenario: str | None = None  # None: the one of the seed
    crashes: tuple[int, ...] = ()
    upto: int | None = None

    @property
    def replay(self) -> str:
        words = ["python -m tests.simulation", f"--seed {self.seed}"]
        words += [f"--scenario {self.scenario}"] if self.scenario else []
        words += [f"--crash {','.join(map(str, self.crashes))}"] if self.crashes else []
        words += [f"--upto {self.upto}"] if self.upto is not None else []
        return " ".join(words)

    def run(self, lines: list[str] | None = None) -> Verdict:
        if self.scenario in scenario.SMALL:
            rng = random.Random(f"small {self.seed}")
            return simulate(self.seed, scenario.small(self.scenario), Plan(rng, crash_at=self.crashes), lines=lines)
        drawn = scenario.drawn(self.seed, self.scenario)
        return simulate(self.seed, drawn, plan.drawn(self.seed, shared=drawn.shared, upto=self.upto), lines=lines)


@dataclass
class Campaign:
    """Adds up what was done; a violation is told with the line that replays it."""

    tell: Callable[[str], None] = print
    counts: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])  # of faults
    violations: list[str] = field(default_factory=list[str])
    node_s: float = 0.0
    _unburied: int = 0

    def run(self, case: Case) -> Verdict:
        try:
            verdict = case.run()
        except Exception as error:
            self._found(case, f"{type(error).__name__}: {error}")
            raise
        self.node_s += verdict.node_s
        self.kinds += verdict.faults
        self.counts["faults"] += verdict.faults.total()
        self.counts["crashes"] += verdict.counts["kills"]
        self.counts["points"] += verdict.points
        for name in ("runs", "lives", "tasks"):
            self.counts[name] += verdict.counts[name]
        self.counts["node_hours"] = round(self.node_s / 3600)
        for what in verdict.violations[:1]:
            self._found(case, what)
        self._unburied += 1 if case.crashes else BURIED
        if self._unburied >= BURIED:
            self._unburied = 0
            with in_silence():
                pass
        return verdict

    def _found(self, case: Case, what: str) -> None:
        line = f"{case.replay}: {what}"
        self.violations.append(line)
        self.tell(f"violation: {line}")

    # Kinds of campaigns

    def swarm(self, seeds: Iterable[int], until: float) -> None:
        for seed in seeds:
            if time.monotonic() >= until:
                return
            self.run(Case(seed))
            self.counts["seeds"] += 1

    def singles(self, name: str, seed: int = 0, until: float = float("inf"), step: int = 1) -> None:
        """A crash at each point of the undisturbed run, or at every so many, one at a time."""
        for point in range(1, self._length(name, seed) + 1, step):
            if time.monotonic() >= until:
                return
            self.run(Case(seed, name, (point,)))
            self.counts["singles"] += 1

    def pairs(self, name: str, seed: int, chance: random.Random, until: float) -> None:
        """Crashes at two points, drawn: the second may come while the node starts again."""
        length = self._length(name, seed)
        for first, second in _drawn_pairs(length, chance):
            if time.monotonic() >= until:
                return
            self.run(Case(seed, name, (first, second)))
            self.counts["pairs"] += 1

    def repeats(self, case: Case) -> None:
        """The same seed gives the same trace."""
        first, second = case.run(), case.run()
        self.counts["repeated"] += 1
        if (first.trace, first.points) != (second.trace, second.points):
            self._found(case, f"two runs differ: {first.trace} and {second.trace}")

    def _length(self, name: str, seed: int) -> int:
        return Case(seed, name).run().counts["points"]


def _drawn_pairs(length: int, chance: random.Random) -> Iterator[tuple[int, int]]:
    seen: set[tuple[int, int]] = set()
    while len(seen) < length * (length - 1) // 2:
        first, second = sorted(chance.sample(range(1, length + 1), 2))
        if (first, second) not in seen:
            seen.add((first, second))
            yield first, second
