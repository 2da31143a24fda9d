"""The long form of the torture: python -m tests.torture --minutes M --seed S --report FILE [--store sqlite|postgres].

Exit 0 if nothing was found, 1 with violations, each on a line with the seed of its round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from raptor.clock import SystemClock
from raptor.testing.torture.campaign import COUNTED, Campaign
from tests.servers import running

QUIET_S = 30.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    return parser.parse_args()


def main() -> int:
    asked, began = options(), time.monotonic()
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    with ExitStack() as stack:
        server = stack.enter_context(running("fsync=on")) if asked.store == "postgres" else None
        campaign = Campaign(
            seed, asked.minutes * 60, folder, SystemClock(), store=None if server is None else server.url, server=server
        )
        print(f"torture on {asked.store}, seed {seed}, in {folder}", flush=True)
        campaign.clock.run(lambda: torture(campaign))
    counts = {name: campaign.counts[name] for name in COUNTED}
    again = f"python -m tests.torture --store {asked.store} --seed {seed} --minutes {asked.minutes:g}"
    violations = [f"{one} replay: {again}" for one in campaign.found]
    for line in (*violations, json.dumps(counts)):
        print(line)
    if asked.report is not None:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        report = {
            "part": f"torture-{asked.store}", "commit": found.stdout.strip(), "seed": seed,
            "seconds": round(time.monotonic() - began, 1), "counts": counts, "violations": violations,
        }  # fmt: skip
        asked.report.write_text(json.dumps(report) + "\n")
    if not violations:
        shutil.rmtree(folder)
    return 1 if violations else 0


async def torture(campaign: Campaign) -> None:
    stop, said = asyncio.Event(), time.monotonic()

    def hear() -> None:
        nonlocal said
        if time.monotonic() - said >= QUIET_S:
            said = time.monotonic()
            print(f"{dict(campaign.counts)} {len(campaign.found)} violations", flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await campaign.run(hear, stop)


if __name__ == "__main__":
    sys.exit(main())
