"""Take over into the corpus what a guided run found: `python -m tests.fuzz.keep FOLDER`.

FOLDER is the `--folder` of the run. An input stays if it reaches a line of Raptor that no smaller one reaches.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.fuzz.target import CORPUS, Target
from tests.fuzz.targets import TARGETS

LARGEST = 400  # bytes
OURS = ("/raptor/", "/state/", "/cli/")


def reached(target: Target, data: bytes) -> set[tuple[str, int]]:
    """The lines of ours that an input reaches."""
    lines: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not any(part in name for part in OURS):
            return None
        lines.add((name, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        target.check(data)
    finally:
        sys.settrace(None)
    return lines


def keep(target: Target, inputs: Path) -> int:
    known: set[tuple[str, int]] = set()
    for data in target.corpus():
        known |= reached(target, data)
    kept = 0
    for path in sorted(inputs.iterdir(), key=lambda path: path.stat().st_size):
        data = path.read_bytes()
        if len(data) > LARGEST:
            break
        new = reached(target, data) - known
        if new:
            known |= new
            kept += 1
            place = CORPUS / target.name / hashlib.sha256(data).hexdigest()[:12]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return kept


if __name__ == "__main__":
    for target in TARGETS.values():
        if (found := Path(sys.argv[1]) / "inputs" / target.name).is_dir():
            print(f"{target.name:9} {keep(target, found)} kept", flush=True)
