"""One simulation, as one line can name it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation import plan, scenario
from tests.simulation.drive import Verdict, simulate
from tests.simulation.plan import Plan, Strike


@dataclass(frozen=True)
class Case:
    """A seed of the swarm, or a small scenario that is struck at some points."""

    seed: int = 0
    scenario: str | None = None  # None: the one of the seed
    strikes: tuple[Strike, ...] = ()
    upto: int | None = None

    @property
    def replay(self) -> str:
        words = ["python -m tests.simulation", f"--seed {self.seed}"]
        words += [f"--scenario {self.scenario}"] if self.scenario else []
        words += [f"--strike {','.join(map(_word, self.strikes))}"] if self.strikes else []
        words += [f"--upto {self.upto}"] if self.upto is not None else []
        return " ".join(words)

    def run(self, lines: list[str] | None = None) -> Verdict:
        if self.scenario in (*scenario.SMALL, *scenario.STRUCK):
            rng = random.Random(f"small {self.seed}")
            return simulate(self.seed, scenario.small(self.scenario), Plan(rng, strikes=self.strikes), lines=lines)
        drawn = (
            scenario.settled(self.seed, self.scenario)
            if self.scenario in scenario.SETTLED
            else scenario.drawn(self.seed, self.scenario)
        )
        faults = plan.drawn(self.seed, shared=drawn.shared, calm=drawn.calm, upto=self.upto)
        return simulate(self.seed, drawn, faults, lines=lines)


def crashed(seed: int, name: str, *points: int) -> Case:
    """A small scenario in which nodes die at some points."""
    return Case(seed, name, tuple(map(Strike, points)))


def read_strikes(text: str) -> tuple[Strike, ...]:
    """Of `17,freeze@80`: whoever came to point 17 dies, and whoever comes to point 80 stands still."""
    words = (word.rpartition("@") for word in text.split(",") if word)
    return tuple(Strike(int(point), kind or "crash") for kind, _, point in words)


def _word(strike: Strike) -> str:
    return str(strike.point) if strike.kind == "crash" else f"{strike.kind}@{strike.point}"
