"""`python -m tests.simulation --minutes M --seed S --report FILE`, or one again: --seed S [--scenario X] ..."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.simulation import campaign as campaigns
from tests.simulation.campaign import SPAN, Batch, Campaign
from tests.simulation.case import Case, read_strikes
from tests.simulation.crew import Crew, used_mb

SHARES = {"singles": 10.0, "strikes": 10.0, "seeds": 0.4, "weeks": 0.2, "pairs": 0.4}
"""Of the time: whoever had least of its share is next, and singles and strikes come to an end."""

SOURCES: dict[str, Callable[[int], Iterator[Batch]]] = {
    "singles": campaigns.singles,
    "strikes": campaigns.strikes,
    "seeds": campaigns.swarm,
    "weeks": campaigns.weeks,
    "pairs": campaigns.pairs,
}

TELL_S = 20.0  # between two lines of progress


class Long:
    """A campaign for some minutes, with several processes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.campaign = Campaign(tell=lambda text: print(text, flush=True))
        self.began = time.monotonic()
        self._seed: int = options.seed
        self._until = self.began + options.minutes * 60
        self._crew = Crew(options.jobs)
        self._spent: Counter[str] = Counter()  # processor seconds
        kinds = options.only.split(",") if options.only else list(SOURCES)
        self._sources: dict[str, Iterator[Batch]] = {kind: SOURCES[kind](options.seed) for kind in kinds}

    def run(self) -> None:
        told = self.began
        while True:
            while not self._crew.is_full and time.monotonic() < self._until and (batch := self._next()) is not None:
                self._spent[batch.kind] += 1e-3  # so that the others are asked meanwhile
                self._crew.begin(batch, self._until)
            if self._crew.is_idle:
                return
            for batch, done in self._crew.done():
                self._spent[batch.kind] += done.processor_s  # type: ignore[assignment]
                self.campaign.add(done.campaign)
            if time.monotonic() > told + TELL_S:
                told = time.monotonic()
                self.tell()

    def _next(self) -> Batch | None:
        while self._sources:
            kind = min(self._sources, key=lambda kind: self._spent[kind] / SHARES[kind])
            batch = next(self._sources[kind], None)
            if batch is not None:
                return batch
            del self._sources[kind]
        return None

    def tell(self) -> None:
        counts = ", ".join(f"{name} {count}" for name, count in self.campaign.totals.items() if ": " not in name)
        spent = ", ".join(f"{kind} {seconds:.0f} s" for kind, seconds in self._spent.items())
        text = f"{self.seconds:.0f} s: {counts}; {len(self.campaign.violations)} violations; {spent}; {used_mb()} MB"
        print(text, flush=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def report(self, commit: str) -> dict[str, object]:
        last = self._seed * SPAN + self.campaign.counts["seeds"] - 1
        return {
            "part": "simulation", "commit": commit, "seed": self._seed, "seconds": round(self.seconds, 1),
            "counts": self.campaign.totals, "violations": self.campaign.violations,
            "processor_s": {kind: round(seconds, 1) for kind, seconds in self._spent.items()},
            "seeds": [self._seed * SPAN, last],
        }  # fmt: skip


def main() -> int:
    options = _options()
    logging.disable(logging.CRITICAL)  # a simulated node has much to complain of
    gc.freeze()
    if options.minutes is None:
        return _replay(options)
    commit, long = _commit(), Long(options)
    try:
        long.run()
    except KeyboardInterrupt:
        print("stopped", flush=True)
    long.tell()
    if options.report is not None:
        Path(options.report).write_text(json.dumps(long.report(commit), indent=2) + "\n")
    return 1 if long.campaign.violations else 0


def _replay(options: argparse.Namespace) -> int:
    case = Case(options.seed, options.scenario, read_strikes(options.strike), options.upto)
    lines: list[str] | None = None if options.trace is None else []
    verdict = case.run(lines)
    if lines is not None:
        Path(options.trace).write_text("\n".join(lines) + "\n")
    for what in verdict.violations:
        print(what)
    faults = ", ".join(f"{kind} {count}" for kind, count in verdict.faults.most_common())
    hours = f"{verdict.node_s / 3600:.1f} node-hours"
    print(f"trace {verdict.trace}, {verdict.points} points, {hours}, {faults or 'no faults'}")
    return 1 if verdict.violations else 0


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="run for so long, from many seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", help=f"some kinds: {','.join(SHARES)}")
    parser.add_argument("--report", help="where to write the counts, as JSON")
    parser.add_argument("--scenario", help="another than the one of the seed")
    parser.add_argument("--upto", type=int, help="faults, after which there are no more")
    parser.add_argument("--strike", default="", help="points at which a node dies, or is struck: 17,freeze@80")
    parser.add_argument("--trace", help="where to write what happened, line by line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
