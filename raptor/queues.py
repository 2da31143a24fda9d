"""The source of tasks: it takes what is due from its queues, and has what became of them recorded.

Nothing is taken ahead of its time, and what is taken starts at once: a crash can repeat no more than the lanes hold.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from raptor.assignment import Assignment
from raptor.clerk import Clerk
from raptor.clock import Clock, first_of
from raptor.errors import BadInput
from raptor.events import Events
from raptor.faults import point
from raptor.horizon import Horizon
from raptor.leases import Leases
from raptor.payload import form_of
from raptor.rows import Line
from raptor.runners import Desk
from raptor.runners.functions import name_of
from raptor.service import Service
from raptor.settlement import CANCELLED, is_late
from raptor.state.base import Bell, Query, Want
from raptor.tally import Tally
from raptor.task import Again, Dead, Outcome, Result, Skipped, Task, Verdict
from raptor.workshop import Workshop

CHILDREN = 1000  # of a task that repeats: the newest, among which its successor is looked for
GIVEN_BACK = Result(outcome=Outcome.INTERRUPTED, info="it never started")


class Queue:
    """The tasks of some queues, or of all that there are."""

    def __init__(
        self, workshop: Workshop, desk: Desk, clock: Clock, events: Events, names: Iterable[str] | None = None
    ) -> None:
        self.running: dict[int, Assignment] = {}
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self.resources: Mapping[str, Any] = {}
        self._workshop = workshop
        self._store = workshop.timetable.store
        self._desk = desk
        self._clock = clock
        self._horizon = Horizon(clock.now(), names)
        self._clerk = Clerk(workshop, clock, events)
        self._leases = Leases(workshop, self._clerk, clock, self.running, self.cancel, self._lose)
        self._busy: Counter[str] = Counter()  # units that run, of each queue
        self._suspects = 0  # of them
        self._troubled: set[str] = set()  # queues that are known to have suspects
        self._sizes: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._helpers: list[asyncio.Task[None]] = []

    @property
    def names(self) -> list[str]:
        return sorted(self._horizon.names)

    @property
    def expected(self) -> int:
        """How many due times are held."""
        return len(self._horizon)

    # Source

    async def take(self, room: int) -> list[Assignment]:
        while not self._stopping:
            self._wake.clear()
            self._check_helpers()
            now = self._clock.now()
            self._horizon.advance(now)
            wants = self._wants(room)
            if not wants:
                await self._sleep(now)
            elif units := await self._take(wants, room, now):
                return units
        return []

    async def settle(self, unit: Assignment, result: Result, verdict: Verdict) -> None:
        task, queue = unit.tasks[0], unit.tasks[0].queue
        for one in unit.tasks:
            self.running.pop(one.id, None)
        each = unit.each or [(result, verdict)] * len(unit.tasks)
        if unit.unwanted:
            each = [
                (share, Skipped(CANCELLED) if one.id in unit.unwanted else verdict)
                for one, (share, verdict) in zip(unit.tasks, each, strict=True)
            ]
        self.tallies[queue].add(each, self._clock.now() - (task.started or 0.0))
        try:
            await self._clerk.enter([(one, *ended) for one, ended in zip(unit.tasks, each, strict=True)])
            self._clerk.tell_turn(unit.tasks, result)
        finally:
            self._free(queue, task.suspect)

    # Its life

    async def open(self) -> None:
        """Take back what others left running, and listen."""
        self._troubled = await self._leases.take_over()
        bell = self._store.listen()
        self._horizon.learn(await self._clerk.durably(self._store.queues))
        self.refresh()
        spawn = asyncio.get_running_loop().create_task
        self._helpers = [spawn(self._listen(bell)), spawn(self._leases.keep())]
        for helper in self._helpers:
            helper.add_done_callback(lambda _: self._wake.set())

    async def close(self) -> None:
        for helper in self._helpers:
            helper.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True
        self._wake.set()

    def break_off(self) -> None:
        """Wait for no store that cannot write either: the next start takes back what was not recorded."""
        self._clerk.durably.broken_off = True
        self.stop()

    def refresh(self) -> None:
        """Settings or services have changed."""
        self._horizon.learn(self._workshop.lines)
        self._horizon.look_at_all()
        self._sizes = _batch_sizes(self._workshop.catalogue.values())
        self._leases.reset()
        self._wake.set()

    def cancel(self, ids: Iterable[int]) -> None:
        """End runs whose tasks are not wanted any more; of a batch their results are dropped."""
        for id in ids:
            if unit := self.running.get(id):
                unit.let_go(id, unwanted=True)

    def _lose(self, ids: Iterable[int]) -> None:
        """Somebody else has them by now: what is done here will be refused."""
        for id in ids:
            if unit := self.running.get(id):
                unit.let_go(id)

    # Taking

    def _wants(self, room: int) -> list[Want]:
        """What to ask of the queues that may have something, each in its turn, as far as there is room."""
        horizon, wants = self._horizon, list[Want]()
        lines = [self._workshop.line(name) for name in horizon.names if name in horizon.hot or name in horizon.doubtful]
        lines = [line for line in lines if not line.paused and self._lanes(line) > 0]
        apart = None if self._suspects else next((line for line in lines if line.name in horizon.doubtful), None)
        if apart is not None:  # one at a time; a lane is kept for it only where there is one, which is rare
            wants.append(_want(apart, 1, suspects=True))
            room -= apart.name in self._troubled
        lines = [line for line in lines if line.name in horizon.hot]
        for place, line in enumerate(lines):
            share = min(room, max(line.batch_size, room // (len(lines) - place)), self._lanes(line) - (line is apart))
            if share > 0:
                room -= share
                wants.append(_want(line, share * self._sizes.get(line.name, 1)))
        return wants

    def _lanes(self, line: Line) -> int:
        """How many more units it may fill."""
        return 1_000_000 if line.processors is None else line.processors - self._busy[line.name]

    async def _take(self, wants: Sequence[Want], room: int, now: float) -> list[Assignment]:
        horizon = self._horizon
        # Before the question: whatever is put meanwhile makes it hot again.
        horizon.hot.difference_update(want.queue for want in wants if not want.suspects)
        horizon.doubtful.difference_update(want.queue for want in wants if want.suspects)
        point("before_take")
        taken = await self._clerk.durably(lambda: self._store.take(wants, owner=self._workshop.owner, now=now))
        point("after_take")
        self._workshop.held.update(task.id for task in taken.tasks)
        counts = Counter((task.queue, task.suspect) for task in taken.tasks)
        self._troubled.difference_update(want.queue for want in wants if want.suspects)
        self._troubled.update(task.queue for task in taken.tasks if task.suspect)
        for want in wants:
            if want.queue in taken.spent:
                horizon.wait(want.queue, taken.spent[want.queue])
            elif counts[want.queue, want.suspects] >= want.room:
                (horizon.doubtful if want.suspects else horizon.hot).add(want.queue)
        horizon.served({task.queue for task in taken.tasks})
        try:
            return await self._assign(taken.tasks, room, now)
        except BaseException:
            self._workshop.held.difference_update(task.id for task in taken.tasks)  # to be taken back
            raise

    async def _assign(self, tasks: Sequence[Task], room: int, now: float) -> list[Assignment]:
        """Units of them; what can never run ends here, alone."""
        units: list[Assignment] = []
        batches: dict[tuple[object, ...], list[tuple[Task, Any]]] = {}
        ended: list[tuple[Task, Result, Verdict]] = []
        for task in tasks:
            service = self._workshop.catalogue.get(task.service)
            fate, value = _look(task, service, now)
            if fate is not None:
                ended.append((task, *fate))
                continue
            assert service is not None
            if task.timing is not None and task.previous is not None:
                task = await self._once_repeated(task)
            if service.batch is not None and task.attempts == 0 and not task.suspect:
                batches.setdefault((task.queue, task.service, task.timeout_s), []).append((task, value))
            else:
                units.append(self._unit(_apart(service) if task.suspect else service, [(task, value)]))
        for batch in batches.values():
            service = self._workshop.catalogue[batch[0][0].service]
            size = service.batch or 1
            units += [self._unit(service, batch[start : start + size]) for start in range(0, len(batch), size)]
        if ended:
            await self._clerk.enter(ended, ran=False)
        return await self._start(units, 0 if self._stopping else room)

    async def _start(self, units: list[Assignment], room: int) -> list[Assignment]:
        """As many as there is room for; the rest never started."""
        if len(units) > room:
            back = [task for unit in units[room:] for task in unit.tasks]
            await self._clerk.enter(((task, GIVEN_BACK, Again(task.due)) for task in back), ran=False)
        self._leases.wake()
        for unit in units[:room]:
            self._busy[unit.tasks[0].queue] += 1
            self._suspects += unit.tasks[0].suspect
            for task in unit.tasks:
                self.running[task.id] = unit
            self._clerk.tell_started(unit.tasks)
        return units[:room]

    async def _once_repeated(self, task: Task) -> Task:
        """One that was revived has its next already: it repeats no more."""
        query = Query(parent=task.id, service=task.service, newest=True, limit=CHILDREN)
        children = await self._clerk.durably(lambda: self._store.find(query))
        repeated = any(child.timing == task.timing for child in children)
        return msgspec.structs.replace(task, timing=None) if repeated else task

    def _unit(self, service: Service, some: Sequence[tuple[Task, Any]]) -> Assignment:
        tasks, values = [task for task, _ in some], [value for _, value in some]
        if tasks[0].timeout_s is not None:
            service = msgspec.structs.replace(service, timeout_s=tasks[0].timeout_s)
        return Assignment(service, tasks, values, self._desk, self.resources)

    def _free(self, name: str, suspect: bool) -> None:
        """Room that a limit had kept is free."""
        self._busy[name] -= 1
        self._suspects -= suspect
        line = self._workshop.line(name)
        if line.concurrency is not None or line.processors is not None:
            self._horizon.look_at(name)
            self._wake.set()
        elif suspect:
            self._wake.set()

    # Waiting

    async def _sleep(self, now: float) -> None:
        """Until something is due by the wheel, or is told. Nothing is asked of the store meanwhile."""
        if self._horizon.far:
            names, limit = self._horizon.ask()
            found = await self._clerk.durably(lambda: self._store.upcoming(names, after=now, limit=limit))
            self._horizon.told(names, found, limit)
        until = self._horizon.next()
        if self._wake.is_set():
            return
        reached = [] if until is None else [self._clock.sleep_until(until)]
        await first_of(self._wake.wait(), *reached)

    async def _listen(self, bell: Bell) -> None:
        try:
            while True:
                if self._horizon.hear(await bell.ring(), self._clock.now()):
                    self._wake.set()
        finally:
            bell.close()

    def _check_helpers(self) -> None:
        """Without them nothing would be heard, or leases would lapse: the worker fails, and is started anew."""
        for helper in self._helpers:
            if helper.done():
                helper.result()


def _want(line: Line, room: int, *, suspects: bool = False) -> Want:
    return Want(
        queue=line.name, room=room, suspects=suspects, concurrency=line.concurrency, rate=line.rate, per_s=line.per_s,
        lease_s=line.lease_s,
    )  # fmt: skip


def _batch_sizes(services: Iterable[Service]) -> dict[str, int]:
    """How many tasks fill a lane, in queues that are for batch handlers alone."""
    sizes: dict[str, int] = {}
    for service in services:
        sizes[service.queue] = min(service.batch or 1, sizes.get(service.queue, service.batch or 1))
    return sizes


def _look(task: Task, service: Service | None, now: float) -> tuple[tuple[Result, Verdict] | None, Any]:
    """Whether it can be run at all, and its data."""
    if task.reason:
        return _parked("bad payload", f"the row is {task.reason}"), None
    if service is None:
        return _parked("unknown service", f"there is no service {task.service} here"), None
    late = is_late(task, now)
    if late is not None:
        return (msgspec.structs.replace(GIVEN_BACK, info=f"{now - task.due:.3f} s late"), late), None
    try:
        return None, form_of(service.function, service.batch is not None).decode(task.data)
    except BadInput as error:
        return _parked("bad payload", str(error)), None


def _parked(reason: str, why: str) -> tuple[Result, Verdict]:
    return msgspec.structs.replace(GIVEN_BACK, info=why), Dead(reason)


def _apart(service: Service) -> Service:
    """In a process of its own, where that is possible: what killed a node shall not kill it again."""
    if service.kind != "python" or service.isolate or service.function is None:
        return service
    if isinstance(name_of(service.function), str):
        return service
    return msgspec.structs.replace(service, isolate=True)
