"""Performing a command without a node: as the owner of the state directory for a moment, or as a reader of it."""

from __future__ import annotations

import asyncio
from typing import Any

from raptor.clock import SystemClock
from raptor.commands import perform
from raptor.config import Config
from raptor.errors import AlreadyRunning
from raptor.events import Events
from raptor.rows import Definition, Line
from raptor.runners import RUNNERS, close_runners
from raptor.service import Given
from raptor.site import Site
from raptor.state.base import Store
from raptor.state.files import FileStore, ReadStore
from raptor.state.glance import home_at
from raptor.state.home import Home
from raptor.state.memory import MemoryStore
from raptor.timetable import Timetable
from raptor.turn import Logs
from raptor.workshop import Workshop

PATIENCE_S = 5.0
"""How long another holder of the lock is waited for."""


class Alone:
    """The engine, without a scheduler."""

    def __init__(self, config: Config, services: list[Given]) -> None:
        self._config = config
        self._given = services
        self._clock = SystemClock()

    def call(self, command: str, params: dict[str, Any], *, write: bool) -> dict[str, Any]:
        return self._clock.run(lambda: self._perform(command, params, write=write))

    async def _perform(self, command: str, params: dict[str, Any], *, write: bool) -> dict[str, Any]:
        home = await self._own() if write else home_at(self._config.home)
        try:
            store: Store = MemoryStore() if home is None else FileStore(home) if write else ReadStore(home)
            try:
                site = await self._site(store)
                try:
                    return await perform(site, command, params)
                finally:
                    await close_runners(site.workshop.runners.values())
            finally:
                await store.close()
        finally:
            if home is not None:
                home.close()

    async def _own(self) -> Home:
        """The lock, which somebody may hold for a moment."""
        end = self._clock.monotonic() + PATIENCE_S
        while True:
            try:
                return Home.open(self._config.home, self._clock)
            except AlreadyRunning:
                if self._clock.monotonic() > end:
                    raise
                await asyncio.sleep(0.05)

    async def _site(self, store: Store) -> Site:
        timetable = Timetable(store, self._clock, Events(self._clock))
        await timetable.load()
        stored = await store.load("definitions")
        workshop = Workshop(
            timetable=timetable,
            runners={kind: make(self._clock) for kind, make in RUNNERS.items()},
            logs=Logs(self._config.home / "logs"),
            catalogue=self._config.catalogue(self._given),
            definitions={name: row for name, row in stored.items() if isinstance(row, Definition)},
        )
        lines = await store.load("lines")
        defined = {line.name: line for line in self._config.queues}
        workshop.lines = defined | {name: row for name, row in lines.items() if isinstance(row, Line)}
        return Site(self._config.home, self._clock, workshop, self._config)
