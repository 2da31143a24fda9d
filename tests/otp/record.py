"""The answers of a real OTP that are kept with the tests. `python -m tests.otp.record` makes them anew."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from tests.otp import otp
from tests.otp.answers import Step, Steps
from tests.otp.author import generate
from tests.otp.scripts import Script, from_json, to_json

FILE = Path(__file__).with_name("recorded.jsonl.gz")
SEEDS = range(1, 2001)


def write(path: Path, release: str, recorded: Sequence[tuple[Script, Steps]]) -> None:
    """The release of OTP, then a script and its steps a line. The same answers give the same bytes."""
    rows = [[release], *[[to_json(script), steps] for script, steps in recorded]]
    text = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read(path: Path = FILE) -> tuple[str, list[tuple[Script, Steps]]]:
    header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    return json.loads(header)[0], [(from_json(script), [Step(*step) for step in steps]) for script, steps in rows]


def main() -> None:
    scripts = [generate(seed) for seed in SEEDS]
    with otp.compiled() as folder:
        recorded: list[tuple[Script, Steps]] = []
        for script, steps in zip(scripts, otp.ask(folder, scripts), strict=True):
            if isinstance(steps, str):
                raise SystemExit(f"seed {script.seed}: OTP gave no answer: {steps}")
            recorded.append((script, steps))
        write(FILE, otp.release(), recorded)
    print(f"{FILE.name}: {len(recorded)} scripts, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
