"""Performing a command without a node: on the state directory, as its owner for a moment or as a reader; or on another
store, which nodes may share."""

from __future__ import annotations

import asyncio
from typing import Any

from raptor.clock import Clock, SystemClock
from raptor.commands import perform
from raptor.config import Config
from raptor.errors import AlreadyRunning
from raptor.events import Events
from raptor.loading import load_definitions, load_lines
from raptor.runners import RUNNERS, close_runners
from raptor.service import Given
from raptor.site import Site
from raptor.state.base import Store
from raptor.state.files import FileStore, ReadStore
from raptor.state.glance import home_at
from raptor.state.home import Home
from raptor.state.memory import MemoryStore
from raptor.state.opening import open_store
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
        if self._config.store is not None:
            async with open_store(self._config.store, self._clock) as store:
                return await self._on(store, command, params)
        home = await self._own() if write else home_at(self._config.home)
        try:
            store = MemoryStore() if home is None else FileStore(home) if write else ReadStore(home)
            try:
                return await self._on(store, command, params)
            finally:
                await store.close()
        finally:
            if home is not None:
                home.close()

    async def _on(self, store: Store, command: str, params: dict[str, Any]) -> dict[str, Any]:
        site = await site_on(store, self._config, self._given, self._clock)
        try:
            return await perform(site, command, params)
        finally:
            await close_runners(site.workshop.runners.values())

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


async def site_on(store: Store, config: Config, services: list[Given], clock: Clock) -> Site:
    """What a command works on where no node runs."""
    timetable = Timetable(store, clock, Events(clock))
    await timetable.load()
    workshop = Workshop(
        timetable=timetable,
        runners={kind: make(clock) for kind, make in RUNNERS.items()},
        logs=Logs(config.home / "logs"),
        catalogue=config.catalogue(services),
    )
    await load_definitions(workshop)
    await load_lines(workshop, config.queues)
    return Site(config.home, clock, workshop, config)
