"""A disk that forgets: fed with what a process wrote and synced, it gives what a power cut may leave.

What was synced is there. Of what was not, any part may be there, whatever came before or after it: each sector of a
file as it stood at any moment since, its length for itself, and so each name in a directory until that is synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple, TypeAlias

SECTOR = 512
LENGTH = -1  # in the place of a sector: whether the file has become as long as the write made it


class Event(NamedTuple):
    """A line of a recording: C(reate), W(rite), T(runcate), S(ync), R(ename), U(nlink), M(ake a folder), X (a mark)."""

    kind: str
    inode: int = 0
    place: int = 0
    data: bytes = b""

    @property
    def path(self) -> str:
        return self.data.decode()


@dataclass(slots=True)
class Change:
    """Something that is not synced: bytes at a place, or a length (`data` is None)."""

    number: int  # its place among all changes
    place: int
    data: bytes | None

    @property
    def end(self) -> int:
        return self.place + len(self.data or b"")

    @property
    def sectors(self) -> range:
        """Those that it writes to."""
        return range(self.place // SECTOR, (self.end - 1) // SECTOR + 1 if self.data else 0)


@dataclass(slots=True, eq=False)
class File:
    content: bytearray = field(default_factory=bytearray)  # as of its last sync
    unsynced: list[Change] = field(default_factory=list[Change])

    def sync(self) -> None:
        self.content = bytearray(_left(self, lambda number, sector: True))
        self.unsynced.clear()


FOLDER = File()

Image: TypeAlias = dict[str, bytes | None]
"""What a disk holds, by path; None is a folder."""

Fashion: TypeAlias = Callable[[int, int], bool]
"""Whether a change that was not synced is there all the same, by its number and sector."""


class Disk:
    """Tell it every event in turn; ask at any moment for an image."""

    def __init__(self, content: dict[str, tuple[int, bytes | None]] | None = None) -> None:
        """`content` is there and durable: by path, the number of the inode and the bytes, None for a folder."""
        self._files: dict[int, File] = {}
        self._names: dict[str, File | None] = {}  # as of the last sync of their folder
        self._renamed: list[tuple[int, str, File | None]] = []  # since: number, path, what it names
        self._count = 0
        for path, (inode, data) in (content or {}).items():
            self._names[path] = FOLDER if data is None else File(bytearray(data))
            if data is not None:
                self._files[inode] = self._names[path] or FOLDER

    @property
    def unsynced(self) -> list[int]:
        """The numbers of all changes that a cut may lose."""
        inside = [change.number for file in self._all() for change in file.unsynced]
        return sorted([*inside, *(number for number, *_ in self._renamed)])

    def tell(self, event: Event) -> None:
        match event.kind:
            case "C":
                self._files[event.inode] = File()
                self._name(event.path, self._files[event.inode])
            case "M":
                self._name(event.path, FOLDER)
            case "U":
                self._name(event.path, None)
            case "R":
                old, new = event.path.split("\0")
                file = self._now(old)
                self._name(new, file)
                self._name(old, None)
            case "W" | "T":
                self._count += 1
                data = event.data if event.kind == "W" else None
                self._files[event.inode].unsynced.append(Change(self._count, event.place, data))
            case "S" if event.inode in self._files:
                self._files[event.inode].sync()
            case "S":
                self._sync_folder(event.path)
            case _:
                pass

    def image(self, fashion: Fashion) -> Image:
        names = dict(self._names)
        for number, path, file in self._renamed:
            if fashion(number, LENGTH):
                names[path] = file
        contents: dict[int, bytes] = {}
        image: Image = {}
        for path, file in sorted(names.items()):
            parent = str(PurePosixPath(path).parent)
            if file is None or (parent != "." and parent not in image):
                continue
            if file is FOLDER:
                image[path] = None
                continue
            if id(file) not in contents:
                contents[id(file)] = _left(file, fashion)
            image[path] = contents[id(file)]
        return image

    def _all(self) -> Iterator[File]:
        return iter(self._files.values())

    def _now(self, path: str) -> File | None:
        return next((file for _, name, file in reversed(self._renamed) if name == path), self._names.get(path))

    def _name(self, path: str, file: File | None) -> None:
        self._count += 1
        self._renamed.append((self._count, path, file))

    def _sync_folder(self, folder: str) -> None:
        left: list[tuple[int, str, File | None]] = []
        for number, path, file in self._renamed:
            if str(PurePosixPath(path).parent) == (folder or "."):
                self._names[path] = file
            else:
                left.append((number, path, file))
        self._renamed = left


def _left(file: File, fashion: Fashion) -> bytes:
    if not file.unsynced:
        return bytes(file.content)
    # A sector is written as it stands in memory: with one change of it, all that came before.
    sectors: dict[int, int] = {}
    lengths = [0]
    for change in file.unsynced:
        for sector in change.sectors:
            if fashion(change.number, sector):
                sectors[sector] = change.number
        if fashion(change.number, LENGTH):
            lengths.append(change.number)
    content, length, now = bytearray(file.content), len(file.content), len(file.content)
    for change in file.unsynced:
        now = change.place if change.data is None else max(now, change.end)
        if change.number in lengths:
            length = now
        if change.data is None:
            if change.number <= lengths[-1]:
                content[change.place :] = bytes(max(0, len(content) - change.place))
            continue
        content.extend(bytes(max(0, change.end - len(content))))
        for sector in change.sectors:
            if change.number <= sectors.get(sector, 0):
                first, last = max(change.place, sector * SECTOR), min(change.end, (sector + 1) * SECTOR)
                content[first:last] = change.data[first - change.place : last - change.place]
                if change.number > lengths[-1]:
                    length = max(length, last)
    return bytes(content[:length].ljust(length, b"\0"))


def fashions(unsynced: list[int], rng: random.Random, count: int) -> Iterator[tuple[str, Fashion]]:
    """Ways in which a cut may treat what is not synced: all lost, all kept, and `count` between, by name."""
    yield "lost", lambda number, sector: False
    if not unsynced:
        return
    yield "kept", lambda number, sector: True
    for _ in range(count):
        yield rng.choice(BETWEEN)(unsynced, rng)


def _early(unsynced: list[int], rng: random.Random) -> tuple[str, Fashion]:
    """What came first, as a disk does that keeps the order; the last of it torn."""
    last, torn = rng.choice(unsynced), _coins(rng, 0.5)
    return "early", lambda number, sector: number < last or (number == last and torn(number, sector))


def _late(unsynced: list[int], rng: random.Random) -> tuple[str, Fashion]:
    """What came last, without what came before it."""
    first = rng.choice(unsynced)
    return "late", lambda number, sector: number >= first


def _some(unsynced: list[int], rng: random.Random) -> tuple[str, Fashion]:
    """Any whole writes."""
    kept = {number for number in unsynced if rng.random() < 0.5}
    return "some", lambda number, sector: number in kept


def _sectors(unsynced: list[int], rng: random.Random) -> tuple[str, Fashion]:
    """Any sectors of any writes, few or most of them."""
    return "sectors", _coins(rng, rng.choice((0.1, 0.5, 0.9, 0.98)))


BETWEEN = (_early, _late, _some, _sectors, _sectors)


def _coins(rng: random.Random, share: float) -> Fashion:
    """A coin for each sector of each change, that falls the same way each time."""
    fallen: dict[tuple[int, int], bool] = {}

    def coin(number: int, sector: int) -> bool:
        if (number, sector) not in fallen:
            fallen[number, sector] = rng.random() < share
        return fallen[number, sector]

    return coin
