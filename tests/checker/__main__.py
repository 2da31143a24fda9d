"""The long form of the checker's test of itself: python -m tests.checker --minutes 5 --seed 1 --report FILE.

It makes sound histories, which must raise nothing, and damages them, which must be told.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from raptor.testing.checker import check, counted
from raptor.testing.checker.matching import match
from tests.checker.damage import DAMAGE, untold
from tests.checker.making import make
from tests.checker.test_matching import best
from tests.checker.test_matching import windows_and_points as drawn

TELLING_S = 10.0
DAMAGED = 2  # kinds of damage that are done to each history


def judge(seed: int, counts: Counter[str]) -> list[str]:
    """What is wrong with the checker, as one seed shows it."""
    history = make(seed)
    found = [f"sound, and told: {one}" for one in check(history)]
    counts["histories"] += 1
    counts.update({f"in them: {name}": number for name, number in counted(history).items()})
    rng = random.Random(f"damage {seed}")
    for name in rng.sample(sorted(DAMAGE), DAMAGED):
        instead = untold(history, name, seed)
        if instead is not None:
            counts["damaged"] += 1
            counts[f"damage: {name}"] += 1
            found += [f"untold: {name}; {instead[0]}"] if instead else []
    windows, points = drawn(rng)
    counts["matchings"] += 1
    if len(match(windows, points).of_point) != best(windows, points):
        found.append(f"a matching that is not the best: {windows} {points}")
    return [f"{one} (python -m tests.checker --only {seed})" for one in found]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checker")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one seed, to see it again")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    violations: list[str] = []
    begun, commit = time.monotonic(), _commit()
    told = begun
    seed = options.seed * 10_000_000 if options.only is None else options.only
    try:
        while True:
            violations += judge(seed, counts)
            seed += 1
            now = time.monotonic()
            if options.only is not None or now - begun > options.minutes * 60:
                break
            if now - told > TELLING_S:
                told = now
                print(_line(counts, violations), flush=True)
    except KeyboardInterrupt:
        print("stopped before its time")
    seconds = time.monotonic() - begun
    print(_line(counts, violations))
    for one in violations[:20]:
        print(one)
    if options.report is not None:
        report = {
            "part": "checker", "commit": commit, "seed": options.seed, "seconds": round(seconds, 1),
            "counts": dict(counts), "violations": violations,
        }  # fmt: skip
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if violations else 0


def _line(counts: Counter[str], violations: list[str]) -> str:
    return f"{counts['histories']} histories, {counts['damaged']} damages, {len(violations)} violations"


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
