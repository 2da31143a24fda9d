"""A real file system, cut off: ext4 on a loop device, shut down by ioctl while a scribe writes on it."""

from __future__ import annotations

import fcntl
import functools
import multiprocessing
import os
import random
import select
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.powercut import scribe
from tests.powercut.judge import judged, look
from tests.powercut.records import Records, Told
from tests.powercut.scribe import Plan

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
LOG_FLUSHED, NOTHING_FLUSHED = 1, 2  # whether the journal in memory still comes to the disk
PATIENCE_S = 30.0
SIZE = 48 * 2**20
PROGRAMS = ("mkfs.ext4", "mount", "umount")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Volume:
    """A file system of its own, mounted. `records` are what its state holds."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "volume"
        self.mount = folder / "mounted"
        self.marks = folder / "marks"
        self.records = Records()
        self.generation = 0

    def __enter__(self) -> Self:
        self.mount.mkdir()
        os.mkfifo(self.marks)
        with self._image.open("wb") as file:
            file.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", "-J", "size=4", str(self._image))
        self._attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run("umount", str(self.mount))

    def shut_down(self, how: int) -> None:
        """From this moment on nothing reaches the disk."""
        opened = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(opened, SHUTDOWN, struct.pack("=I", how))
        finally:
            os.close(opened)

    def restart(self) -> None:
        """As after a power cut: the journal is played back."""
        run("umount", str(self.mount))
        self._attach()

    def clear(self) -> None:
        shutil.rmtree(self.mount / "state", ignore_errors=True)
        self.records = Records()

    def _attach(self) -> None:
        run("mount", "-o", "loop", str(self._image), str(self.mount))


async def cut_once(volume: Volume, rng: random.Random, counts: Counter[str], *, synchronous: str = "FULL") -> list[str]:
    """Let a scribe write, cut, and look; -> what is wrong."""
    volume.generation += 1
    plan = Plan(
        home=str(volume.mount / "state"), marks=str(volume.marks), seed=rng.getrandbits(32), at=volume.generation * 1e6,
        steps=0, synchronous=synchronous, checkpoint=rng.choice((20, 1000)),
    )  # fmt: skip
    before, after = _written(volume, plan, rng.randint(1, 120), rng)
    # A sync that is under way while the ioctl works may still be told that all is well: what it lets a scribe say
    # counts as begun, and not as promised.
    told = Told(volume.records).hear_all(before).hear_all("".join(_begun(after)))
    volume.restart()
    found = await look(volume.mount / "state")
    counts["real_control_cuts" if synchronous != "FULL" else "real_cuts"] += 1
    counts["acks_checked"] += told.acknowledged
    wrong = judged(found, told)
    if synchronous == "FULL" and "done" in after:  # how often it happens is counted all the same
        late = Told(volume.records).hear_all(before).hear_all(after)
        counts["late_acks"] += late.acknowledged - told.acknowledged
        counts["cuts_with_late_acks_lost"] += bool(judged(found, late)) and not wrong
    if found.found is None:
        volume.clear()
    else:
        volume.records = found.found.records
    return wrong


def _begun(marks: str) -> Iterator[str]:
    return (line for line in marks.splitlines(keepends=True) if line.startswith("begin"))


def _written(volume: Volume, plan: Plan, lines: int, rng: random.Random) -> tuple[str, str]:
    """Start a scribe and cut after so many marks; -> what it had marked before the cut began, and while it went on."""
    marks = os.open(volume.marks, os.O_RDONLY | os.O_NONBLOCK)
    process = _forks().Process(target=_scribe, args=(plan,), daemon=True)
    try:
        process.start()
        before = b""
        while before.count(b"\n") < lines:
            before += _next(marks)
        while select.select([marks], [], [], 0)[0]:  # promised, up to the last moment
            before += _next(marks)
        volume.shut_down(rng.choice((LOG_FLUSHED, NOTHING_FLUSHED, NOTHING_FLUSHED)))
        process.kill()
        process.join()
        after = b"".join(iter(lambda: _next(marks), b""))
    finally:
        process.kill()
        process.join()
        process.close()
        os.close(marks)
    whole = before.rindex(b"\n") + 1
    return before[:whole].decode(), (before[whole:] + after).decode()


def _next(marks: int) -> bytes:
    """What was said since; b"" when nobody is there to say anything."""
    ready, _, _ = select.select([marks], [], [], PATIENCE_S)
    assert ready, "the scribe is silent"
    return os.read(marks, 2**20)


def _scribe(plan: Plan) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it fails when the disk does, and nobody wants to hear
    scribe.main(plan)


@functools.cache
def _forks() -> multiprocessing.context.ForkServerContext:
    """Scribes start quickly from a process that has everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.powercut.ext4"])
    return context


@functools.cache
def why_not() -> str:
    """Why this machine cannot cut a real file system; empty if it can."""
    if os.geteuid() != 0:
        return "only root mounts file systems"
    for program in PROGRAMS:
        if shutil.which(program, path=PATH) is None:
            return f"there is no {program}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Volume(Path(folder)) as volume:
                volume.shut_down(NOTHING_FLUSHED)
        except (subprocess.CalledProcessError, OSError) as error:
            told = getattr(error, "stderr", "") or str(error)
            return f"a file system on a loop device cannot be mounted or shut down: {told.strip()}"
    return ""


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ | {"PATH": PATH})
