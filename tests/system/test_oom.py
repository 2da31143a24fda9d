"""A real memory cgroup with too little memory, and a real kernel that kills in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.runners.oom import CONTROL, counter

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 128 * 2**20
PATIENCE_S = 60

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup below our own with little memory and no swap."""
    own = counter()
    if own is None:
        pytest.skip("no memory cgroup here")
    v1 = own.name == CONTROL
    limits = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if v1 else ("memory.max", "memory.swap.max")
    made = own.parent / f"raptor-test-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        try:
            (made / limits[0]).write_text(str(LIMIT))
        except OSError as error:
            pytest.skip(f"its memory cannot be limited: {error}")
        if (made / limits[1]).exists():
            (made / limits[1]).write_text(str(LIMIT if v1 else 0))
        yield made
    finally:
        made.rmdir()


@pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
def test_what_the_kernel_kills_for_want_of_memory_says_so(cgroup: Path) -> None:
    # The shell moves itself there, and so whatever it starts.
    script = f'echo $$ > "{cgroup}/cgroup.procs" && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", sys.executable, "-m", "tests.system.hostile.hungry"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    why = "killed by the kernel: out of memory"
    assert (done.stdout, done.returncode) == (f"command {why}\nfunction {why}\n", 0), done.stderr
