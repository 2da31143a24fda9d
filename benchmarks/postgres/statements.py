"""Counts what is asked of a PostgreSQL server of ours, whoever asks: it writes every statement to its log meanwhile."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psycopg

HEARD_S = 10.0
LOOK_S = 0.01
STATEMENT = re.compile(rb"\[(\d+)\] LOG:  (?:statement|execute [^:]*): ")


class Statements:
    """Of the whole server but the connection that switches this on and off."""

    def __init__(self, url: str, log: Path) -> None:
        self._url = url
        self._log = log
        self.counted = 0

    @contextmanager
    def count(self) -> Generator[None]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            begin = self._log.stat().st_size
            self._switch(connection, "all")
            try:
                yield
            finally:
                self._switch(connection, "none")
            heard = STATEMENT.findall(self._log.read_bytes()[begin:])
            self.counted += sum(int(pid) != connection.info.backend_pid for pid in heard)

    def _switch(self, connection: psycopg.Connection, to: str) -> None:
        """Until this connection has heard of it, as all others then have."""
        statement = "ALTER SYSTEM SET log_statement = 'all'" if to == "all" else "ALTER SYSTEM RESET log_statement"
        connection.execute(statement)
        connection.execute("SELECT pg_reload_conf()")
        end = monotonic() + HEARD_S
        while connection.execute("SHOW log_statement").fetchone() != (to,):
            assert monotonic() < end, "the server does not hear of a new setting"
            sleep(LOOK_S)
