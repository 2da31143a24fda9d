"""What SQLite alone can do with a queue: one connection of the standard library, durable (WAL, synchronous FULL)."""

import sqlite3
from pathlib import Path
from time import perf_counter, time

from benchmarks.services import PAYLOAD

BATCH = 1000
LOG = 1000 * (4096 + 24)  # bytes of a log, its pages and their headers, that SQLite begins to write anew
LEASE_S = 60.0

SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE job (
    id INTEGER PRIMARY KEY, due REAL NOT NULL, status INTEGER NOT NULL DEFAULT 0, name TEXT NOT NULL, payload BLOB,
    lease REAL
);
CREATE INDEX job_due ON job (due, id) WHERE status = 0;
"""
INSERT = "INSERT INTO job (due, name, payload) VALUES (?, ?, ?)"
CLAIM = (
    "UPDATE job SET status = 1, lease = ? WHERE id IN"
    " (SELECT id FROM job WHERE status = 0 AND due <= ? ORDER BY due, id LIMIT ?) RETURNING id, name, payload"
)
COMPLETE = "UPDATE job SET status = 2 WHERE id = ?"


class Raw:
    """A table of jobs. Each method gives the seconds for one of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.executescript(SCHEMA)

    def put(self, count: int) -> float:
        """One after another, a commit for each."""
        return sum(self.each_put(count)) / count

    def each_put(self, count: int) -> list[float]:
        """The same, told for each."""
        took: list[float] = []
        for row in _rows(count, time() + 3600):
            started = perf_counter()
            self._connection.execute(INSERT, row)
            took.append(perf_counter() - started)
        return took

    def put_many(self, count: int) -> float:
        """A thousand in a commit."""
        rows = _rows(count, time() + 3600)
        started = perf_counter()
        self._insert(rows)
        return (perf_counter() - started) / count

    def drain(self, count: int) -> float:
        """Claim a thousand, complete a thousand, until none is due. Those that are done stay."""
        now, done = time(), 0
        self._insert(_rows(count, now - 1000))
        self._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        execute = self._connection.execute
        started = perf_counter()
        while True:
            execute("BEGIN IMMEDIATE")
            claimed = execute(CLAIM, (now + LEASE_S, now, BATCH)).fetchall()
            execute("COMMIT")
            if not claimed:
                break
            execute("BEGIN IMMEDIATE")
            self._connection.executemany(COMPLETE, [(row[0],) for row in claimed])
            execute("COMMIT")
            done += len(claimed)
        took_s = perf_counter() - started
        assert done == count, "one was not claimed"
        return took_s / count

    def close(self) -> None:
        self._connection.close()

    def _insert(self, rows: list[tuple[float, str, bytes]]) -> None:
        for start in range(0, len(rows), BATCH):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, rows[start : start + BATCH])
            self._connection.execute("COMMIT")


def _rows(count: int, first: float) -> list[tuple[float, str, bytes]]:
    payload = PAYLOAD.encode()
    return [(first + number * 1e-3, "swallow", payload) for number in range(count)]


def is_young(path: Path) -> bool:
    """Whether the log of a database still grows: a commit that makes a file longer costs the disk far more."""
    log = path.with_name(path.name + "-wal")
    return not log.exists() or log.stat().st_size < LOG
