"""`python -m tests.simulation --minutes M --seed S --report FILE`, or one again: --seed S [--scenario X] ..."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import logging
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.simulation import scenario
from tests.simulation.campaign import Campaign, Case

SPAN = 1_000_000  # seeds that belong to one seed of a campaign
SHARE = 0.6  # of the time, for the swarm; the rest is for pairs of crashes
TURN_S = 20.0  # between two lines of progress


def main() -> int:
    options = _options()
    logging.disable(logging.CRITICAL)  # a simulated node has much to complain of
    gc.freeze()
    if options.minutes is None:
        return _replay(options)
    campaign, began = Campaign(tell=lambda text: print(text, flush=True)), time.monotonic()
    try:
        _long(campaign, options.seed, options.minutes * 60, began)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    seconds = time.monotonic() - began
    _progress(campaign, seconds)
    if options.report is not None:
        report = {
            "part": "simulation", "commit": _commit(), "seed": options.seed, "seconds": round(seconds, 1),
            "counts": dict(campaign.counts), "violations": campaign.violations,
        }  # fmt: skip
        Path(options.report).write_text(json.dumps(report, indent=2) + "\n")
    return 1 if campaign.violations else 0


def _long(campaign: Campaign, seed: int, seconds: float, began: float) -> None:
    """By turns: seeds of the swarm and, after the single crashes of this seed, pairs."""
    end, chance = began + seconds, random.Random(f"pairs {seed}")
    names = itertools.cycle(scenario.SMALL)
    seeds = itertools.count(seed * SPAN)
    campaign.repeats(Case(seed * SPAN))
    for name in scenario.SMALL:
        campaign.singles(name, seed, min(end, time.monotonic() + seconds * (1 - SHARE) / len(scenario.SMALL)))
    while time.monotonic() < end:
        campaign.swarm(seeds, min(end, time.monotonic() + TURN_S * SHARE))
        campaign.pairs(next(names), seed, chance, min(end, time.monotonic() + TURN_S * (1 - SHARE)))
        _progress(campaign, time.monotonic() - began)


def _replay(options: argparse.Namespace) -> int:
    crashes = tuple(int(point) for point in options.crash.split(",") if point)
    case = Case(options.seed, options.scenario, crashes, options.upto)
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


def _progress(campaign: Campaign, seconds: float) -> None:
    counts = ", ".join(f"{name} {count}" for name, count in campaign.counts.items())
    print(f"{seconds:.0f} s: {counts}; {len(campaign.violations)} violations", flush=True)


def _commit() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="run for so long, from many seeds")
    parser.add_argument("--report", help="where to write the counts, as JSON")
    parser.add_argument("--scenario", help="another than the one of the seed")
    parser.add_argument("--upto", type=int, help="faults, after which there are no more")
    parser.add_argument("--crash", default="", help="points at which a node dies: K or K,K")
    parser.add_argument("--trace", help="where to write what happened, line by line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
