"""Harms by the thousand, each to a fresh copy, and what became of them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.damage.harms import Harm
from tests.damage.homes import Case
from tests.damage.judge import outcome

MEMORY = Path("/dev/shm")


@dataclass
class Campaign:
    """`counts` by kind and outcome; a violation is a line that repeats it."""

    scratch: Path
    counts: Counter[str] = field(default_factory=Counter[str])
    violations: list[str] = field(default_factory=list[str])

    async def harm(self, case: Case, harm: Harm) -> str:
        home = self.scratch / "harmed"
        shutil.copytree(case.path, home)
        try:
            harm.do(case, home)
            found = await outcome(case, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        self.counts[harm.kind] += 1
        self.counts[found.what] += 1
        again = f"python -m tests.damage --replay {case.name}/{harm}"
        self.violations += [f"{again}  # {line}" for line in found.wrong]
        return found.what


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="damage-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
