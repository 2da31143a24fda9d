"""Power cuts for as long as wanted: `python -m tests.powercut --minutes 10 --seed 1 --report FILE`.

`--replay RECORDING --cut CUT` repeats one that a violation names.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from raptor.clock import SystemClock
from tests.powercut.campaign import WAYS, Campaign, scratch
from tests.powercut.ext4 import Volume, cut_once, why_not
from tests.powercut.judge import Judge, kept
from tests.system.states import ROOT

STEPS, POINTS = 25, 200
SHOW_S = 20.0
CONTROLS = ("NORMAL", "OFF")


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    words.add_argument("--minutes", type=float, default=1.0)
    words.add_argument("--seed", type=int, default=None)
    words.add_argument("--report", type=Path, default=None)
    words.add_argument("--only", choices=("recorded", "real"), default=None, help="one of the two kinds of cuts")
    words.add_argument("--replay", type=Path, default=None)
    words.add_argument("--cut", default="")
    given = words.parse_args()
    if given.replay is not None:
        return replay(given.replay, given.cut)
    seed = random.randrange(2**32) if given.seed is None else given.seed
    campaign = Campaign(seed, kept=Path(tempfile.gettempdir()) / "raptor-powercut")
    began = time.monotonic()
    print(f"seed {seed}, commit {commit()}", flush=True)
    try:
        SystemClock().run(lambda: run(campaign, began + given.minutes * 60.0, given.only))
    except KeyboardInterrupt:
        print("stopped")
    seconds = time.monotonic() - began
    print(summary(campaign, seconds))
    for line in campaign.violations[:50]:
        print(line)
    if given.report is not None:
        given.report.write_text(json.dumps({
            "part": "powercut", "commit": commit(), "seed": seed, "seconds": round(seconds, 1),
            "counts": dict(campaign.counts), "violations": campaign.violations,
        }))  # fmt: skip
    return int(bool(campaign.violations))


async def run(campaign: Campaign, until: float, only: str | None) -> None:
    """Lives of recorded states, real cuts and controls in turn."""
    why = why_not()
    if only != "recorded" and why:
        print(f"real cuts are not run: {why}")
    number, shown, began = 0, time.monotonic(), time.monotonic()
    while time.monotonic() < until:
        if only != "real":
            await campaign.life(number, steps=STEPS, points=POINTS)
            if number % 10 == 0:
                await campaign.control(number, CONTROLS[number // 10 % 2])
        if only != "recorded" and not why:
            await real(campaign, number, until)
        number += 1
        if time.monotonic() - shown > SHOW_S:
            shown = time.monotonic()
            print(summary(campaign, shown - began), flush=True)


async def real(campaign: Campaign, number: int, until: float) -> None:
    """A file system that is shut down again and again; every tenth one as a control."""
    is_control = number % 10 == 0
    rng = random.Random(f"{campaign.seed} real {number}")
    with scratch() as place, Volume(place) as volume:
        for _ in range(5 if is_control else 20):
            if time.monotonic() > until:
                break
            synchronous = CONTROLS[number // 10 % 2] if is_control else "FULL"
            wrong = await cut_once(volume, rng, campaign.counts, synchronous=synchronous)
            if is_control:
                campaign.counts["control_losses"] += bool(wrong)
                volume.clear()
            else:
                again = f"python -m tests.powercut --only real --seed {campaign.seed}"
                campaign.violations += [f"{again}  # volume {number}: {line}" for line in wrong]


def replay(file: Path, cut: str) -> int:
    with scratch() as place:
        judge = Judge(kept(file), place, counts=Campaign(0, place).counts)
        wrong = SystemClock().run(lambda: judge.again(cut, WAYS))
    print("\n".join(wrong) or "nothing is wrong")
    return int(bool(wrong))


def summary(campaign: Campaign, seconds: float) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in sorted(campaign.counts.items()))
    return f"{seconds:.0f} s: {counts}; {len(campaign.violations)} violations"


def commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
