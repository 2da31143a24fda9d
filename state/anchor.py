"""Whose state a directory holds and how far each file got, kept beside the files: a lost or older one is noticed.

`anchor.json` is written durably, now and then. `heads` is written at every commit, without a sync: it is always true
after a kill, and after a power cut it is at worst behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import msgspec

from raptor.state.damage import damaged
from raptor.state.folder import sync
from raptor.state.parts import FORMAT, PARTS
from raptor.state.seal import BrokenSeal, seal, unseal

NAME = "anchor.json"
DIGITS = 20
MOST = 2**62  # commits that no file ever sees: SQLite could not count them


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    state: str  # the id that every file is stamped with
    owner: str  # the incarnation that wrote this
    clean: bool  # it had closed every file
    written: float
    sequences: dict[str, int]  # of each file that was there


def read(folder: Path) -> Anchor | None:
    path = folder / NAME
    try:
        return unseal("anchor", "", path.read_text(encoding="utf-8", errors="surrogateescape"), Anchor)
    except FileNotFoundError:
        return None
    except BrokenSeal as error:
        raise damaged(path, f"is damaged: {error}") from error


def write(folder: Path, anchor: Anchor) -> None:
    write_durably(folder / NAME, seal("anchor", "", anchor).encode())


def write_durably(path: Path, content: bytes) -> None:
    """All of it or nothing, whenever the power fails."""
    unfinished = path.with_name(path.name + ".tmp")
    file = os.open(unfinished, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(file, content)
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(unfinished, path)
    sync(path.parent)


class Heads:
    """The sequence of each file's last commit: a line of fixed length for each."""

    def __init__(self, folder: Path, sequences: Mapping[str, int]) -> None:
        self._file = os.open(folder / "heads", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        for name in PARTS:
            self.teller(name)(sequences.get(name, 0))

    def teller(self, name: str) -> Callable[[int], None]:
        place = list(PARTS).index(name) * (DIGITS + 1)

        def tell(sequence: int) -> None:
            try:
                os.pwrite(self._file, b"%0*d\n" % (DIGITS, sequence), place)
            except OSError:
                pass  # a witness less: the commit itself is safe

        return tell

    def close(self) -> None:
        os.close(self._file)


def read_heads(folder: Path) -> dict[str, int]:
    try:
        content = (folder / "heads").read_bytes()
    except FileNotFoundError:
        return {}
    # By their places: a line that is damaged must not shift the others.
    lines = {name: content[at : at + DIGITS] for name, at in zip(PARTS, count(0, DIGITS + 1), strict=False)}
    heads = {name: int(line) for name, line in lines.items() if len(line) == DIGITS and line.isdigit()}
    return {name: head for name, head in heads.items() if head < MOST}
