"""Counts what a process asks of SQLite, on whichever connection."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch


class Statements:
    """Of all connections that are opened while it watches; they are told apart from others by their class."""

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []
        self._count = 0

    @contextmanager
    def watch(self) -> Generator[None]:
        connections = self._connections

        class Watched(sqlite3.Connection):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                connections.append(self)

        with patch.object(sqlite3, "connect", partial(sqlite3.connect, factory=Watched)):
            yield

    @contextmanager
    def count(self) -> Generator[None]:
        """Only while this lasts: to be heard costs a statement time."""
        assert self._connections, "nothing is watched"
        self._hear(True)
        try:
            yield
        finally:
            self._hear(False)

    @property
    def counted(self) -> int:
        return self._count

    def _hear(self, on: bool) -> None:
        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):  # it is closed by now
                connection.set_trace_callback(self._add if on else None)

    def _add(self, statement: str) -> None:
        self._count += 1
