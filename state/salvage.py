"""Reading what is left of a damaged SQLite file: cells straight from its pages, trusting as little as possible.

Format: https://sqlite.org/fileformat2.html. What a cell says is believed only where the checksum of a record fits.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = str | bytes | int | float | None

TABLE_LEAF, INDEX_LEAF, INDEX_INNER = 13, 10, 2
INNER = (INDEX_INNER, 5)


@dataclass(frozen=True, slots=True)
class Cell:
    page: int
    rowid: int  # 0 in an index
    values: tuple[Value, ...]


class Unreadable(Exception):
    """Bytes that are no cell."""


class Pages:
    """The newest image of each page: of the file, or of the log where it was committed there.

    Images of the log that are damaged stand beside, under numbers below zero: which page they were is not sure.
    """

    def __init__(self, file: bytes, log: bytes) -> None:
        self.size = _page_size(file, log)
        self.images = {
            number + 1: file[at : at + self.size] for number, at in enumerate(range(0, len(file), self.size))
        }
        pages, damaged, self.unsure = _committed(log, self.size)
        self.images |= pages | {-number: image for number, image in enumerate(damaged, 1)}

    @classmethod
    def read(cls, path: Path) -> Pages:
        log = path.with_name(path.name + "-wal")
        return cls(path.read_bytes() if path.exists() else b"", log.read_bytes() if log.exists() else b"")

    @property
    def version(self) -> tuple[int, int]:
        """application_id and user_version, as far as the header can be read."""
        header = self.images.get(1, b"").ljust(100, b"\0")
        return struct.unpack(">I", header[68:72])[0], struct.unpack(">I", header[60:64])[0]

    @property
    def exact(self) -> bool:
        """No image of the log is damaged: every page is as it was last."""
        return all(number > 0 for number in self.images)

    @property
    def missing(self) -> int:
        """How many pages the header counts that are not there."""
        header = self.images.get(1, b"").ljust(100, b"\0")
        there = sum(number > 0 for number in self.images)
        return max(0, int.from_bytes(header[28:32], "big") - there) if header[:6] == b"SQLite" else 0

    def cells(self) -> Iterator[Cell]:
        """Every cell of a table or an index that can be read."""
        for number, image in self.images.items():
            start = 100 if number == 1 else 0
            kind = image[start] if len(image) > start else 0
            holds = kind in (TABLE_LEAF, INDEX_LEAF, INDEX_INNER)
            found = list(self._listed(number, image, start, kind)) if holds else [None]
            yield from (cell for cell in found if cell is not None)
            if None in found and kind not in INNER:
                # Its head or its list is broken: a cell may stand anywhere on it.
                yield from self._strewn(number, image)

    def _listed(self, number: int, image: bytes, start: int, kind: int) -> Iterator[Cell | None]:
        count = int.from_bytes(image[start + 3 : start + 5], "big")
        start += 12 if kind == INDEX_INNER else 8
        end = start + 2 * count
        for entry in range(start, min(end, len(image)), 2):
            try:
                yield self._cell(number, image, int.from_bytes(image[entry : entry + 2], "big"), kind)
            except Unreadable:
                yield None
        if end > len(image):
            yield None

    def _strewn(self, number: int, image: bytes) -> Iterator[Cell]:
        for at, (length, rowid, head) in enumerate(zip(image, image[1:], image[2:], strict=False)):
            # Nearly nowhere a cell begins. Where its first bytes are numbers by themselves they tell at once.
            if length < 2 or (length < 0x80 > rowid and head < 0x80 and not 1 < head <= min(length, 100)):
                continue
            try:
                cell = self._cell(number, image, at, TABLE_LEAF)
            except Unreadable:
                continue
            if any(isinstance(value, str) for value in cell.values):
                yield cell

    def _cell(self, number: int, image: bytes, at: int, kind: int) -> Cell:
        length, at = _varint(image, at + 4 if kind == INDEX_INNER else at)  # after the page of those before it
        rowid, at = _varint(image, at) if kind == TABLE_LEAF else (0, at)
        return Cell(number, rowid, _values(self._payload(image, at, length, kind)))

    def _payload(self, image: bytes, at: int, length: int, kind: int) -> bytes:
        most = self.size - 35 if kind == TABLE_LEAF else (self.size - 12) * 64 // 255 - 23
        if length <= most:
            return image[at : at + length]
        least = (self.size - 12) * 32 // 255 - 23
        here = least + (length - least) % (self.size - 4)
        here = here if here <= most else least
        if length > len(self.images) * self.size:
            raise Unreadable
        payload, after = image[at : at + here], image[at + here : at + here + 4]
        while len(payload) < length:
            more = self.images.get(int.from_bytes(after, "big"), b"")
            if len(more) <= 4:  # it has nothing of the payload: the last page, cut off, may name itself as the next
                raise Unreadable
            after = more[:4]
            payload += more[4 : 4 + length - len(payload)]
        return payload


def _page_size(file: bytes, frames: bytes) -> int:
    for size in (int.from_bytes(file[16:18], "big"), int.from_bytes(frames[8:12], "big")):
        if size >= 512 and size & (size - 1) == 0:
            return size
    return 4096


@dataclass(frozen=True, slots=True)
class Frame:
    page: int
    commits: bool
    image: bytes
    whole: bool


def _committed(log: bytes, size: int) -> tuple[dict[int, bytes], list[bytes], int]:
    """Pages of the log up to its last whole commit, those that are damaged, and how many of these were the last."""
    pages: dict[int, bytes] = {}
    damaged: list[bytes] = []
    transactions: list[list[Frame]] = [[]]
    for frame in _frames(log, size):
        transactions[-1].append(frame)
        if frame.commits:
            transactions.append([])
    *transactions, _ = transactions  # the last was never committed
    if transactions and not all(frame.whole for frame in transactions[-1]):
        transactions.pop()  # cut short, most likely; if not, its sequence is missed
    unsure: set[int] = set()
    for frame in (frame for transaction in transactions for frame in transaction):
        if frame.whole:
            pages[frame.page] = frame.image
            unsure.discard(frame.page)
        else:
            damaged.append(frame.image)
            unsure.add(frame.page)
    return pages, damaged, len(unsure)


def _frames(log: bytes, size: int) -> list[Frame]:
    order = ">" if log[3:4] == b"\x83" else "<"
    places = range(32, len(log) - 24 - size + 1, 24 + size)
    salts = [log[at + 8 : at + 16] for at in places]
    # The header's salts, or what the first frames agree on where it is damaged. Other salts are of an older log.
    (salt, _), *_ = Counter([log[16:24], *salts[:2]]).most_common(1)
    count = max((number for number, found in enumerate(salts, 1) if found == salt), default=0)
    seed: tuple[int, int] = struct.unpack(">II", log[24:32].ljust(8, b"\0"))
    frames: list[Frame] = []
    for at in places[:count]:
        head, image = log[at : at + 24], log[at + 24 : at + 24 + size]
        page, commit, one, two = struct.unpack(">II8xII", head)
        whole = head[8:16] == salt and (one, two) == _checksum(head[:8] + image, order, seed)
        frames.append(Frame(page, bool(commit), image, whole))
        seed = (one, two)
    return frames


def _checksum(data: bytes, order: str, seed: tuple[int, int]) -> tuple[int, int]:
    one, two = seed
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _varint(data: bytes, at: int) -> tuple[int, int]:
    if at < len(data) and (only := data[at]) < 0x80:  # nearly all are of one byte
        return only, at + 1
    value = 0
    for place in range(9):
        if at + place >= len(data):
            break
        byte = data[at + place]
        if place == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + place + 1
    raise Unreadable


def _values(payload: bytes) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    if not 1 < end <= len(payload) or end > 100:
        raise Unreadable
    values: list[Value] = []
    body = end
    while at < end:
        kind, at = _varint(payload, at)
        width = (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind]
        content = payload[body : body + width]
        if len(content) < width:
            raise Unreadable
        values.append(_value(kind, content))
        body += width
    return tuple(values)


def _value(kind: int, content: bytes) -> Value:
    match kind:
        case 0 | 10 | 11:
            return None
        case 7:
            number: float = struct.unpack(">d", content)[0]
            return number
        case 8 | 9:
            return kind - 8
        case _ if kind < 7:
            return int.from_bytes(content, "big", signed=True)
        case _:
            return content.decode("utf-8", "surrogateescape") if kind % 2 else content
