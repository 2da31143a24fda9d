"""What may happen to a file: harms that say what they are in one word, from which they can be done again."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.damage.homes import Case

PAGE = 4096
FRAME, LOG_HEAD = PAGE + 24, 32
SECTOR = 512
UNTOUCHED = ("-shm",)  # made anew by whoever opens first


class Harm(NamedTuple):
    kind: str
    file: str
    at: int = 0
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.file}:{self.at}:{self.bit}"

    @classmethod
    def parse(cls, text: str) -> Harm:
        kind, file, at, bit = text.split(":")
        return cls(kind, file, int(at), int(bit))

    def do(self, case: Case, home: Path) -> None:
        DOING[self.kind](self, case, home / self.file)


def _cut(harm: Harm, case: Case, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: harm.at])


def _flip(harm: Harm, case: Case, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[harm.at] ^= 1 << harm.bit
    path.write_bytes(content)


def _zeros(harm: Harm, case: Case, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: harm.at] + bytes(SECTOR) + content[harm.at + SECTOR :])


def _noise(harm: Harm, case: Case, path: Path) -> None:
    content, noise = path.read_bytes(), random.Random(str(harm)).randbytes(SECTOR)
    path.write_bytes((content[: harm.at] + noise + content[harm.at + SECTOR :])[: len(content)])


def _gone(harm: Harm, case: Case, path: Path) -> None:
    path.unlink()


def _empty(harm: Harm, case: Case, path: Path) -> None:
    path.write_bytes(b"")


def _text(harm: Harm, case: Case, path: Path) -> None:
    path.write_bytes(b"This is a letter to somebody else.\n" * 500)


def _folder(harm: Harm, case: Case, path: Path) -> None:
    path.unlink()
    path.mkdir()


def _older(harm: Harm, case: Case, path: Path) -> None:
    shutil.copy(case.older / harm.file, path)


def _others(harm: Harm, case: Case, path: Path) -> None:
    shutil.copy(case.other / harm.file, path)


def _stranger(harm: Harm, case: Case, path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE songs (key TEXT PRIMARY KEY, value BLOB)")
        connection.execute("INSERT INTO songs VALUES ('one', 'la')")


def _sibling(harm: Harm, case: Case, path: Path) -> None:
    names = sorted(case.path.glob("*.sqlite"))
    shutil.copy(names[(names.index(case.path / harm.file) + 1) % len(names)], path)


def _older_and_log_gone(harm: Harm, case: Case, path: Path) -> None:
    _older(harm, case, path)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


DOING: dict[str, Callable[[Harm, Case, Path], None]] = {
    "cut": _cut,
    "flip": _flip,
    "zeros": _zeros,
    "noise": _noise,
    "gone": _gone,
    "empty": _empty,
    "text": _text,
    "folder": _folder,
    "older": _older,
    "others": _others,
    "stranger": _stranger,
    "sibling": _sibling,
    "older-without-log": _older_and_log_gone,
}


def files(case: Case) -> dict[str, int]:
    """Files of the directory, by name, and how long they are."""
    found = sorted(path for path in case.path.iterdir() if path.is_file() and not path.name.endswith(UNTOUCHED))
    return {path.name: path.stat().st_size for path in found}


def whole_files(case: Case) -> Iterator[Harm]:
    """Everything that may happen to a file as a whole."""
    for name in files(case):
        for kind in ("gone", "empty", "text", "folder"):
            yield Harm(kind, name)
        for kind, place in (("older", case.older), ("others", case.other)):
            if (place / name).exists():
                yield Harm(kind, name)
        if name.endswith(".sqlite"):
            yield from (Harm(kind, name) for kind in ("stranger", "sibling", "older-without-log"))


def cuts(case: Case) -> Iterator[Harm]:
    """Every interesting length of every file."""
    for name, size in files(case).items():
        edges = [*range(0, size, PAGE), size]
        if name.endswith("-wal"):
            edges = [0, LOG_HEAD, *range(LOG_HEAD, size, FRAME), *range(LOG_HEAD + 24, size, FRAME), size]
        lengths = {0, 1, 15, 16, 100, 511, 512, *(edge + more for edge in edges for more in (-1, 0, 1))}
        if name in ("reserve", "lock"):
            lengths = {0, 1, 512}
        yield from (Harm("cut", name, length) for length in sorted(lengths) if 0 <= length < size)


def sectors(case: Case) -> Iterator[Harm]:
    for name, size in files(case).items():
        if name != "reserve":
            yield from (Harm(kind, name, at) for kind in ("zeros", "noise") for at in range(0, size, SECTOR))


def flips(case: Case, rng: random.Random) -> Iterator[Harm]:
    """A bit of every byte, in random order."""
    places = [(name, at) for name, size in files(case).items() if name != "reserve" for at in range(size)]
    rng.shuffle(places)
    yield from (Harm("flip", name, at, rng.randrange(8)) for name, at in places)
