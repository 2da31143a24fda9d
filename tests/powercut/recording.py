"""A scribe run under the recorder: everything that came to its files, in order, and everything that it marked."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.powercut.disk import Event
from tests.powercut.records import Records
from tests.powercut.scribe import Plan
from tests.system.states import ROOT

SOURCE = Path(__file__).with_name("recorder.c")
HEAD = struct.Struct("=QQQQ")
# Mapped memory, which is made anew by whoever opens first after a cut, and room that holds nothing.
UNTOLD = ("-shm", "reserve")


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What was there before, by path: inode and content; what the records were; and what happened then."""

    content: dict[str, tuple[int, bytes | None]]
    before: Records
    events: list[Event]


def record(folder: Path, before: Records, plan: Plan) -> Recording:
    """Run a scribe on `folder`/state, which holds `before`."""
    content = {
        str(path.relative_to(folder)): (path.stat().st_ino, None if path.is_dir() else path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith(UNTOLD)
    }
    with tempfile.TemporaryDirectory() as beside:
        log, marks, told = (Path(beside) / name for name in ("log", "marks", "plan"))
        plan = msgspec.structs.replace(plan, home=str(folder / "state"), marks=str(marks))
        told.write_bytes(msgspec.json.encode(plan))
        run_recorded([sys.executable, "-m", "tests.powercut.scribe", str(told)], folder, log, marks)
        return Recording(content=content, before=before, events=parse(log.read_bytes()))


def run_recorded(command: list[str], folder: Path, log: Path, marks: Path) -> None:
    names = {"RECORDER_FOLDER": folder, "RECORDER_LOG": log, "RECORDER_MARKS": marks, "LD_PRELOAD": built()}
    environment = os.environ | {name: str(value) for name, value in names.items()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def parse(log: bytes) -> list[Event]:
    events: list[Event] = []
    at = 0
    while at < len(log):
        kind, inode, place, length = HEAD.unpack_from(log, at)
        at += HEAD.size
        events.append(Event(chr(kind), inode, place, log[at : at + length]))
        at += length
    return list(_without_untold(events))


def _without_untold(events: list[Event]) -> Iterator[Event]:
    untold = set[int]()
    for event in events:
        if event.kind == "C" and event.path.endswith(UNTOLD):
            untold.add(event.inode)
        elif event.kind == "C":
            untold.discard(event.inode)  # a number may be given again
        named = event.kind in "CU" and event.path.endswith(UNTOLD)
        if not named and event.inode not in untold:
            yield event


@functools.cache
def built() -> Path:
    """The recorder as a library, made once in a process."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "these tests need a C compiler: apt-get install gcc"
    folder = Path(tempfile.mkdtemp(prefix="recorder-"))
    library = folder / "recorder.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return library
