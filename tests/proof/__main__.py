"""`python -m tests.proof --minutes 60`: every part for its share of the time; the record and its page are brought up.

With --add FILE... reports that parts wrote by themselves are taken in, and nothing is run.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from tests.proof.record import Record, Report, past, recorded, table, written_into

ROOT = Path(__file__).resolve().parents[2]
KEPT, PAGE = ROOT / "reliability.json", ROOT / "docs" / "reliability.md"
AT_ONCE = 2
SPARE_S = 600.0  # for a part to come to its end when its time is over

# The module of a part, further words for it, and its share of the time.
PARTS: dict[str, tuple[tuple[str, ...], float]] = {
    "simulation": (("tests.simulation",), 0.25),
    "torture on SQLite": (("tests.torture", "--store", "sqlite"), 0.2),
    "torture on PostgreSQL": (("tests.torture", "--store", "postgres"), 0.2),
    "power cuts": (("tests.powercut",), 0.1),
    "damage": (("tests.damage",), 0.05),
    "fuzz": (("tests.fuzz",), 0.1),
    "mutation": (("tests.mutation",), 0.05),
    "checker": (("tests.checker",), 0.05),
}


def main() -> int:
    options = _options()
    if options.add:
        reports = [msgspec.json.decode(Path(file).read_bytes(), type=Report) for file in options.add]
    else:
        seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
        print(f"proof: seed {seed}, {options.minutes:g} minutes, {AT_ONCE} parts at a time", flush=True)
        reports = _run(options.minutes, seed)
    before = msgspec.json.decode(KEPT.read_bytes(), type=Record).runs if KEPT.exists() else []
    record = recorded([*before, *map(past, reports)])
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    PAGE.write_text(written_into(PAGE.read_text(), record))
    print(table(recorded([past(report) for report in reports])))
    found = [f"{report.part}: {violation}" for report in reports for violation in report.violations]
    for line in found:
        print(f"violation: {line}")
    return 1 if found or len(reports) < (0 if options.add else len(PARTS)) else 0


def _run(minutes: float, seed: int) -> list[Report]:
    """Two at a time: each of them waits much, for disks or for its children."""
    with tempfile.TemporaryDirectory(prefix="raptor-proof-") as folder, ThreadPoolExecutor(AT_ONCE) as threads:
        runs = [
            threads.submit(_part, name, words, minutes * share * AT_ONCE, seed, Path(folder))
            for name, (words, share) in PARTS.items()
        ]
        return [report for run in runs if (report := run.result()) is not None]


def _part(name: str, words: tuple[str, ...], minutes: float, seed: int, folder: Path) -> Report | None:
    file, log = folder / f"{name}.json", folder / f"{name}.txt"
    module, *further = words
    command = [sys.executable, "-m", module, *further, "--minutes", f"{minutes:g}", "--seed", str(seed)]
    print(f"{name}: {minutes:.1f} minutes", flush=True)
    with open(log, "wb") as output:
        try:
            subprocess.run(
                [*command, "--report", str(file)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False,
                timeout=minutes * 60 + SPARE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            pass
    if not file.exists():
        print(f"{name}: it gave no report\n{log.read_text(errors='replace')[-4000:]}", flush=True)
        return None
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    print(f"{name}: {'sound' if not report.violations else f'{len(report.violations)} violations'}", flush=True)
    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--add", nargs="+", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
