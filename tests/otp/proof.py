"""New scripts, asked of a real Erlang/OTP and of Raptor: `python -m tests.otp.proof --count 100000`."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.otp import on_raptor, otp
from tests.otp.answers import Divergence, Step, Steps, compare
from tests.otp.author import generate
from tests.otp.coverage import covered
from tests.otp.scripts import Script, to_json
from tests.otp.shrink import shrink

BATCH = 2000
SHOWN = 5


@dataclass
class Findings:
    """What came of some scripts."""

    scripts: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)  # seeds that the rig failed on
    covered: Counter[str] = field(default_factory=Counter)

    def add(self, other: Findings) -> None:
        self.scripts += other.scripts
        self.divergences += other.divergences
        self.broken |= other.broken
        self.covered += other.covered


def examine(folder: Path, scripts: Sequence[Script]) -> Findings:
    """Run scripts on both, and compare."""
    findings = Findings()
    for script, steps in zip(scripts, otp.ask(folder, scripts), strict=True):
        if isinstance(steps, str):
            findings.broken[script.seed] = steps
            continue
        findings.scripts += 1
        findings.covered += covered(script, steps)
        found = compare(script, steps, on_raptor_or_error(script))
        if found:
            findings.divergences.append(found)
    return findings


def on_raptor_or_error(script: Script) -> Steps:
    try:
        return on_raptor.run(script)
    except Exception as error:
        return [Step(f"the run ended with {error!r}", "", [], [], [], [])]


def examine_seeds(folder: Path, seeds: range) -> Findings:
    return examine(folder, [generate(seed) for seed in seeds])


def diverging(folder: Path, scripts: Sequence[Script]) -> list[Divergence | None]:
    return list(examine(folder, scripts).divergences)


def prove(folder: Path, seeds: range, jobs: int) -> Findings:
    """All of the seeds, in batches, on several processes."""
    findings, began = Findings(), time.monotonic()
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    with ProcessPoolExecutor(min(jobs, len(batches))) as pool:
        for done in as_completed([pool.submit(examine_seeds, folder, batch) for batch in batches]):
            findings.add(done.result())
            pace = findings.scripts / (time.monotonic() - began)
            print(
                f"{findings.scripts} of {len(seeds)} scripts, {pace:.0f} a second, "
                f"{len(findings.divergences)} divergences",
                file=sys.stderr,
            )
    return findings


def tell(folder: Path, findings: Findings) -> None:
    """Each divergence in its smallest form, with the command that shows it again."""
    for found in sorted(findings.divergences, key=lambda found: found.script.seed)[:SHOWN]:
        print(shrink(found, partial(diverging, folder)))
        print(f"again: python -m tests.otp.proof --seed {found.script.seed} --count 1\n")
    for seed, why in sorted(findings.broken.items())[:SHOWN]:
        print(f"seed {seed}: the rig failed, nothing was compared: {why}")


def show(script: Script) -> None:
    print(json.dumps(to_json(script)))
    for step in on_raptor_or_error(script):
        print(f"  {json.dumps(step)}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.otp.proof", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="how many scripts")
    parser.add_argument("--seed", type=int, help="of the first script; the next ones follow")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--show", action="store_true", help="print the first script and Raptor's steps")
    parser.add_argument("--covered", action="store_true", help="print how often each thing was put to the test")
    options = parser.parse_args(words)
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    seeds = range(first, first + options.count)
    if options.show:
        show(generate(first))
    try:
        with otp.compiled() as folder:
            findings = prove(folder, seeds, options.jobs)
            tell(folder, findings)
    except otp.NoErlang as missing:
        print(missing, file=sys.stderr)
        return 2
    print(
        f"{findings.scripts} scripts from seed {first}: {len(findings.divergences)} divergences, "
        f"{len(findings.broken)} not compared"
    )
    for what, count in sorted(findings.covered.items()) if options.covered else ():
        print(f"{count:8} {what}")
    return 1 if findings.divergences or findings.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
