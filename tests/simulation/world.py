"""What outlives every node: time, the image of the store, what was asked, what went wrong, and what services did."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from raptor.task import ENDED, State
from raptor.testing.checker.history import (
    Bounds,
    Command,
    Declared,
    Dump,
    Fault,
    History,
    Image,
    Kept,
    Life,
    Unrecorded,
)
from tests.simulation.archive import Archive
from tests.simulation.lives import Living, configuration
from tests.simulation.loop import ManyLoop, Process
from tests.simulation.plan import STRUCK_S, Plan
from tests.simulation.rules import Rules
from tests.simulation.scenario import Scenario
from tests.simulation.work import Work


class World:
    def __init__(self, seed: int, plan: Plan, scenario: Scenario) -> None:
        self.seed = seed
        self.plan = plan
        self.shared = scenario.shared
        self.lanes = scenario.lanes
        self.foresees = scenario.foresees
        self.slice_s = scenario.slice_s
        self.sweep_s = scenario.sweep_s
        self.start = scenario.start
        self.loop = ManyLoop(seed)
        self.loop.at_alarm, self.loop.alarm = self._at_alarm, plan.alarm
        self.wall_at_zero = scenario.start
        self.config = configuration(scenario.lanes, scenario.kept)
        self.image = Archive(exclusive=not scenario.shared)
        self.rules = Rules(self)
        self.work = Work(self, scenario.services, longest_s=scenario.longest_s)
        self.lives: list[Living] = []
        self.alive: list[Living] = []  # those of them that have not ended
        self.faults: list[Fault] = []
        self.commands: list[Command] = []
        self.images: list[Image] = []
        self.unrecorded: list[Unrecorded] = []
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self.lines: list[str] | None = None  # of the trace, where somebody wants to read it
        self._shown_tasks: set[int] = set()  # by images
        self._shown_runs: set[str] = set()
        self._living: dict[Process, Living] = {}
        self._pids = count(1)
        self._hash = hashlib.blake2b(digest_size=8)

    # Time and trace

    @property
    def at(self) -> float:
        """By a clock that is never set."""
        return self.start + self.loop.now_s

    @property
    def points(self) -> int:
        return self.loop.points

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def trace(self, living: Living | None, what: str, more: str = "") -> None:
        name = "-" if living is None else living.process.name
        line = f"{self.points} {self.loop.now_s!r} {name} {what} {more}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def violated(self, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(f"at {self.loop.now_s:.3f} s, point {self.points}, fault {self.plan.fired}: {what}")

    # Points

    def point(self, process: Process) -> bool:
        """One more moment at which something may happen; -> whether the process died of it."""
        self.loop.points += 1
        if self.loop.points >= self.loop.alarm:
            self._at_alarm(process)
        return process.dead

    def _at_alarm(self, process: Process) -> None:
        kind = None if process.dead else self.plan.reached(self.loop.points)
        if kind is not None:
            self.strike(self._living[process], kind)
        self.loop.alarm = self.plan.alarm

    def strike(self, one: Living, kind: str, long_s: float = STRUCK_S) -> None:
        """It dies, stands still, or does not reach the store."""
        if kind == "crash":
            self.kill(one)
            return
        self.trace(one, kind)
        self.faults.append(Fault(what=kind, at=self.at, until=self.at + long_s, life=one.number))  # type: ignore[arg-type]
        if kind == "freeze":
            self.loop.hold(one.process, long_s)
        else:
            self.shut(one, long_s)

    def shut(self, one: Living, long_s: float) -> None:
        one.door.shut_until = max(one.door.shut_until, self.loop.now_s + long_s)
        if self.shared:
            one.door.deafen()
            self.loop.call_at(self.loop.now_s + long_s, self._reopen, one, context=self.loop.outside)

    def _reopen(self, one: Living) -> None:
        if one.ended is None and one.door.shut_until <= self.loop.now_s:
            one.door.hear_again()

    async def never(self) -> None:
        """For the dead."""
        await self.loop.create_future()

    # Lives

    def new_pid(self) -> int:
        return next(self._pids)

    def living(self, process: Process) -> Living:
        return self._living[process]

    @property
    def up(self) -> list[Living]:
        return [one for one in self.alive if one.is_up]

    def born(self, place: str) -> Living:
        one = Living(self, place, len(self.lives) + 1)
        self.lives.append(one)
        self.alive.append(one)
        self._living[one.process] = one
        self.trace(one, "born")
        return one

    def kill(self, one: Living) -> None:
        if one.ended is not None:
            return
        self.trace(one, "killed")
        self.counts["kills"] += 1
        self.faults.append(Fault(what="kill", at=self.at, life=one.number))
        self.end(one, killed=True)
        self.images.append(self._image(one))

    def end(self, one: Living, *, killed: bool) -> None:
        self.loop.kill(one.process)
        self.alive.remove(one)
        one.door.deafen()
        one.ended, one.killed = self.loop.now_s, killed
        if self.shared and hasattr(one, "_workshop") and self.plan.rng.random() < 0.7:
            self.image.sever(one.owner)  # its connection is gone; otherwise its whole machine is, and nobody says so
        if not one.gone.done():
            one.gone.set_result(None)

    def stopped(self, one: Living) -> None:
        """It has come to the end of an orderly stop, and has said what it could not record."""
        self.rules.stopped(one)
        self.counts["unrecorded"] += len(one.unrecorded)
        self.unrecorded += [Unrecorded(life=one.number, run=said.run, at=self.at) for said in one.unrecorded]
        self.trace(one, "stopped")
        self.end(one, killed=False)

    async def ask(self, one: Living, work: Callable[[], Coroutine[Any, Any, Any]], within_s: float = 1e9) -> Any:
        """Have something done in a process; its error is raised here, and Gone if it died meanwhile."""
        task = self.loop.create_task(work(), context=one.process.context.copy())
        if one.process.dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            raise Gone
        await asyncio.wait({task, one.gone}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            raise Gone
        return task.result()

    # Faults

    def note(self, one: Living, kind: str) -> None:
        self.trace(one, f"fault {kind}")

    def trouble(self, one: Living, seconds: float) -> None:
        """A call that did not go as it should: to its node as if the store had been away for a moment."""
        what: Any = "partition" if self.shared else "outage"
        life = one.number if self.shared else None
        self.faults.append(Fault(what=what, at=self.at, until=self.at + seconds, life=life))

    def lost_child(self, one: Living, pid: int) -> None:
        self.faults.append(Fault(what="child", at=self.at, life=one.number, pid=pid))

    # The history

    def _image(self, one: Living) -> Image:
        tasks = self.image._tasks.values()  # pyright: ignore[reportPrivateUsage]
        rows = self.image._tables["service_timing"].values()  # pyright: ignore[reportPrivateUsage]
        good = {str(getattr(row, "last_run_id", "")) for row in rows if getattr(row, "last_outcome", None) == "ok"}
        ended = {task.id for task in tasks if task.state in (State.DONE, State.DEAD)}
        # What an earlier image shows need not be shown again: there are many kills, and many tasks.
        good, ended = good - self._shown_runs, ended - self._shown_tasks
        self._shown_runs |= good
        self._shown_tasks |= ended
        return Image(
            at=self.at,
            seen=len(self.work.lines),
            life=one.number,
            ended=tuple(sorted(ended)),
            taken=tuple(
                task.owner or "" for task in tasks if task.state is State.TAKEN and task.id in self.rules.owners
            ),
            recorded=tuple(sorted(good)),
        )

    def history(self) -> History:
        image: Any = self.image
        tables = image._tables
        dump = Dump(
            at=self.at,
            tasks=tuple(map(Kept.of, image.all_tasks.values())),
            timing=dict(tables["service_timing"]),
            states=dict(tables["scheduler_state"]),
            definitions=dict(tables["definitions"]),
            slots=tuple(image.all_slots.values()),
            runs=tuple(image.all_runs.values()),
        )
        lives = [
            Life(
                life=one.number, node=one.place, at=self.start + one.began,
                ended=None if one.ended is None else self.start + one.ended, killed=one.killed, pid=one.pid,
                stopping=None if one.stopping is None else self.start + one.stopping,
            )
            for one in self.lives
        ]  # fmt: skip
        return History(
            services=tuple(Declared.of(service) for service in self.work.services),
            lives=tuple(lives),
            faults=tuple(self.faults),
            commands=tuple(self.commands),
            lines=tuple(self.work.lines),
            unrecorded=tuple(self.unrecorded),
            images=tuple(self.images),
            dump=dump,
            bounds=Bounds(
                lanes=self.lanes, shared=self.shared, late_s=5.0, recover_s=180.0, settle_s=300.0, run_s=130.0
            ),
        )

    @property
    def node_s(self) -> float:
        """How long nodes lived, in all."""
        return sum((self.loop.now_s if one.ended is None else one.ended) - one.began for one in self.lives)

    def pending(self) -> list[Any]:
        return [task for task in self.image._tasks.values() if task.state not in ENDED]  # pyright: ignore[reportPrivateUsage]

    # Running

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """To the end of `main`; then everything of this world is dropped as it is."""
        enabled = gc.isenabled()
        gc.disable()  # what is collected runs its `finally`, at a moment that no seed decides
        handlers: Any = logging._handlerList  # type: ignore[attr-defined]
        known = handlers[:]
        asyncio.set_event_loop(None)
        try:
            self.loop.run_until_complete(main())
            for message in self.loop.surprises:
                self.violated(f"nobody saw an error: {message}")
        finally:
            for one in self.alive:
                one.ended = self.loop.now_s
                self.loop.kill(one.process)
            self.loop.bury()
            handlers[:] = known  # each run has one, and those of the dead are never let go: the list would only grow
            if enabled:
                gc.enable()


class Gone(Exception):
    """The node died before it answered."""
