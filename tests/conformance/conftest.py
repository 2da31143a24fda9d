"""The stores that the suite runs on."""

from __future__ import annotations

from pathlib import Path

from raptor.clock import Clock
from raptor.state.files import FileStore
from raptor.state.home import Home
from tests.postgres import own_server, pg_address, pg_stores, server_url

__all__ = ["Files", "own_server", "pg_address", "pg_stores", "server_url"]


class Files:
    """A FileStore in a directory, opened again and again."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self.open()

    def open(self) -> FileStore:
        self._home = Home.open(self._path, self._clock)
        self.store = FileStore(self._home)
        return self.store

    async def open_again(self) -> FileStore:
        await self.close()
        return self.open()

    async def close(self) -> None:
        await self.store.close()
        self._home.close()
