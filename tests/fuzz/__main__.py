"""The long form: every target in a process of its own, for its share of the time.

Where atheris is installed (`pip install atheris`), the first part of the share is guided by coverage; the rest, and all
of it elsewhere, changes what is known by chance, which is faster. With `--inputs` the share is that many inputs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from math import inf
from pathlib import Path

from tests.fuzz.child import Tally
from tests.fuzz.targets import TARGETS

GUIDED = 0.3  # of the time
GUIDED_S = 10.0  # where inputs are counted, and not the time
STALL_S = 60.0  # an input that takes so long hangs
ROOT = Path(__file__).parents[2]


class Fuzz:
    """A run over some targets: counts, and whatever must not be."""

    def __init__(self, names: list[str], seed: int, folder: Path) -> None:
        self.counts: dict[str, int] = {}
        self.violations: list[str] = []
        self._names = names
        self._seed = seed
        self._folder = folder
        self._can_guide = importlib.util.find_spec("atheris") is not None

    def run(self, seconds: float, inputs: int | None = None) -> None:
        each = seconds / len(self._names)
        for name in self._names:
            can_guide = self._can_guide and TARGETS[name].inputs is None
            guided = (each * GUIDED if inputs is None else GUIDED_S) if can_guide else 0.0
            if guided >= 2:
                self._child(name, guided, "guided")
            self._child(name, each - guided if inputs is None else inf, "plain", inputs)

    def _child(self, name: str, seconds: float, engine: str, inputs: int | None = None) -> None:
        tally, began = Tally(self._folder / f"{name}.tally"), time.monotonic()
        before, _, _ = tally.read()
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.child",
            name,
            str(self._seed),
            str(seconds),
            str(self._folder),
            engine,
            str(inputs or 0),
        ]
        with (self._folder / f"{name}.out").open("a+") as told, (self._folder / f"{name}.err").open("w") as noise:
            start = told.tell()
            child = subprocess.Popen(
                command, stdout=told, stderr=noise, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}
            )
            try:
                ended = self._await(child, tally)
            finally:
                child.kill()
                child.wait()
                self._count(name, tally)
            told.seek(start)
            for line in told.read().splitlines():
                path, _, what = line.partition(" ")
                self._violation(name, Path(path).read_bytes(), what)
        if ended is not None:
            noise_path = self._folder / f"{name}.err"
            last = noise_path.read_text(errors="replace").strip().splitlines()[-1:] or [""]
            self._violation(name, tally.read()[2], f"{ended}: {last[0]}")
        done = tally.read()[0] - before
        rate = done / max(time.monotonic() - began, 0.001)
        print(f"{name:9} {engine:6} {done:>10,} inputs, {rate:,.0f} a second", flush=True)

    def _await(self, child: subprocess.Popen[bytes], tally: Tally) -> str | None:
        """None for a good end; else what became of it."""
        began = seen = tally.read()[0]
        since = time.monotonic()
        while child.poll() is None:
            time.sleep(0.2)
            inputs = tally.read()[0]
            if inputs != seen:
                seen, since = inputs, time.monotonic()
            elif (
                seen != began and time.monotonic() - since > STALL_S
            ):  # before the first it imports, which may take long
                return f"it hung for {STALL_S:.0f} s"
        return None if child.returncode == 0 else f"the process ended with {child.returncode}"

    def _count(self, name: str, tally: Tally) -> None:
        inputs, cases, _ = tally.read()
        self.counts[name] = inputs
        if TARGETS[name].inputs is not None:
            self.counts[f"{name} pairs"] = cases

    def _violation(self, name: str, data: bytes, what: str) -> None:
        line = f"{name}: {what}: replay with python -m tests.fuzz --target {name} --input {data.hex()}"
        self.violations.append(line)
        print(line, flush=True)


def report(fuzz: Fuzz, seed: int, seconds: float) -> dict[str, object]:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "part": "fuzz", "commit": asked.stdout.strip(), "seed": seed, "seconds": round(seconds, 1),
        "counts": fuzz.counts, "violations": fuzz.violations,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--inputs", type=int, default=None, help="so many for each target, and no matter how long")
    parser.add_argument("--seed", type=int, default=None, help="none: a new one")
    parser.add_argument("--report", type=Path, default=None, help="a file for the counts, as JSON")
    parser.add_argument("--target", choices=TARGETS, action="append", help="again for another; none: all")
    parser.add_argument(
        "--input", type=bytes.fromhex, default=None, help="look at this one only, in hexadecimal digits"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where new inputs stay, and are read by the next run")
    asked = parser.parse_args()
    names: list[str] = asked.target or list(TARGETS)
    if asked.input is not None:
        for name in names:
            TARGETS[name].check(asked.input)
        return 0
    seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the child ends with us
    with tempfile.TemporaryDirectory(prefix="raptor-fuzz-") as scratch:
        folder: Path = asked.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob("*.tally"):
            stale.unlink()
        share = f"{asked.minutes:g} min" if asked.inputs is None else f"{asked.inputs:,} inputs each"
        print(f"fuzz: {len(names)} targets, {share}, seed {seed}", flush=True)
        fuzz, began = Fuzz(names, seed, folder), time.monotonic()
        try:
            fuzz.run(asked.minutes * 60, asked.inputs)
        except KeyboardInterrupt:
            print("stopped: what was done until now counts", flush=True)
    found = report(fuzz, seed, time.monotonic() - began)
    if asked.report is not None:
        asked.report.write_text(json.dumps(found, indent=1) + "\n")
    print(f"fuzz: {sum(fuzz.counts.values()):,} inputs and pairs, {len(fuzz.violations)} surprises, seed {seed}")
    return 1 if fuzz.violations else 0


if __name__ == "__main__":
    sys.exit(main())
