"""The source of tasks: it takes what is due from its queues, and has what became of them recorded.

Nothing is taken ahead of its time, and what is taken starts at once: a crash can repeat no more than the lanes hold.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

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
from raptor.settlement import CANCELLED, is_late, once_repeated, plan_of
from raptor.source import Room
from raptor.state.base import Bell, Taken, Want
from raptor.state.prospect import Prospect
from raptor.tally import Tally, Turn
from raptor.task import Again, Dead, Ended, Outcome, Result, Skipped, Task, Verdict
from raptor.workshop import Workshop

QUEUE = attrgetter("queue")
GIVEN_BACK = Result(outcome=Outcome.INTERRUPTED, info="it never started")


class Plan(NamedTuple):
    """What is to become of tasks that were taken, or may be."""

    tasks: Sequence[Task]
    units: list[Assignment]
    ended: list[Ended]


class Queue:
    """The tasks of some queues, or of all that there are."""

    def __init__(
        self, workshop: Workshop, desk: Desk, clock: Clock, events: Events, names: Iterable[str] | None = None
    ) -> None:
        self.running: dict[int, Assignment] = {}
        self.tallies: defaultdict[str, Tally] = defaultdict(partial(Tally, clock.monotonic))
        self.resources: Mapping[str, Any] = {}
        self._workshop = workshop
        self._store = workshop.timetable.store
        self._desk = desk
        self._clock = clock
        self._horizon = Horizon(clock.now(), names)
        self._clerk = Clerk(workshop, clock, events)
        self._leases = Leases(workshop, self._clerk, clock, self.running, self._recording, self.cancel, self._lose)
        self._busy: Counter[str] = Counter()  # units that run, of each queue
        self._suspects = 0  # of them
        self._settling: dict[asyncio.Future[None], list[tuple[Assignment, Result, list[Ended]]]] = {}  # by page
        self._called_off: set[int] = set()  # cancelled since the last take was asked for, and not among what runs
        self._sizes: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._helpers: list[asyncio.Task[None]] = []
        self._unwritten: BaseException | None = None  # why a verdict could not be

    @property
    def names(self) -> list[str]:
        return sorted(self._horizon.names)

    @property
    def expected(self) -> int:
        """How many due times are held."""
        return len(self._horizon)

    # Source

    async def take(self, room: Room) -> list[Assignment] | None:
        while not self._stopping:
            self._wake.clear()
            self._check()
            now = self._clock.now()
            self._horizon.advance(now)
            wants = self._wants(room.units)
            if not wants:
                await self._sleep()
            elif units := await self._take(wants, room):
                return units
            if room.sure is not None:  # by now it is another
                return []
        return None

    def settle(self, unit: Assignment, result: Result, verdict: Verdict) -> asyncio.Future[None]:
        each: list[Ended] = []
        for task in unit.tasks:
            if self.running.get(task.id) is unit:  # it may have been taken anew meanwhile
                del self.running[task.id]
            each.append((task, result, verdict, True))
        if unit.each is not None:
            each = [(task, *of_it, True) for task, of_it in zip(unit.tasks, unit.each, strict=True)]
        if unit.unwanted:
            each = [
                (task, share, Skipped(CANCELLED) if task.id in unit.unwanted else of_it, ran)
                for task, share, of_it, ran in each
            ]
        recorded = self._clerk.enter(each)
        if recorded not in self._settling:
            self._settling[recorded] = []
            recorded.add_done_callback(self._settled)
        self._settling[recorded].append((unit, result, each))
        return recorded

    def _settled(self, recorded: asyncio.Future[None]) -> None:
        units, now = self._settling.pop(recorded), self._clock.now()
        turns: dict[tuple[str, bool], list[Turn]] = {}
        for unit, _, each in units:
            first = unit.tasks[0]
            turns.setdefault((unit.queue, first.suspect), []).append((each, now - (first.started or 0.0)))
        self._unwritten = self._unwritten or recorded.exception()
        if self._unwritten is not None:
            self._wake.set()
        else:
            self._clerk.tell_turns(units, now)
            for (name, _), of_it in turns.items():
                self.tallies[name].add(of_it)
        for (name, suspect), of_it in turns.items():
            self._free(name, suspect, len(of_it))

    # Its life

    async def open(self) -> None:
        """Take back what others left running, and listen."""
        await self._leases.take_over()
        self._clerk.begin_anew()
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
        self._clerk.durably.hurry()
        self._wake.set()

    def break_off(self) -> None:
        """Wait for no store that cannot write either: the next start takes back what was not recorded."""
        self._clerk.durably.break_off()
        self.stop()

    def give_up(self) -> None:
        """Nor for one that does not answer."""
        self._clerk.durably.give_up()

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
            else:  # word of it may come before the answer to the take that gave it to us
                self._called_off.add(id)

    def _recording(self) -> Iterable[Assignment]:
        """What has ended, and is not written yet."""
        return (unit for units in self._settling.values() for unit, *_ in units)

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
        if apart is not None:  # alone: together with others it might give more than there is room for
            return [_want(apart, 1, suspects=True)]
        lines = [line for line in lines if line.name in horizon.hot]
        for place, line in enumerate(lines):
            share = min(room, max(line.batch_size, room // (len(lines) - place)), self._lanes(line))
            if share > 0:
                room -= share
                wants.append(_want(line, share * self._sizes.get(line.name, 1)))
        return wants

    def _lanes(self, line: Line) -> int:
        """How many more units it may fill."""
        return 1_000_000 if line.processors is None else line.processors - self._busy[line.name]

    async def _take(self, wants: Sequence[Want], room: Room) -> list[Assignment]:
        horizon = self._horizon
        # Before the question: whatever is put meanwhile makes it hot again.
        horizon.hot.difference_update(want.queue for want in wants if not want.suspects)
        horizon.doubtful.difference_update(want.queue for want in wants if want.suspects)
        self._called_off.clear()
        sure = None if room.sure is None else asyncio.ensure_future(self._is_sure(room.sure))
        if sure is None:
            await self._clerk.handed_in()
        point("before_take")
        plans: list[Plan] = []
        try:
            taken, now = await self._clerk.durably(lambda: self._ask_for(wants, sure, plans))
        finally:
            if sure is not None:
                sure.cancel()
        point("after_take")
        self._workshop.held.update([(task.id, task.fence) for task in taken.tasks])
        counts = Counter(map(QUEUE, taken.tasks))
        in_vain = sure is not None and not taken.tasks  # there may be some all the same
        for want in wants:
            if want.queue in taken.spent:
                horizon.wait(want.queue, taken.spent[want.queue])
            elif counts[want.queue] >= want.room or in_vain:
                (horizon.doubtful if want.suspects else horizon.hot).add(want.queue)
        horizon.doubtful |= taken.suspects
        horizon.served(counts)
        try:
            plan = plans[-1] if plans and plans[-1].tasks is taken.tasks else self._plan(taken.tasks, now)
            return await self._start(plan, 0 if self._stopping else room.units)
        except BaseException:
            self._workshop.held.difference_update((task.id, task.fence) for task in taken.tasks)  # to be taken back
            raise

    async def _is_sure(self, sure: asyncio.Future[bool]) -> bool:
        """What has ended is handed in by then: what is taken for the room that it leaves shares its commit."""
        is_sure = await asyncio.shield(sure)
        await self._clerk.handed_in()
        return is_sure

    async def _ask_for(
        self, wants: Sequence[Want], sure: asyncio.Future[bool] | None, plans: list[Plan]
    ) -> tuple[Taken, float]:
        """What the store gives, and when: after an outage that is another time, and the lease begins then."""
        await self._clerk.caught_up()
        now = self._clock.now()

        def found(tasks: Sequence[Task]) -> None:
            plans.append(self._plan(tasks, now))

        prospect = None if sure is None else Prospect(sure, found)
        return await self._store.take(wants, owner=self._workshop.owner, now=now, prospect=prospect), now

    def _plan(self, tasks: Sequence[Task], now: float) -> Plan:
        """Units of them; what can never run ends alone."""
        catalogue = self._workshop.catalogue
        units: list[Assignment] = []
        batches: dict[tuple[object, ...], list[tuple[Task, Any]]] = {}
        ended: list[Ended] = []
        for task in tasks:
            task = once_repeated(task)
            service = catalogue.get(task.service)
            fate, value = _look(task, service, now)
            if fate is not None:
                ended.append((task, *fate, False))
                continue
            assert service is not None
            if service.batch is not None and task.attempts == 0 and not task.suspect:
                batches.setdefault((task.queue, task.service, task.timeout_s), []).append((task, value))
            else:
                units.append(self._unit(_apart(service) if task.suspect else service, (task,), (value,)))
        for batch in batches.values():
            service = catalogue[batch[0][0].service]
            size = service.batch or 1
            for start in range(0, len(batch), size):
                units.append(self._unit(service, *zip(*batch[start : start + size], strict=True)))
        return Plan(tasks, units, ended)

    async def _start(self, plan: Plan, room: int) -> list[Assignment]:
        """As many as there is room for; the rest never started."""
        _, units, ended = plan
        if ended:
            await self._clerk.enter(ended)
        if len(units) > room:
            back = [task for unit in units[room:] for task in unit.tasks]
            await self._clerk.enter((task, GIVEN_BACK, Again(task.due), False) for task in back)
            del units[room:]
        self._leases.wake()
        self._busy.update(map(QUEUE, units))
        for unit in units:
            self._suspects += unit.tasks[0].suspect
            for task in unit.tasks:
                if older := self.running.get(task.id):  # it lapsed, came back, and still runs here
                    older.let_go(task.id)
                self.running[task.id] = unit
        self.cancel(self._called_off & self.running.keys())
        self._clerk.tell_started(units)
        return units

    def _unit(self, service: Service, tasks: tuple[Task, ...], values: tuple[Any, ...]) -> Assignment:
        first = tasks[0]
        if first.timeout_s is not None:
            service = msgspec.structs.replace(service, timeout_s=first.timeout_s)
        run, lease = f"{first.id}.{first.fence}", first.lease or math.inf
        return Assignment(service, tasks, values, self._desk, self.resources, run, first.queue, lease)

    def _free(self, name: str, suspect: bool, count: int) -> None:
        """Room that a limit had kept is free."""
        self._busy[name] -= count
        self._suspects -= count if suspect else 0
        line = self._workshop.line(name)
        if line.concurrency is not None or line.processors is not None:
            self._horizon.look_at(name)
            self._wake.set()
        elif suspect:
            self._wake.set()

    # Waiting

    async def _sleep(self) -> None:
        """Until something is due by the wheel, or is told. Nothing is asked of the store meanwhile."""
        if self._horizon.far:
            names, since, limit = self._horizon.ask()
            found = await self._clerk.durably(lambda: self._store.upcoming(names, after=since, limit=limit))
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

    def _check(self) -> None:
        """Nothing would be heard, leases would lapse, or a task would stay taken: the worker fails, and starts anew."""
        if self._unwritten is not None:
            raise self._unwritten
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
    if task.timing is not None and plan_of(task.timing) is None:
        return _parked("bad payload", "bad payload: its timing makes no sense"), None
    late = None if task.active_s is None else is_late(task, now)
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
