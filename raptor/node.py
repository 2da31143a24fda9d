"""One process: the state directory, the supervision tree, and the commands that reach it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import msgspec

from raptor import supervisor
from raptor.catalogue import Catalogue, from_module
from raptor.childspec import ChildSpec
from raptor.clock import Clock, SystemClock, first_of
from raptor.commands import perform
from raptor.company import Company
from raptor.config import Config
from raptor.control import Control
from raptor.current import CURRENT, Known
from raptor.desk import Handle, Named, TaskDesk
from raptor.errors import ActorDied, CallTimeout, NoSuchActor, NotRunning, NotWritten, RefusedState
from raptor.events import Events
from raptor.exits import Exit
from raptor.hearing import Hearing
from raptor.herald import Herald
from raptor.janitor import Janitor
from raptor.keeper import Keeper, Opening
from raptor.loading import load_definitions, load_lines
from raptor.modules import load_module
from raptor.orders import Order
from raptor.presence import Present, doing
from raptor.ref import Ref, all_ended
from raptor.resources import Resource, resources_of
from raptor.rows import Definition
from raptor.runners import RUNNERS, check, close_runners
from raptor.runtime import Runtime
from raptor.schedulers import Schedulers, spec_of
from raptor.scrape import Scrape, bind
from raptor.service import Given
from raptor.site import Site
from raptor.state.base import Counts, Store
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.state.opening import open_store
from raptor.state.postgres.address import schema_of
from raptor.supervisor import Supervisor
from raptor.timetable import Timetable
from raptor.turn import Logs
from raptor.turning import LAST_S, Finish, NewCatalogue
from raptor.unrecorded import Unrecorded
from raptor.verbs import GRACE_S, Verbs
from raptor.watchdog import WATCH, LoopWatch, Watch
from raptor.worker import NewLines, Unwanted, Worker
from raptor.workshop import Workshop

LEAVE_S = LAST_S + 0.2
"""When, beyond the grace, nobody is waited for any more who runs something."""

END_S = LAST_S + 0.6
"""When, beyond the grace, the tree has ended one way or another. A stop is bounded by five seconds in all."""

CLOSE_S = 0.3  # at least, for connections of runners, with which nothing is lost

if TYPE_CHECKING:
    import socket

    from prometheus_client import CollectorRegistry

    from raptor.metrics import Metrics


class Node(Verbs):
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
        watch: Watch | None = WATCH,
        resources: Mapping[str, Resource] | None = None,
        store: Store | str | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        """`store`, or its address, takes the place of the files in `home`; without `home` no directory is used."""
        flags = {} if home is None else {"home": str(home)}
        self.config = config or Config.load(flags)
        self.clock = clock or SystemClock()
        self.grace_s = grace_s
        self.stop_asked = asyncio.Event()
        self.unrecorded: list[Unrecorded] = []  # what had ended when it was closed, and could not be recorded
        self._given = list(services)
        self._resources = dict(resources or {})
        self._listen = listen
        self._watch = watch if isinstance(self.clock, SystemClock) else None  # no thread can watch simulated time
        self._forced = asyncio.Event()
        self._told: int | None = None  # of what was not recorded, before it was closed
        self._given_store = self.config.store if store is None else store
        if isinstance(self._given_store, str):
            open_store(self._given_store)  # refuses an address that it does not know; nothing is opened yet
        self._homeless = store is not None and home is None
        self._home: Home | None = None
        self._registry = metrics
        self._metrics: Metrics | None = None
        self._is_open = False
        self._scraped: socket.socket | None = None

    async def __aenter__(self) -> Self:
        catalogue = self.config.catalogue(self._given)
        for service in catalogue.values():
            check(service)  # what its runner could never run is refused before anything starts
        self.runtime = Runtime(self.clock)
        try:
            if not self._homeless:
                self._home = await self.clock.offload(Home.open, self.config.home, self.clock)
            self._measure()
            self._workshop = Workshop(
                timetable=None,  # type: ignore[arg-type]  # the keeper brings it, before anybody else starts
                runners={kind: make(self.clock) for kind, make in RUNNERS.items()},
                logs=Logs(None if self._home is None else self._home.path / "logs"),
                catalogue=catalogue,
                owner=self.clock.new_id(),
                company=Company(),
                keep_done=self.config.retention.tasks_s > 0,
                resources=self._declared() | self._resources,
            )
            self._desk = TaskDesk(
                self._workshop, self.clock.now, self._home.path if self._home and self._listen else None
            )
            self._outside = CURRENT.set(self)  # for what runs inside as well
            path = self.config.home if self._home is None else self._home.path
            self.site = Site(path, self.clock, self._workshop, self.config, live=self)
            root = await self.runtime.start(
                Supervisor, self._tree(), strategy="rest_for_one", intensity=3, period_s=60.0, name="node"
            )
            assert root is not None
            self._root = root
        except BaseException:
            self._let_go()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # left in another task than it was entered in
            CURRENT.reset(self._outside)
        await self.close()

    async def close(self) -> None:
        """Stop in order: schedulers finish or are broken off within the grace, then the tree goes, then the lock.

        A store that cannot write, or does not answer, is waited for no longer than END_S beyond the grace. What it did
        not take by then is in `unrecorded`, and told.
        """
        end = self.clock.monotonic() + self.grace_s + END_S
        if self._told is None:
            self._told = len(self._workshop.unrecorded.told)
        try:
            if self._root.alive:
                await self._finish_schedulers()
                if self._forced.is_set():
                    end = min(end, self.clock.monotonic() + END_S)
                self._root.exit(Exit.SHUTDOWN)
                try:
                    await self._root.wait(max(END_S - LEAVE_S, end - self.clock.monotonic()))
                except CallTimeout:
                    self._root.kill()
                    await self._root.wait()
            self._tell_unrecorded(self._told)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(CLOSE_S, end - self.clock.monotonic())):
                    await close_runners(self._workshop.runners.values())
        finally:
            self._let_go()

    def _tell_unrecorded(self, told: int) -> None:
        """Whatever was told since the stop began, and what nobody is left to record."""
        self._workshop.unrecorded.tell(self.events)
        self.unrecorded = self._workshop.unrecorded.told[told:]

    def _let_go(self) -> None:
        if self._metrics is not None:
            self._metrics.close()
        if self._scraped is not None:
            self._scraped.close()
        if self._home is not None:
            self._home.close()

    # Tasks

    async def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Handle:
        """Put a task; it is durable when this returns. `in_`, `at`, `every`, `cron` say when it is due."""
        placed = await self._desk.put(service, data, replace=replace, **order)
        return Handle(placed.id, placed.new, self._wait)

    def put_from(self, service: Named, data: Any, **order: Any) -> Any:
        """Put from wherever: awaited on the node's event loop, at once in a thread."""
        return self._desk.put_from(service, data, **order)

    def known(self) -> Known:
        """What `raptor.put_in` makes a task by."""
        catalogue = self._workshop.catalogue
        assert isinstance(catalogue, Catalogue)
        return Known(catalogue, self._workshop.lines, schema_of(self._given_store))

    async def put_many(self, service: Named, many: Iterable[Any], **order: Unpack[Order]) -> list[int]:
        """Put a task for each of many data, all or none; -> their ids."""
        return [placed.id for placed in await self._desk.put_many(service, many, **order)]

    async def _wait(self, id: int, timeout_s: float | None) -> dict[str, Any]:
        return await self.call("wait", id=id, timeout_s=timeout_s)

    # Live (what the commands ask of a running node)

    @property
    def root(self) -> Ref:
        return self._root

    @property
    def events(self) -> Events:
        return self.runtime.events

    async def unwanted(self, ids: Sequence[int]) -> None:
        await self._tell_workers(Unwanted(tuple(ids)))

    async def new_lines(self) -> None:
        await self._tell_workers(NewLines())

    async def worker_status(self) -> dict[str, Any] | None:
        """The status of its worker; None while there is none."""
        worker = self.runtime.whereis("worker")
        return None if worker is None else await worker.call("status")

    async def _tell_workers(self, message: object) -> None:
        worker = self.runtime.whereis("worker")
        if worker is not None:
            with suppress(NoSuchActor, ActorDied):  # it ends just now; the next one begins with what is written
                await worker.call(message)

    def scheduler(self, name: str) -> Ref | None:
        return self.runtime.whereis(f"scheduler:{name}")

    async def launch(self, definition: Definition) -> None:
        self._workshop.asked.add(definition.name)
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
        await self._tell_workers(NewCatalogue())

    async def keeps(self, name: str) -> bool:
        if self.scheduler(name) is not None:
            return True
        schedulers = self.runtime.whereis("schedulers")
        children = [] if schedulers is None else await supervisor.which_children(schedulers)
        return any(child.id == name and child.restarting for child in children)

    async def halt(self, name: str, grace_s: float) -> None:
        ref = self.scheduler(name)
        if ref is None:  # it waits for its restart
            await supervisor.terminate_child(self._schedulers(), name)
        else:
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

    def _declared(self) -> dict[str, Resource]:
        return resources_of([load_module(name, self.config.module_folder) for name in self.config.modules])

    # The tree

    def _tree(self) -> list[ChildSpec]:
        return [
            ChildSpec(id="keeper", start=Keeper, args=(self._open_store, self._opened), shutdown=30.0),
            ChildSpec(id="work", start=Supervisor, args=(self._work(),), kwargs={"intensity": 5, "period_s": 30.0}),
        ]

    def _work(self) -> list[ChildSpec]:
        doors: list[ChildSpec] = []
        if self._listen and self._home is not None:
            doors.append(ChildSpec(id="control", start=Control, args=(self._home.path, self._perform), name="control"))
        if self._scraped is not None and self._metrics is not None:
            args = (self._scraped, self._metrics.scrape)
            doors.append(ChildSpec(id="metrics", start=Scrape, args=args, name="metrics"))
        watchdog = [ChildSpec(id="watchdog", start=LoopWatch, args=(self._watch, self._store))]
        return [
            *(watchdog if self._watch is not None else []),
            ChildSpec(id="presence", start=Present, args=(self._workshop, self._doing, self.new_lines), shutdown=10.0),
            ChildSpec(id="hearing", start=Hearing, args=(self._workshop, self.site)),
            ChildSpec(id="schedulers", start=Schedulers, args=(self._workshop,), name="schedulers"),
            ChildSpec(id="workers", start=Supervisor, args=(self._workers(),), name="workers"),
            ChildSpec(
                id="janitor",
                start=Janitor,
                args=(self._store, self.config.retention, self._running),
            ),
            ChildSpec(id="herald", start=Herald, args=(self._workshop, self.config.notify.per_minute)),
            *doors,
        ]

    def _workers(self) -> list[ChildSpec]:
        settings = self.config.worker
        if not settings.processors:
            return []
        args = (self._workshop, self._desk, settings.queues or None, settings.processors)
        return [ChildSpec(id="worker", start=Worker, args=args, name="worker", restart="transient", shutdown=10.0)]

    def _open_store(self) -> Opening:
        if isinstance(self._given_store, str):
            return open_store(self._given_store, self.clock)
        if self._given_store is not None:
            return self._given_store
        assert self._home is not None
        return FileStore(self._home)

    def _measure(self) -> None:
        """Metrics, if a registry was given or a door for them is wanted. Else nothing hears, and nothing is counted."""
        settings = self.config.metrics
        if self._registry is None and settings.listen is None:
            return
        from raptor.metrics import Metrics, new_registry

        self._metrics = Metrics(
            new_registry() if self._registry is None else self._registry,
            self.runtime.events,
            self.clock,
            counts=self._counts,
            workers=lambda: int(self.runtime.whereis("worker") is not None),
            namespace=settings.namespace,
        )
        if settings.listen is not None:
            self._scraped = bind(settings.listen)

    async def _counts(self) -> list[Counts]:
        return await self._store().stat(now=self.clock.now()) if self._is_open else []

    def _store(self) -> Store:
        return self._workshop.timetable.store

    async def _opened(self, timetable: Timetable) -> None:
        self._workshop.timetable = timetable
        self._is_open = True
        await load_definitions(self._workshop)
        await load_lines(self._workshop, self.config.queues)

    def _doing(self) -> dict[str, Any]:
        return doing(self.runtime, self._running())

    async def _perform(self, command: str, params: dict[str, Any]) -> dict[str, Any]:
        return await perform(self.site, command, params)

    def _schedulers(self) -> Ref:
        ref = self.runtime.whereis("schedulers")
        if ref is None:
            raise NotRunning("this node is being restarted after a failure: try again in a moment")
        return ref

    def _running(self) -> list[Ref]:
        found = (self.scheduler(name) for name in self._workshop.definitions)
        return [ref for ref in found if ref is not None]

    async def _finish_schedulers(self) -> None:
        """An orderly stop: nothing comes back by itself, and every cycle is as far on disk as it is."""
        running = self._running()
        worker = self.runtime.whereis("worker")
        running += [] if worker is None else [worker]
        for ref in running:
            ref.cast(Finish(self.grace_s))
        end = self.clock.monotonic() + self.grace_s + LEAVE_S
        if self._store().exclusive:  # elsewhere others may stand by
            with suppress(TimeoutError):
                async with asyncio.timeout(self.grace_s + LEAVE_S):
                    await self._want_no_more()
        left_s = max(0.0, end - self.clock.monotonic())
        await first_of(all_ended(running), self._forced.wait(), timeout_s=left_s)

    async def _want_no_more(self) -> None:
        for definition in list(self._workshop.definitions.values()):
            if definition.should_run:
                try:
                    await self.site.amend(definition.name, partial(msgspec.structs.replace, should_run=False))
                except (NotWritten, RefusedState):
                    break  # the store cannot: to the next start this is an unclean end, which loses nothing
