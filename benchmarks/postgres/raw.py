"""What psycopg alone can do with a queue: one connection, a commit for a row or for a thousand."""

from datetime import UTC, datetime, timedelta
from time import perf_counter

import psycopg

from benchmarks.raw import BATCH
from benchmarks.services import PAYLOAD

SCHEMA = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, due timestamptz NOT NULL, status smallint NOT NULL DEFAULT 0,
    name text NOT NULL, payload jsonb, lease timestamptz
);
CREATE INDEX job_due ON job (due, id) WHERE status = 0;
"""
INSERT = "INSERT INTO job (due, name, payload) VALUES (%s, %s, %s)"
COPY = "COPY job (due, name, payload) FROM STDIN"
CLAIM = (
    "UPDATE job SET status = 1, lease = now() + interval '60 s' WHERE id IN (SELECT id FROM job WHERE status = 0"
    " AND due <= now() ORDER BY due, id FOR UPDATE SKIP LOCKED LIMIT %s) RETURNING id, name, payload"
)
COMPLETE = "UPDATE job SET status = 2 WHERE id = ANY(%s)"


class Raw:
    """A table of jobs. Each method gives the seconds for one of them."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(SCHEMA)
        self._payload = f'"{PAYLOAD}"'

    def put(self, count: int) -> float:
        """One after another, a commit for each."""
        return sum(self.each_put(count)) / count

    def each_put(self, count: int) -> list[float]:
        """The same, told for each."""
        took: list[float] = []
        due = datetime.now(UTC) + timedelta(hours=1)
        for _ in range(count):
            started = perf_counter()
            self._connection.execute(INSERT, (due, "swallow", self._payload))
            took.append(perf_counter() - started)
        return took

    def put_many(self, count: int) -> float:
        """Copied, a thousand in a commit."""
        started = perf_counter()
        self._copy(count, datetime.now(UTC) + timedelta(hours=1))
        return (perf_counter() - started) / count

    def drain(self, count: int) -> float:
        """Claim a thousand, complete a thousand, until none is due. Those that are done stay, until the next drain."""
        execute, done = self._connection.execute, 0
        execute("TRUNCATE job")
        self._copy(count, datetime.now(UTC) - timedelta(hours=1))
        execute("VACUUM ANALYZE job")
        started = perf_counter()
        while claimed := execute(CLAIM, (BATCH,)).fetchall():
            execute(COMPLETE, ([row[0] for row in claimed],))
            done += len(claimed)
        took_s = perf_counter() - started
        assert done == count, "one was not claimed"
        return took_s / count

    def close(self) -> None:
        self._connection.close()

    def _copy(self, count: int, due: datetime) -> None:
        row = (due, "swallow", self._payload)
        for start in range(0, count, BATCH):
            with self._connection.cursor().copy(COPY) as copy:
                for _ in range(min(BATCH, count - start)):
                    copy.write_row(row)
