"""What services and clients write of themselves: a record in one write, synced: a kill loses and mixes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from raptor.testing.checker.history import Record, encode

R = TypeVar("R", bound=Record)


def append(path: str | Path, record: Record) -> None:
    """It begins with a line end as well: what a kill cut off stands on a line of its own."""
    append_bytes(path, b"\n" + encode(record))


def append_bytes(path: str | Path, line: bytes) -> None:
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, line)
        os.fsync(number)
    finally:
        os.close(number)


def written(path: Path, kind: type[R]) -> Iterator[R]:
    """The records of a file; what was cut off is none."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(kind)
    for line in path.read_bytes().splitlines():
        try:
            if line:
                yield decoder.decode(line)
        except msgspec.DecodeError:
            continue


def count(path: Path) -> int:
    """How many records a file has, in a moment: nobody is waited for."""
    try:
        return path.read_bytes().count(b"\n\n") + 1 if path.stat().st_size else 0
    except FileNotFoundError:
        return 0
