"""Cuts by the hundred: recordings of scribes that go on where the power failed before, and controls that must lose."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.powercut.disk import Event
from tests.powercut.judge import Judge, keep
from tests.powercut.recording import Recording, record
from tests.powercut.records import Records
from tests.powercut.scribe import Plan

MEMORY = Path("/dev/shm")  # images are many, and need no disk
GENERATIONS = 4  # cuts that a state lives through
WAYS = 4
TURNING = "SXR"  # events at which more may be lost, or less


@dataclass
class Campaign:
    """`counts` and `violations` grow as it runs; recordings of violations are kept in `kept`."""

    seed: int
    kept: Path
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    async def life(self, number: int, *, steps: int, points: int) -> None:
        """A state from its making on, through a few cuts."""
        rng = random.Random(f"{self.seed} {number}")
        with scratch() as place:
            folder, records = place / "0", Records()
            folder.mkdir()
            for generation in range(GENERATIONS):
                plan = Plan(
                    home="", marks="", seed=rng.getrandbits(32), at=(generation + 1) * 1e6, steps=rng.randint(1, steps),
                    checkpoint=rng.choice((8, 20, 1000)), openings=rng.choice((1, 1, 2)),
                )  # fmt: skip
                recording = record(folder, records, plan)
                self.counts["recordings"] += 1
                judge = Judge(recording, place, counts=self.counts)
                seed = f"{rng.getrandbits(32):x}"
                wrong = await judge.violations(chosen(recording.events, points, rng), seed, WAYS)
                if wrong:
                    self._keep(recording, wrong)
                folder = place / f"{generation + 1}"
                left = await judge.survivor(rng.randrange(len(recording.events)), seed, folder)
                if left is None:
                    break
                records = left

    async def control(self, number: int, synchronous: str, *, steps: int = 20, points: int = 20) -> int:
        """The same with a setting that gives no promise; -> how many cuts showed it. None would be a blind rig."""
        rng = random.Random(f"{self.seed} control {number}")
        with scratch() as place:
            folder = place / "0"
            folder.mkdir()
            plan = Plan(home="", marks="", seed=rng.getrandbits(32), at=1e6, steps=steps, synchronous=synchronous)
            recording = record(folder, {}, plan)
            blind = Counter[str]()
            wrong = await Judge(recording, place, counts=blind).violations(
                chosen(recording.events, points, rng), f"{rng.getrandbits(32):x}", WAYS
            )
        losses = len({line.split(" ")[1] for line in wrong})
        self.counts["control_cuts"] += blind["cuts"]
        self.counts["control_losses"] += losses
        if not losses:
            self.violations.append(f"the control synchronous={synchronous} lost nothing: the rig is blind")
        return losses

    def _keep(self, recording: Recording, wrong: list[str]) -> None:
        self.kept.mkdir(parents=True, exist_ok=True)
        file = self.kept / f"powercut-{self.seed}-{self.counts['recordings']}"
        keep(recording, file)
        self.violations += [f"python -m tests.powercut --replay {file} --{line}" for line in wrong]


def chosen(events: list[Event], count: int, rng: random.Random) -> set[int]:
    """Points of a recording: the ends of syncs, marks and renames, and any others."""
    turning = [number for number, event in enumerate(events) if event.kind in TURNING]
    near = [number + rng.choice((0, 1)) for number in rng.sample(turning, min(len(turning), count // 2))]
    return {*near, *(rng.randrange(len(events) + 1) for _ in range(count - len(near)))}


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="powercut-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
