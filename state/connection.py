"""Connections to the SQLite files of a state directory: one that writes, durably, and any number that only read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

from raptor.errors import RefusedState
from raptor.state.sums import teach

APPLICATION = 0x52617074  # "Rapt", in the header of every file


def schema(name: str) -> str:
    return (Path(__file__).parent / "schema" / name).read_text(encoding="utf-8")


def writing(path: Path, state: str, versions: Sequence[str], *, floor: int = 0) -> sqlite3.Connection:
    """The one connection that may write.

    A file that is not there yet is made, stamped with the state's id and a sequence above `floor`; an older one is
    brought up, script by script of `versions`.
    """
    if not path.exists():  # a plain close of an open database would drop SQLite's locks on it
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _make_durable(connection, path)
        if not connection.execute("PRAGMA application_id").fetchone()[0]:
            stamp = f"{schema('stamp.sql')}; INSERT INTO stamp VALUES ('{state}', {floor + 1});"
            _change(connection, f"{stamp} PRAGMA application_id = {APPLICATION};", *versions)
            connection.execute(
                "PRAGMA wal_checkpoint(TRUNCATE)"
            )  # whose it is stands in the file itself, not in its log
        else:
            _migrate(connection, path, versions)
    except BaseException:
        connection.close()
        raise
    return connection


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. It sees every commit that was acknowledged before it asks."""
    try:
        return _read(path, "mode=ro")
    except sqlite3.OperationalError as error:
        log = path.with_name(path.name + "-wal")
        if error.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or (log.exists() and log.stat().st_size):
            raise
    # A read-only file system: without a log there is nothing to share, and nobody who could write.
    return _read(path, "mode=ro&immutable=1")


lenient = partial(str, encoding="utf-8", errors="surrogateescape")
"""Text as it is, whole or not: the checksum is what judges it. Called for every text of every row: no frame of ours."""


def _read(path: Path, options: str) -> sqlite3.Connection:
    address = f"file:{quote(os.fspath(path))}?{options}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.text_factory = lenient
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens it: until now it was only named
    except BaseException:
        connection.close()
        raise
    return connection


def _make_durable(connection: sqlite3.Connection, path: Path) -> None:
    connection.text_factory = lenient
    connection.execute("PRAGMA busy_timeout = 5000")
    journal = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS: its plain fsync leaves data in the drive's cache
    # What was deleted is gone from the file, so that a repair cannot bring it back.
    connection.execute("PRAGMA secure_delete = ON")
    if (journal, connection.execute("PRAGMA synchronous").fetchone()[0]) != ("wal", 2):
        raise RefusedState("unwritable", path, "cannot be written durably", "keep the state directory on a local disk")


def _migrate(connection: sqlite3.Connection, path: Path, versions: Sequence[str]) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version >= len(versions):
        return
    unfinished = path.with_name(f"{path.name}.v{version}.tmp")
    unfinished.unlink(missing_ok=True)
    connection.execute("VACUUM INTO ?", (os.fspath(unfinished),))
    os.replace(unfinished, path.with_name(f"{path.name}.v{version}"))
    _change(connection, "UPDATE stamp SET sequence = sequence + 1;", *versions[version:], count=len(versions))


def _change(connection: sqlite3.Connection, *scripts: str, count: int | None = None) -> None:
    """All of it in one transaction, the number of the version included."""
    version = len(scripts) - 1 if count is None else count
    teach(connection)
    try:
        connection.executescript("\n".join(["BEGIN IMMEDIATE;", *scripts, f"PRAGMA user_version = {version}; COMMIT;"]))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
