"""Target: what is left of a damaged SQLite file, read by the repair straight from its pages."""

from __future__ import annotations

import sqlite3
import struct
from functools import cache

from raptor.state.rescue import Rescue
from raptor.state.salvage import Pages
from tests.fuzz.target import Target, scratch

PAGE = 512


@cache
def _sample() -> tuple[bytes, bytes]:
    """A small database, and the log of it."""
    path = scratch() / "sample"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = WAL; CREATE TABLE t (k, v); CREATE INDEX i ON t (k);"
    )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(n, "x" * n * 40) for n in range(1, 4)])
    connection.execute("UPDATE t SET v = 2.5 WHERE k = 3")
    files = path.read_bytes(), path.with_name("sample-wal").read_bytes()
    connection.close()
    return files


def page(data: bytes) -> None:
    """Changes of a sample's bytes: [place (3 bytes), byte] again and again; the first byte says of which file."""
    file, log = (bytearray(part) for part in _sample())
    if data[:1] >= b"\xe0":  # any bytes at all
        file, log = bytearray(data[1 : 1 + PAGE]), bytearray(data[1 + PAGE :])
    else:
        changed = log if data[:1] >= b"\x70" else file
        for place, value in struct.iter_unpack(">HB", data[1 : 1 + len(data[1:]) // 3 * 3][:300]):
            changed[place % len(changed)] = value
        if data[:1] and data[0] % 8 == 7:
            del changed[len(changed) * (data[-1] + 1) // 257 :]
    pages, rescue = Pages(bytes(file), bytes(log)), Rescue()
    for cell in pages.cells():
        rescue.see(cell)
    pages.version, pages.exact, pages.missing, rescue.rows, rescue.last, rescue.losses  # noqa: B018


TARGETS = (
    Target(
        "page",
        page,
        (b"\x00", b"\x10\x00\x10\x02", b"\x70\x00\x20\x00", b"\x00\x02\x00\x0d\x02\x03\x09", b"\xe0" + bytes(600),
         b"\x07\x00\x00\x80"),
        (b"\x00\x10", b"\x00\x1c", b"\x02\x00\x0d", b"\x02\x00\x0a", b"\x02\x00\x02", b"\xff\xff\xff"),
        slow_s=0.5,  # a whole file
    ),
)  # fmt: skip
