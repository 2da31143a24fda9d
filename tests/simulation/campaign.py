"""Many simulations: seeds of the swarm, and small scenarios struck at every point and crashed at pairs of points."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.simulation import scenario
from tests.simulation.case import Case, crashed
from tests.simulation.drive import Verdict
from tests.simulation.plan import Strike

SPAN = 1_000_000  # seeds that belong to one seed of a campaign
SEEDS = 12  # of the swarm, in one batch
WEEKS = 6  # of those that last for weeks
PAIRED = 40  # of so many of them one is of two nodes, which show themselves every few seconds
SMALLS = 150  # small simulations in one batch
REPEATED = 100  # of so many seeds one is run twice
STRIKES = ("freeze", "partition", "full", "lost", "unknown")
"""What may strike at each point of a shared scenario, other than a crash."""


@dataclass
class Campaign:
    """Adds up what was done; a violation is told with the line that replays it."""

    tell: Callable[[str], None] = print
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])
    node_s: Counter[str] = field(default_factory=Counter[str])  # by scenario

    def run(self, case: Case) -> Verdict | None:
        try:
            verdict = case.run()
        except Exception as error:  # of the rig, or that nothing moves any more
            self.found(case, f"{type(error).__name__}: {error}")
            return None
        self.node_s[case.scenario or verdict.scenario] += verdict.node_s  # type: ignore[assignment]
        self.counts["faults"] += verdict.faults.total()
        self.counts["crashes"] += verdict.counts["kills"]
        self.counts["points"] += verdict.points
        for name in ("runs", "lives", "tasks"):
            self.counts[name] += verdict.counts[name]
        for kind, count in verdict.faults.items():
            self.counts[f"faults: {kind}"] += count
        for what in verdict.violations[:1]:
            self.found(case, what)
        return verdict

    def found(self, case: Case, what: str) -> None:
        line = f"{case.replay}: {what}"
        self.violations.append(line)
        self.tell(f"violation: {line}")

    def repeat(self, case: Case) -> None:
        """The same seed gives the same trace."""
        first, second = self.run(case), self.run(case)
        self.counts["repeated"] += 1
        if first is not None and second is not None and (first.trace, first.points) != (second.trace, second.points):
            self.found(case, f"two runs differ: {first.trace} and {second.trace}")

    def work(self, batch: Batch, until: float = float("inf")) -> None:
        for case in batch.cases:
            if time.monotonic() >= until:
                return
            if batch.kind in ("seeds", "weeks") and case.seed % REPEATED == 0:
                self.repeat(case)
            else:
                self.run(case)
            self.counts[batch.kind] += 1

    def add(self, other: Campaign) -> None:
        """What was done in another process."""
        self.counts += other.counts
        self.node_s += other.node_s
        for line in other.violations:
            self.violations.append(line)
            self.tell(f"violation: {line}")

    @property
    def totals(self) -> dict[str, int]:
        hours = {f"node_hours: {name}": round(seconds / 3600) for name, seconds in self.node_s.items()}
        return {"node_hours": round(self.node_s.total() / 3600), **self.counts, **hours}


@dataclass(frozen=True)
class Batch:
    """Simulations that one process runs: they are counted as `kind`."""

    kind: str
    cases: Sequence[Case]


def swarm(seed: int) -> Iterator[Batch]:
    """Seeds without end."""
    first = seed * SPAN
    for start in itertools.count(first, SEEDS):
        yield Batch("seeds", [Case(one) for one in range(start, start + SEEDS)])


def weeks(seed: int) -> Iterator[Batch]:
    """Seeds without end, as most deployments are: for weeks, and calm."""
    first = seed * SPAN
    for start in itertools.count(first, WEEKS):
        cases = [Case(one, scenario.SETTLED[one % PAIRED == 0]) for one in range(start, start + WEEKS)]
        yield Batch("weeks", cases)


def singles(seed: int, names: Sequence[str] = scenario.SMALL, step: int = 1) -> Iterator[Batch]:
    """A crash at each point of the undisturbed run, or at every so many, one at a time."""
    for name in names:
        points = range(1, length(name, seed) + 1, step)
        yield from _batches("singles", (crashed(seed, name, point) for point in points))


def strikes(seed: int, names: Sequence[str] = scenario.STRUCK, step: int = 1) -> Iterator[Batch]:
    """Each other thing that may strike, at each point."""
    for name in names:
        points = range(1, length(name, seed) + 1, step)
        found = (Case(seed, name, (Strike(point, kind),)) for kind in STRIKES for point in points)
        yield from _batches("strikes", found)


def pairs(seed: int, names: Sequence[str] = scenario.SMALL) -> Iterator[Batch]:
    """Crashes at all pairs of points, in an order that is drawn: the second may come while the node starts again."""
    chance = random.Random(f"pairs {seed}")
    found = [
        (name, first, second)
        for name in names
        for first, second in itertools.combinations(range(1, length(name, seed) + 1), 2)
    ]
    chance.shuffle(found)
    yield from _batches("pairs", (crashed(seed, *one) for one in found))


def length(name: str, seed: int) -> int:
    """The points of a small scenario, while it lasts."""
    return Case(seed, name).run().counts["points"]


def _batches(kind: str, cases: Iterator[Case]) -> Iterator[Batch]:
    while some := list(itertools.islice(cases, SMALLS)):
        yield Batch(kind, some)
