"""What Raptor makes of a disk after a power cut: it must open it, and find what it had acknowledged."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from raptor.clock import SystemClock
from raptor.errors import RefusedState
from raptor.task import Task
from tests.powercut.disk import Disk, Image, fashions
from tests.powercut.recording import Recording
from tests.powercut.records import Records, Told, everything
from tests.system.states import opened

AGAIN = 10  # of so many images, one is closed and opened once more


class Found(NamedTuple):
    """What was there: `next_id` is that of a task put after it."""

    records: Records
    next_id: int


class Look(NamedTuple):
    """What Raptor made of an image: `found`, or why it refused."""

    found: Found | None
    refused: str = ""


async def look(folder: Path, *, again: bool = True) -> Look:
    """Open the state as its owner would after a cut, with every row checked, and `again` after a clean end."""
    try:
        async with opened(folder, SystemClock(), deep=True) as store:
            records = await everything(store)
            next_id = store._database._last + 1
            if again:
                assert (await store.put([Task(service="new", due=0.0, data="new")], now=0.0))[0].id == next_id
                await store.cancel([next_id], now=0.0, reason="")
                await store.drop([next_id])
        if again:
            async with opened(folder, SystemClock(), deep=True) as store:
                after = await everything(store)
                if after != records:
                    other = [key for key in after.keys() | records.keys() if after.get(key) != records.get(key)]
                    return Look(None, f"after a clean end there is another state: {other}")
    except RefusedState as refused:
        return Look(None, str(refused))
    return Look(Found(records, next_id))


class Judge:
    """Cuts a recording, and looks at what is left; images that are alike are opened once."""

    def __init__(self, recording: Recording, scratch: Path, *, counts: Counter[str]) -> None:
        self._recording = recording
        self._scratch = scratch
        self._counts = counts
        self._seen: dict[bytes, Look] = {}

    async def violations(self, points: Iterable[int], seed: str, ways: int) -> list[str]:
        """Cut at each of the points, `ways` times and at its two extremes."""
        wrong: list[str] = []
        for point, disk, told in self._at(sorted(points)):
            rng = random.Random(f"{seed} {point}")
            for way, (name, fashion) in enumerate(fashions(disk.unsynced, rng, ways)):
                look = await self._look(disk.image(fashion))
                self._counts["cuts"] += 1
                self._counts["acks_checked"] += told.acknowledged
                wrong += [f"cut {point}:{seed}:{way}  # {name}: {line}" for line in judged(look, told)]
        return wrong

    async def again(self, cut: str, ways: int) -> list[str]:
        """One cut, as a violation names it."""
        point, seed, _ = cut.split(":")
        return [line for line in await self.violations([int(point)], seed, ways) if line.startswith(f"cut {cut} ")]

    async def survivor(self, point: int, seed: str, folder: Path) -> Records | None:
        """Leave what a cut leaves in a folder, opened and closed once; -> its records."""
        for _, disk, _ in self._at([point]):
            *_, (_, fashion) = fashions(disk.unsynced, random.Random(seed), 1)
            lay(disk.image(fashion), folder)
        found = await look(folder / "state")
        return None if found.found is None else found.found.records

    def _at(self, points: list[int]) -> Iterator[tuple[int, Disk, Told]]:
        disk, told = Disk(self._recording.content), Told(self._recording.before)
        done = 0
        for point in points:
            for event in self._recording.events[done:point]:
                if event.kind == "X":
                    told.hear(event.path)
                else:
                    disk.tell(event)
            done = point
            yield point, disk, told

    async def _look(self, image: Image) -> Look:
        digest = hashlib.blake2b(digest_size=16)
        for path, content in image.items():
            if not path.endswith("/lock"):
                digest.update(f"{path}\0{None if content is None else len(content)}\0".encode() + (content or b""))
        name = digest.digest()
        if name not in self._seen:
            self._counts["images"] += 1
            with laid(image, self._scratch) as folder:
                self._seen[name] = await look(folder / "state", again=self._counts["images"] % AGAIN == 0)
        return self._seen[name]


def judged(look: Look, told: Told) -> list[str]:
    if look.found is None:
        return [f"refused: {look.refused}"]
    wrong = told.wrong(look.found.records)
    if look.found.next_id <= told.last_id:
        wrong.append(f"the next task got the id {look.found.next_id}, and {told.last_id} was given before")
    return wrong


def keep(recording: Recording, file: Path) -> None:
    file.write_bytes(msgspec.msgpack.encode(recording))


def kept(file: Path) -> Recording:
    return msgspec.msgpack.decode(file.read_bytes(), type=Recording)


@contextmanager
def laid(image: Image, scratch: Path) -> Iterator[Path]:
    folder = scratch / "image"
    try:
        lay(image, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lay(image: Image, folder: Path) -> None:
    """Write an image out."""
    folder.mkdir()
    for path, content in image.items():
        if content is None:
            (folder / path).mkdir(mode=0o700)
        else:
            (folder / path).write_bytes(content)
