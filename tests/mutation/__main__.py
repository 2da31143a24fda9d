"""The long form: mutants of the pure modules, all of them, and a random sample of the others; survivors are told.

A survivor that stands in SURVIVORS.md, with the reason why no test can or need see it, is no violation.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.mutation.bed import ROOT, SURVIVED, Bed
from tests.mutation.mutants import Mutant
from tests.mutation.plan import PURE, SAMPLE, SAMPLED
from tests.servers import running

KNOWN = Path(__file__).with_name("SURVIVORS.md")
ENOUGH = 0.85  # of the mutants of a pure module


def line_of(module: str, mutant: Mutant) -> str:
    """A mutant by what it changes, not by its line, which moves."""
    return f"{module}:{mutant.where or 'module'}: `{mutant.what}`"


class Over(Exception):
    """The time of a module is over."""


class Trial:
    """What became of mutants, module by module."""

    def __init__(self, seed: int, scratch: Path) -> None:
        self.counts: dict[str, Counter[str]] = {}
        self.survivors: list[str] = []
        self.broken: list[str] = []
        self._seed = seed
        self._scratch = scratch

    def run(self, module: str, tests: tuple[str, ...], share: int | None, until: float) -> None:
        """Mutants of a module, in a random order, so that those of a time that was too short are a fair sample."""
        bed = Bed(module, tests, self._scratch)
        chosen = random.Random(f"{self._seed} {module}").sample(bed.mutants, share or len(bed.mutants))
        counts = self.counts[module] = Counter()
        began = time.monotonic()

        def told(mutant: Mutant, what: str) -> None:
            counts[what] += 1
            if what == SURVIVED:
                self.survivors.append(line_of(module, mutant))
                print(f"  survived: {bed.path.relative_to(ROOT)}:{mutant.line} {line_of(module, mutant)}", flush=True)
            if time.monotonic() > until:
                raise Over

        try:
            bed.run(chosen, told)
        except Over:
            print("  its share of the time is over", flush=True)
        except RuntimeError as error:
            self.broken.append(str(error))
        print(f"{module}: {score(counts)} of {len(chosen)}, in {time.monotonic() - began:.0f} s", flush=True)


def score(counts: Counter[str]) -> str:
    tried = counts.total()
    noticed = tried - counts[SURVIVED]
    return f"{noticed} of {tried} noticed ({100 * noticed / max(tried, 1):.1f}%)"


def shares() -> dict[str, int]:
    """How many mutants of each sampled module."""
    sizes = {module: len(Bed(module, (), Path()).mutants) for module in SAMPLED}
    whole = sum(sizes.values())
    return {module: round(SAMPLE * size / whole) for module, size in sizes.items()}


def known() -> set[str]:
    lines = KNOWN.read_text(encoding="utf-8").splitlines() if KNOWN.exists() else []
    return {line.removeprefix("- ").partition("` ")[0] + "`" for line in lines if line.startswith("- raptor.")}


def violations(trial: Trial) -> list[str]:
    found = [*trial.broken]
    for module, counts in trial.counts.items():
        if module in PURE and counts and counts[SURVIVED] > (1 - ENOUGH) * counts.total():
            found.append(f"{module}: {score(counts)}: replay with python -m tests.mutation --module {module}")
    unknown = known()
    for line in trial.survivors:
        if line not in unknown:
            module = line.partition(":")[0]
            found.append(
                f"a survivor that nobody has looked at: {line}: replay with python -m tests.mutation --module {module}"
            )
    return found


def report(trial: Trial, seed: int, seconds: float) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    counts = {f"{module} {what}": count for module, all in trial.counts.items() for what, count in sorted(all.items())}
    return {
        "part": "mutation", "commit": commit.strip(), "seed": seed, "seconds": round(seconds, 1), "counts": counts,
        "violations": violations(trial),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the sample; none: a new one")
    parser.add_argument("--report", type=Path, default=None, help="a file for the counts, as JSON")
    parser.add_argument("--module", choices=[*PURE, *SAMPLED], action="append", help="again for another; none: all")
    asked = parser.parse_args()
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    os.chdir(ROOT)
    began = time.monotonic()
    end, share, modules = began + asked.minutes * 60, shares(), asked.module or [*PURE, *SAMPLED]
    print(f"mutation: seed {seed}", flush=True)
    with ExitStack() as stack:
        trial = Trial(seed, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raptor-mutation-"))))
        if "RAPTOR_TEST_PG" not in os.environ and any("postgres" in module for module in modules):
            os.environ["RAPTOR_TEST_PG"] = stack.enter_context(
                running()
            ).url  # one for all: each fork would have its own
        try:
            for place, module in enumerate(modules):
                now = time.monotonic()
                tests = {**PURE, **SAMPLED}[module]
                trial.run(module, tests, share.get(module), now + (end - now) / (len(modules) - place))
        except KeyboardInterrupt:
            print("stopped: what was done until now counts", flush=True)
    found = report(trial, seed, time.monotonic() - began)
    if asked.report is not None:
        asked.report.write_text(json.dumps(found, indent=1) + "\n")
    for line in violations(trial):
        print(line)
    total = sum(trial.counts.values(), Counter[str]())
    print(f"mutation: {score(total)}, seed {seed}")
    return 1 if violations(trial) else 0


if __name__ == "__main__":
    sys.exit(main())
