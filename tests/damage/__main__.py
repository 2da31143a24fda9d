"""Damage for as long as wanted: `python -m tests.damage --minutes 10 --seed 1 --report FILE`.

Whole files and cuts first, then sectors and flipped bits of every byte in the order that the seed gives.
`--replay CASE/HARM` repeats one that a violation names.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from raptor.clock import SystemClock
from tests.damage.campaign import Campaign, scratch
from tests.damage.harms import DOING, Harm, cuts, flips, sectors, whole_files
from tests.damage.homes import Case, prepare
from tests.powercut.__main__ import commit

SHOW_S = 20.0


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    words.add_argument("--minutes", type=float, default=1.0)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument("--report", type=Path, default=None)
    words.add_argument("--kinds", default="", help="of harms, by commas; all of them without it")
    words.add_argument("--replay", default=None)
    given = words.parse_args()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    began = time.monotonic()
    with scratch() as folder:
        cases = prepare(folder)
        campaign = Campaign(folder)
        if given.replay is not None:
            name, _, text = given.replay.partition("/")
            (case,) = [one for one in cases if one.name == name]
            what = SystemClock().run(lambda: campaign.harm(case, Harm.parse(text)))
            print(what, *campaign.violations, sep="\n")
            return int(bool(campaign.violations))
        print(f"seed {seed}, commit {commit()}", flush=True)
        try:
            kinds = set(given.kinds.split(",")) - {""} or DOING.keys()
            todo = (one for one in harms(cases, seed) if one[1].kind in kinds)
            SystemClock().run(lambda: run(campaign, todo, began + given.minutes * 60.0))
        except KeyboardInterrupt:
            print("stopped")
    seconds = time.monotonic() - began
    print(summary(campaign, seconds))
    for line in campaign.violations[:100]:
        print(line)
    if given.report is not None:
        given.report.write_text(json.dumps({
            "part": "damage", "commit": commit(), "seed": seed, "seconds": round(seconds, 1),
            "counts": dict(campaign.counts), "violations": campaign.violations,
        }))  # fmt: skip
    return int(bool(campaign.violations))


def harms(cases: list[Case], seed: int) -> Iterator[tuple[Case, Harm]]:
    for case in cases:
        yield from ((case, harm) for harm in chain(whole_files(case), cuts(case)))
    rng = random.Random(seed)
    for case in cases:
        some = list(sectors(case))
        yield from ((case, harm) for harm in rng.sample(some, len(some)))
    both = zip_longest(*[[(case, harm) for harm in flips(case, rng)] for case in cases])
    yield from (one for pair in both for one in pair if one is not None)


async def run(campaign: Campaign, todo: Iterator[tuple[Case, Harm]], until: float) -> None:
    began = shown = time.monotonic()
    for case, harm in todo:
        await campaign.harm(case, harm)
        now = time.monotonic()
        if now - shown > SHOW_S:
            shown = now
            print(summary(campaign, now - began), flush=True)
        if now > until:
            return
    print("every harm was done")


def summary(campaign: Campaign, seconds: float) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(campaign.counts.items()))
    return f"{seconds:.0f} s: {counts}; {len(campaign.violations)} violations"


if __name__ == "__main__":
    sys.exit(main())
