"""One process: the state directory, the supervision tree, and the commands that reach it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from raptor import supervisor
from raptor.childspec import Backoff, ChildSpec
from raptor.clock import Clock, SystemClock
from raptor.commands import perform
from raptor.config import Config
from raptor.control import Control
from raptor.errors import CallTimeout, NotWritten
from raptor.exits import Exit
from raptor.herald import Herald
from raptor.janitor import Janitor
from raptor.keeper import Keeper
from raptor.ref import Ref, all_ended
from raptor.rows import Definition
from raptor.runners import RUNNERS, check
from raptor.runtime import Runtime
from raptor.scheduler import Finish, NewCatalogue, Scheduler, Workshop
from raptor.service import Catalogue, Given, from_module
from raptor.site import Site
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.supervisor import Supervisor
from raptor.timetable import Timetable
from raptor.timing import show_seconds
from raptor.turn import Logs

GRACE_S = 30.0


class Schedulers(Supervisor):
    """Starts every scheduler that should run: at first those that a crash cut off."""

    def init(self, workshop: Workshop) -> Any:  # type: ignore[override]
        wanted = [definition for definition in workshop.definitions.values() if definition.should_run]
        children = [spec_of(definition.name, workshop) for definition in wanted]
        return super().init(children, intensity=5, period_s=10.0, backoff=Backoff(initial_s=0.1, max_s=30.0))


class Node:
    """`async with Node(home, services=[...]) as node:` runs schedulers inside a program."""

    def __init__(
        self,
        home: str | Path | None = None,
        services: Iterable[Given] = (),
        *,
        config: Config | None = None,
        clock: Clock | None = None,
        grace_s: float = GRACE_S,
        listen: bool = True,
    ) -> None:
        flags = {} if home is None else {"home": str(home)}
        self.config = config or Config.load(flags)
        self.clock = clock or SystemClock()
        self.grace_s = grace_s
        self.stop_asked = asyncio.Event()
        self._given = list(services)
        self._listen = listen
        self._forced = asyncio.Event()

    async def __aenter__(self) -> Self:
        catalogue = self.config.catalogue(self._given)
        for service in catalogue.values():
            check(service)  # what its runner could never run is refused before anything starts
        self.runtime = Runtime(self.clock)
        self._home = await self.clock.offload(Home.open, self.config.home, self.clock)
        try:
            self._workshop = Workshop(
                timetable=None,  # type: ignore[arg-type]  # the keeper brings it, before anybody else starts
                runners={kind: make(self.clock) for kind, make in RUNNERS.items()},
                logs=Logs(self._home.path / "logs"),
                catalogue=catalogue,
            )
            self.site = Site(self._home.path, self.clock, self._workshop, self.config, live=self)
            root = await self.runtime.start(
                Supervisor, self._tree(), strategy="rest_for_one", intensity=3, period_s=60.0, name="node"
            )
            assert root is not None
            self._root = root
        except BaseException:
            self._home.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop in order: schedulers finish or are broken off within the grace, then the tree goes, then the lock."""
        try:
            if self._root.alive:
                await self._finish_schedulers()
                self._root.exit(Exit.SHUTDOWN)
                try:
                    await self._root.wait(10.0)
                except CallTimeout:
                    self._root.kill()
                    await self._root.wait()
        finally:
            self._home.close()

    # Commands

    async def call(self, command: str, **params: Any) -> dict[str, Any]:
        """Perform a command of the table."""
        return await perform(self.site, command, params)

    async def start(self, name: str, interval: str | timedelta | None = None) -> dict[str, Any]:
        """Start a scheduler; `interval` is how often it checks, "auto" (the default) wakes when something is due."""
        given = show_seconds(interval.total_seconds()) if isinstance(interval, timedelta) else interval
        return await self.call("start", name=name, interval=given)

    async def schedule(self, name: str, services: Sequence[str]) -> dict[str, Any]:
        """Set the services of a scheduler; "name=24h" gives one its own interval."""
        return await self.call("schedule", name=name, services=list(services))

    async def status(self, name: str | None = None) -> dict[str, Any]:
        return await self.call("status", name=name)

    async def stop(self, name: str) -> dict[str, Any]:
        return await self.call("stop", name=name, grace_s=self.grace_s)

    async def pause(self, name: str, note: str = "") -> dict[str, Any]:
        return await self.call("pause", name=name, note=note)

    async def resume(self, name: str) -> dict[str, Any]:
        return await self.call("resume", name=name)

    async def run(self, service: str) -> dict[str, Any]:
        """Run one service now."""
        return await self.call("run", service=service)

    # Live (what the commands ask of a running node)

    @property
    def root(self) -> Ref:
        return self._root

    def scheduler(self, name: str) -> Ref | None:
        return self.runtime.whereis(f"scheduler:{name}")

    async def launch(self, definition: Definition) -> None:
        schedulers = self._schedulers()
        known = {child.id for child in await supervisor.which_children(schedulers)}
        if definition.name in known:
            await supervisor.terminate_child(schedulers, definition.name)
            await supervisor.delete_child(schedulers, definition.name)
        await supervisor.start_child(schedulers, spec_of(definition.name, self._workshop))

    async def adopt(self, modules: list[str], folder: str) -> None:
        """Take in the services of more modules; what does not import, or clashes, changes nothing."""
        given = [*self._given, *(one.service for module in modules for one in from_module(module, Path(folder)))]
        await self._use(self.config.catalogue(given))
        self._given = given

    async def _use(self, catalogue: Catalogue) -> None:
        for service in catalogue.values():
            check(service)
        self._workshop.catalogue = catalogue
        for ref in self._running():
            await ref.call(NewCatalogue())

    async def halt(self, name: str, grace_s: float) -> None:
        ref = self.scheduler(name)
        if ref is not None:
            ref.cast(Finish(grace_s))
            await ref.wait()

    async def reload(self) -> dict[str, object]:
        """Read the configuration and the modules anew; on an error nothing has changed."""
        given = {setting.name: setting.value for setting in self.config.settings if setting.source.startswith("-")}
        file = self.config.file and str(self.config.file)
        config = Config.load({**given, "home": str(self.config.home), "config": file})
        # Python would hand out the modules that it has; should the new ones fail, those stay.
        named = {Path(name).name.removesuffix(".py") for name in config.modules}
        named |= {declared.target.partition(":")[0] for declared in config.services if declared.target is not None}
        old = {name: sys.modules.pop(name) for name in named if name in sys.modules}
        try:
            catalogue = config.catalogue(self._given)
        except BaseException:
            sys.modules.update(old)
            raise
        self.config = self.site.config = config
        await self._use(catalogue)
        return {"services": list(catalogue), "file": config.file and str(config.file)}

    def shut_down(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self.stop_asked.set()

    def force(self) -> None:
        """Wait no longer for what runs."""
        self._forced.set()

    # The tree

    def _tree(self) -> list[ChildSpec]:
        return [
            ChildSpec(id="keeper", start=Keeper, args=(self._open_store, self._opened), shutdown=30.0),
            ChildSpec(id="work", start=Supervisor, args=(self._work(),), kwargs={"intensity": 5, "period_s": 30.0}),
        ]

    def _work(self) -> list[ChildSpec]:
        doors = [ChildSpec(id="control", start=Control, args=(self._home.path, self._perform), name="control")]
        return [
            ChildSpec(id="schedulers", start=Schedulers, args=(self._workshop,), name="schedulers"),
            ChildSpec(
                id="janitor",
                start=Janitor,
                args=(lambda: self._workshop.timetable.store, self.config.retention, self._running),
            ),
            ChildSpec(id="herald", start=Herald, args=(self._workshop, self.config.notify.per_minute)),
            *(doors if self._listen else []),
        ]

    def _open_store(self) -> FileStore:
        return FileStore(self._home)

    async def _opened(self, timetable: Timetable) -> None:
        self._workshop.timetable = timetable
        stored = await timetable.store.load("definitions")
        self._workshop.definitions = {name: row for name, row in stored.items() if isinstance(row, Definition)}

    async def _perform(self, command: str, params: dict[str, Any]) -> dict[str, Any]:
        return await perform(self.site, command, params)

    def _schedulers(self) -> Ref:
        ref = self.runtime.whereis("schedulers")
        assert ref is not None
        return ref

    def _running(self) -> list[Ref]:
        found = (self.scheduler(name) for name in self._workshop.definitions)
        return [ref for ref in found if ref is not None]

    async def _finish_schedulers(self) -> None:
        """An orderly stop: nothing comes back by itself, and every cycle is as far on disk as it is."""
        running = self._running()
        for definition in list(self._workshop.definitions.values()):
            if definition.should_run:
                try:
                    await self.site.define(msgspec.structs.replace(definition, should_run=False))
                except NotWritten:
                    break  # the store cannot: to the next start this is an unclean end, which loses nothing
        for ref in running:
            ref.cast(Finish(self.grace_s))
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(all_ended(running)),
            asyncio.ensure_future(self._forced.wait()),
        ]
        try:
            await asyncio.wait(waits, timeout=self.grace_s + 5.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def spec_of(name: str, workshop: Workshop) -> ChildSpec:
    """How a scheduler is kept: restarted after a crash, not after an end that was asked for."""
    return ChildSpec(
        id=name, start=Scheduler, args=(name, workshop), name=f"scheduler:{name}", restart="transient", shutdown=10.0
    )
