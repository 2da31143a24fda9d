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
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from raptor.clock import SystemClock
from raptor.testing.torture.campaign import COUNTED, Campaign
from tests.servers import running

QUIET_S = 30.0
ABREAST = 4  # a round waits most of the time: for nodes to begin, for moments to kill them, for what is left to do
APART = 1_000_003  # between the seeds of those


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--abreast", type=int, default=ABREAST, help="rounds at a time, each with a server of its own")
    return parser.parse_args()


def main() -> int:
    asked, began, commit = options(), time.monotonic(), _commit()  # other commits may come while it goes on
    seed = secrets.randbelow(2**32) if asked.seed is None else asked.seed
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    print(f"torture on {asked.store}, seed {seed}, in {folder}", flush=True)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running("fsync=on")) if asked.store == "postgres" else None
            for _ in range(asked.abreast)
        ]
        campaigns = [
            Campaign(
                seed + place * APART, asked.minutes * 60, folder / str(place), SystemClock(),
                store=None if server is None else server.url, server=server,
            )
            for place, server in enumerate(servers)
        ]  # fmt: skip
        SystemClock().run(lambda: torture(campaigns))
    counts = _sum(campaigns)
    again = f"python -m tests.torture --store {asked.store} --seed {seed} --minutes {asked.minutes:g}"
    violations = [f"{found} replay: {again}" for one in campaigns for found in one.found]
    for line in (*violations, json.dumps(counts)):
        print(line)
    if asked.report is not None:
        report = {
            "part": f"torture-{asked.store}", "commit": commit, "seed": seed,
            "seconds": round(time.monotonic() - began, 1), "counts": counts, "violations": violations,
        }  # fmt: skip
        asked.report.write_text(json.dumps(report) + "\n")
    if not violations:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if violations else 0


async def torture(campaigns: Sequence[Campaign]) -> None:
    stop, said = asyncio.Event(), time.monotonic()

    def hear() -> None:
        nonlocal said
        if time.monotonic() - said >= QUIET_S:
            said = time.monotonic()
            print(f"{_sum(campaigns)} {sum(len(one.found) for one in campaigns)} violations", flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await asyncio.gather(*(one.run(hear, stop) for one in campaigns))


def _sum(campaigns: Sequence[Campaign]) -> dict[str, int]:
    return {name: sum(one.counts[name] for one in campaigns) for name in COUNTED}


def _commit() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
