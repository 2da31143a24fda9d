"""The node in the foreground: it starts schedulers, tells what happens, and ends on a signal, in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from raptor import __version__
from raptor.cli.chronicle import HEARD, Record, record_of
from raptor.cli.session import NOT_RECORDED, Session
from raptor.cli.systemd import Systemd
from raptor.cli.task_tally import TASKS, Tally
from raptor.cli.voice import Logged, Voice, divert_stdout, let_go
from raptor.clock import SystemClock
from raptor.commands.running import claim
from raptor.errors import NoSuchName, RaptorError
from raptor.events import Event
from raptor.masked import masked
from raptor.node import Node
from raptor.rows import Definition
from raptor.runners.printed import leading_prints
from raptor.timetable import Timetable
from raptor.timing import show_seconds
from raptor.watchdog import Watch

HINT = "Ctrl-C stops after the current service"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `start` was asked for."""

    name: str | None
    interval: str | None
    interval_s: float | None
    every: bool = False  # all that are defined
    cycles: int | None = None
    grace_s: float = 30.0
    detached: bool = False
    standby: bool = True  # for a scheduler that another node has


class Foreground(Node):
    """A node whose schedulers are defined before its tree starts, so that nobody gets in between."""

    def __init__(self, wanted: Wanted, session: Session, hear: Callable[[Event], None], watch: Watch) -> None:
        super().__init__(config=session.config, clock=SystemClock(), grace_s=wanted.grace_s, watch=watch)
        self._wanted = wanted
        self._hear = hear
        self._prepared = False
        self.back: list[str] = []  # schedulers that an unclean end had cut off

    async def _opened(self, timetable: Timetable) -> None:
        await super()._opened(timetable)
        if self._prepared:
            return  # the keeper was restarted
        self._prepared = True
        self.runtime.events.subscribe(self._hear, *HEARD, *TASKS, "child_ended")
        definitions = await self.site.definitions()
        # On a shared store the others may well run elsewhere.
        is_alone = not self.site.is_shared
        self.back = [name for name, definition in definitions.items() if definition.should_run and is_alone]
        await self._prepare(definitions)

    async def _prepare(self, definitions: dict[str, Definition]) -> None:
        given = {} if self._wanted.interval is None else {"interval_s": self._wanted.interval_s}
        for name in self._named(definitions):
            if not self._wanted.standby:
                await claim(self.site, name)
            self._workshop.asked.add(name)
            await self.site.amend(name, lambda known: msgspec.structs.replace(known, should_run=True, **given))

    def _named(self, definitions: dict[str, Definition]) -> list[str]:
        if self._wanted.every:
            if not definitions:
                raise NoSuchName("scheduler", "--all", hint="none is defined yet: raptor start NAME --interval 10s")
            return list(definitions)
        assert self._wanted.name is not None
        return [self._wanted.name]

    @property
    def doors(self) -> list[str]:
        """Where it answers; a port of 0 is any that was free."""
        if self._scraped is None or self.config.metrics.listen is None:
            return []
        here = self.config.metrics.listen._replace(port=self._scraped.getsockname()[1])
        return [f"metrics on http://{here}/metrics"]

    @property
    def wanted_names(self) -> list[str]:
        """Schedulers that should run here."""
        named = [definition.name for definition in self._workshop.definitions.values() if definition.should_run]
        return [name for name in named if name in self._workshop.asked or not self.site.is_shared]

    @property
    def live_names(self) -> list[str]:
        return [name for name in self._workshop.definitions if self.scheduler(name) is not None]


class Life:
    """One node from its start to its end."""

    def __init__(self, session: Session, wanted: Wanted) -> None:
        self._session = session
        self._wanted = wanted
        self._queue: asyncio.Queue[Record | None] = asyncio.Queue()
        self._systemd = Systemd()
        self._cycles = 0
        self._failed = False
        self._signals = 0
        self._over = asyncio.Event()
        self._on_terminal = os.isatty(0)
        self._tasks: set[asyncio.Task[Any]] = set()
        watch = Watch(every_s=self._systemd.beat_s, on_alive=self._systemd.beat)
        self._node = self._make(watch)
        self._tally = Tally(self._queue.put_nowait, self._node.clock.now)

    def _make(self, watch: Watch) -> Foreground:
        return Foreground(self._wanted, self._session, self._hear, watch)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        # What is printed outside a run, from the start of the tree on: where nobody sees it, or among JSON.
        diverted = self._wanted.detached or self._session.config.log.format == "json"
        out = divert_stdout(self._printed) if diverted else sys.stdout
        # Until somebody reads the queue a warning would only be late.
        log = Logged(self._queue.put_nowait, max(LEVELS[self._session.config.log.level], logging.WARNING))
        logging.getLogger().addHandler(log)
        # Why the loop hangs cannot wait for the loop.
        aloud = logging.StreamHandler(sys.stderr)
        logging.getLogger("raptor.watchdog").addHandler(aloud)
        try:
            with leading_prints():
                return await self._live(out)
        finally:
            logging.getLogger().removeHandler(log)
            logging.getLogger("raptor.watchdog").removeHandler(aloud)

    async def _live(self, out: TextIO) -> int:
        born = self._node.clock.now()  # the first events are older than their header otherwise
        async with self._node as node:
            names = tuple(node.site.catalogue)
            self._voice = Voice(self._session, node.site.path, names, out, detached=self._wanted.detached)
            self._voice.narrator.several = len(node.live_names) > 1
            self._voice.tell({"at": born, "event": "started", "text": self._header(), "pid": os.getpid()})
            for line in [*self._remarks(), *node.doors]:
                self._voice.tell({"at": born, "event": "started", "text": line})
            telling = asyncio.ensure_future(self._tell())
            doing = ", ".join(node.live_names) or "queues"
            self._systemd.ready(f"STATUS=running {doing}", f"MAINPID={os.getpid()}")
            if self._wanted.detached:
                let_go(node.site.path, out)
            gave_up = await self._wait(node)
            left = node.live_names
            self._systemd.tell("STOPPING=1")
            await self._say_stopping(left)
        for _ in range(3):
            await asyncio.sleep(0)  # the last events are on their way
        self._tally.close()
        self._queue.put_nowait(None)
        await telling
        return self._say_stopped(left, gave_up)

    def _header(self) -> str:
        node, names = self._node, self._node.live_names
        definitions = node._workshop.definitions
        parts = [f"raptor {__version__}"]
        if len(names) == 1:
            parts += [f"scheduler {names[0]}", _checks(definitions[names[0]])]
        else:
            parts.append("schedulers " + ", ".join(f"{name} ({_checks(definitions[name])})" for name in names))
        return " · ".join([*parts, place_of(node), f"pid {os.getpid()}"])

    def _remarks(self) -> list[str]:
        node, lines = self._node, list[str]()
        back = [name for name in node.back if name != self._wanted.name]
        if back and not self._wanted.every:
            lines.append(f"↻ back after an unclean end: {', '.join(back)}")
        for name in node.live_names:
            listed = [entry.name for entry in node._workshop.definitions[name].services]
            gone = [service for service in listed if service not in node.site.catalogue]
            if not listed:
                known = " ".join(list(node.site.catalogue)[:3])
                lines.append(f"{name} has no services yet: raptor schedule {name} {known or 'SERVICE'}")
            if gone:
                lines.append(f"! no module and no raptor.toml defines {', '.join(gone)}: {name} leaves it out")
        return lines

    # Waiting

    async def _wait(self, node: Foreground) -> bool:
        """Until somebody asks for the end; -> whether the tree gave up."""
        root = asyncio.ensure_future(node.root.wait())
        waits = [root, *(asyncio.ensure_future(event.wait()) for event in (node.stop_asked, self._over))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return root.done()
        finally:
            for wait in waits:
                wait.cancel()

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if number == signal.SIGINT and self._on_terminal:
            print(flush=True)  # the terminal has shown ^C
        if self._signals == 1:
            self._node.shut_down(self._wanted.grace_s)
        else:
            self._node.force()

    def _on_hangup(self) -> None:
        if self._on_terminal and not os.isatty(0):
            self._on_signal(signal.SIGHUP)  # the terminal was closed
        else:
            self._later(self._reload())

    async def _reload(self) -> None:
        now = self._node.clock.now()
        try:
            answer = await self._node.reload()
        except RaptorError as error:
            self._queue.put_nowait({"at": now, "event": "reload_failed", "error": str(error)})
        else:
            services = answer["services"]
            assert isinstance(services, list)
            self._queue.put_nowait({"at": now, "event": "reloaded", "services": len(services)})  # pyright: ignore[reportUnknownArgumentType]

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Telling

    def _hear(self, event: Event) -> None:
        if event.name == "child_ended":
            if not self._node.stop_asked.is_set():
                self._later(self._end_if_idle())
            return
        if event.name in TASKS:
            return self._tally.hear(event)
        self._queue.put_nowait(record_of(event))

    async def _end_if_idle(self) -> None:
        """When the last scheduler was stopped by a command there is nothing left to do here."""
        await asyncio.sleep(0.2)  # its answer goes out first; one that crashed comes back
        if not self._node.wanted_names and not self._node.live_names:
            self._over.set()

    def _printed(self, line: str) -> None:
        """What was printed outside a run in the background, where nobody sees it."""
        self._queue.put_nowait({"at": self._node.clock.now(), "event": "printed", "text": line})

    async def _tell(self) -> None:
        while (record := await self._queue.get()) is not None:
            await self._complete(record)
            self._voice.narrator.several = self._voice.narrator.several or len(self._node.live_names) > 1
            self._voice.tell(record)
            if record["event"] == "cycle_done" and record["scheduler"] == self._wanted.name:
                self._count(record)

    async def _complete(self, record: Record) -> None:
        """What the event did not know: how many attempts there are, when the next check is."""
        if "service" in record and "max_attempts" not in record:
            service = self._node.site.catalogue.get(record["service"])
            record["max_attempts"] = None if service is None else service.max_attempts
        if record["event"] == "cycle_resumed":
            record["crash"] = record["scheduler"] in self._node.back
        if record["event"] == "cycle_done" or (record["event"] == "checked" and not record["due"]):
            record["next_check"] = await self._next_check(record["scheduler"])
            if not self._wanted.detached and self._on_terminal:
                record["hint"] = HINT

    async def _next_check(self, name: str) -> float | None:
        """The next check is planned a few turns of the loop after the event."""
        for _ in range(20):
            ref = self._node.scheduler(name)
            if ref is None:
                return None
            try:
                status: dict[str, Any] = await ref.call("status")
            except RaptorError:
                return None
            at = status["next_check"]
            if status["cycle"] is not None or status["state"] != "running":
                return None
            if at is not None and at > self._node.clock.now():
                return float(at)
            await asyncio.sleep(0.005)
        return None

    def _count(self, record: Record) -> None:
        self._cycles += 1
        self._failed = record["failed"] > 0
        if self._wanted.cycles is not None and self._cycles >= self._wanted.cycles:
            self._over.set()

    # The end

    async def _say_stopping(self, names: list[str]) -> None:
        busy = await self._running_tasks()
        if not names and not busy:
            return
        for name in names:
            ref = self._node.scheduler(name)
            if ref is not None:
                status: dict[str, Any] = await ref.call("status")
                busy += [status["current_service"]] if status["current_service"] else []
        text = f"stopping {', '.join(names) or 'work'}"
        if busy:
            again = "; Ctrl-C again breaks it off" if self._on_terminal else ""
            text += f": {', '.join(busy)} may finish within {show_seconds(self._node.grace_s or 0.001)}{again}"
        self._queue.put_nowait({"at": self._node.clock.now(), "event": "stopping", "text": text})

    async def _running_tasks(self) -> list[str]:
        worker = self._node.runtime.whereis("worker")
        if worker is None:
            return []
        status: dict[str, Any] = await worker.call("status")
        count = len(status["running"])
        return [f"{count} task{'s' * (count > 1)}"] if count else []

    def _say_stopped(self, names: list[str], gave_up: bool) -> int:
        now, who = self._node.clock.now(), f" {', '.join(names)}" if names else ""
        if gave_up:
            self._voice.tell({"at": now, "event": "stopped", "text": "the supervision tree gave up; see raptor logs"})
            return 1
        self._voice.tell({"at": now, "event": "stopped", "text": f"stopped{who}"})
        if self._signals > 1:
            return 130
        if self._node.unrecorded:
            return NOT_RECORDED
        return 1 if self._wanted.cycles is not None and self._failed else 0


def place_of(node: Node) -> str:
    """Where the state is."""
    return f"state {node.site.path}" if node.config.store is None else f"store {masked(node.config.store)}"


def _checks(definition: Definition) -> str:
    if definition.interval_s is None:
        return "checks when something is due"
    return f"checks every {show_seconds(definition.interval_s)}"


def live(session: Session, wanted: Wanted) -> int:
    """Run a node until it is told to stop; -> the exit code."""
    return SystemClock().run(lambda: Life(session, wanted).run())
