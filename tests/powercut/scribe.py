"""A process that writes a state directory with Raptor's own code, and marks what it begins and what it was promised.

`python -m tests.powercut.scribe PLAN`: the plan is a JSON file, see Plan.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from raptor.clock import SystemClock
from raptor.rows import Definition, Line, SchedulerState, ServiceTiming
from raptor.state import connection
from raptor.state.base import Hold, Query, Want
from raptor.state.files import FileStore
from raptor.task import Move, Outcome, Run, Slot, State, Task, Try
from tests.powercut.records import of_run, of_slot, of_task, plain
from tests.system.states import opened

OWNER = "scribe"
QUEUES = ("red", "green", "blue", "grey")
NAMES = ("one", "two", "three", "four")
MANY = 30  # records of a kind, beyond which some go


class Plan(msgspec.Struct, kw_only=True):
    home: str
    marks: str
    seed: int
    at: float = 0.0  # its clock, later than that of any before it
    steps: int  # 0: until it is killed
    synchronous: str = "FULL"  # anything else is a control, which must lose something
    checkpoint: int = 1000  # pages in a log, as SQLite counts: few, so that checkpoints happen in a short run
    openings: int = 1  # it is closed and opened again between


Ask = Callable[[], Awaitable[object]]


class Scribe:
    def __init__(self, plan: Plan, store: FileStore, marks: int, number: int) -> None:
        self._store = store
        self._rng = random.Random(f"{plan.seed} {number}")
        self._marks = marks
        self._number = number
        self._now = plan.at + number
        self._tasks: dict[str, Task] = {}
        self._ids: dict[str, int] = {}
        self._last = 0
        self._ledger: list[str] = []  # the keys of its runs and slots

    @property
    def number(self) -> int:
        return self._number

    async def learn(self) -> None:
        """What is there already."""
        for task in await self._store.find(Query(limit=10**9)):
            key, _ = of_task(task)
            self._tasks[key], self._ids[key] = task, task.id
        runs = await self._store.history(limit=10**9)
        slots = await self._store.slots("a", since=0.0, until=1e12, limit=10**9)
        self._ledger = [key for key, _ in (*map(of_run, runs), *map(of_slot, slots))]

    async def step(self) -> None:
        """A few calls at once, no two of which touch one record."""
        self._now += 1.0
        subjects = [*((self._on_queue, queue) for queue in QUEUES), *((self._on_table, name) for name in NAMES)]
        subjects += [(self._on_ledger, ""), (self._on_rest, "")]
        chosen = self._rng.sample(subjects, self._rng.choice((1, 1, 2, 3)))
        calls = [call for do, subject in chosen if (call := do(subject)) is not None]
        await asyncio.gather(*[self._promised(records, ask) for records, ask in calls])

    async def _promised(self, records: list[tuple[str, Any]], ask: Ask) -> None:
        self._number += 1
        number = self._number
        self._mark("begin", number, msgspec.json.encode(records).decode())
        await ask()
        self._mark("done", number, str(self._last))

    def _mark(self, kind: str, number: int, text: str) -> None:
        os.write(self._marks, f"{kind} {number} {text}\n".encode())

    def _on_queue(self, queue: str) -> tuple[list[tuple[str, Any]], Ask] | None:
        mine = {key: task for key, task in self._tasks.items() if task.queue == queue}
        of = {state: {key: task for key, task in mine.items() if task.state is state} for state in State}
        ended = of[State.DONE] | of[State.DEAD] | of[State.CANCELLED]
        if of[State.TAKEN] and self._rng.random() < 0.6:
            return self._settle(of[State.TAKEN])
        if of[State.TAKEN] and self._rng.random() < 0.2:
            return self._extend(of[State.TAKEN])
        if of[State.READY] and self._rng.random() < 0.5:
            return self._take(queue, of[State.READY])
        if len(ended) > MANY // 4 or (ended and self._rng.random() < 0.1):
            return self._drop(ended)
        if ended and self._rng.random() < 0.2:
            return self._revive(ended)
        if of[State.READY] and self._rng.random() < 0.1:
            return self._cancel(of[State.READY])
        return self._put(queue)

    def _expect(self, tasks: dict[str, Task | None]) -> list[tuple[str, Any]]:
        for key, task in tasks.items():
            if task is None:
                del self._tasks[key]
            else:
                self._tasks[key] = task
        return [(key, None if task is None else of_task(task)[1]) for key, task in tasks.items()]

    def _new(self, queue: str) -> Task:
        long = " " + "x" * self._rng.choice((0,) * 12 + (500, 500, 9000))
        rare = self._rng.random() < 0.2
        return Task(
            service="work", queue=queue, due=self._now - self._rng.random(), priority=self._rng.randrange(10),
            data=f"{queue}.{self._rng.getrandbits(48):x}{long}", created=self._now,
            key=f"{self._rng.getrandbits(48):x}" if rare else None, timeout_s=4.5 if rare else None,
        )  # fmt: skip

    def _put(self, queue: str) -> tuple[list[tuple[str, Any]], Ask]:
        tasks = [self._new(queue) for _ in range(self._rng.choice((1, 1, 1, 2, 2, 3, 5, 5, 9, 120)))]
        now = self._now

        async def put() -> None:
            for task, (id, _) in zip(tasks, await self._store.put(tasks, now=now), strict=True):
                self._ids[of_task(task)[0]] = id
                self._last = max(self._last, id)

        return self._expect({of_task(task)[0]: task for task in tasks}), put

    def _take(self, queue: str, ready: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask]:
        now = self._now
        taken = {
            key: msgspec.structs.replace(
                task, state=State.TAKEN, fence=task.fence + 1, owner=OWNER, lease=now + 60.0, started=now
            )
            for key, task in ready.items()
        }

        async def take() -> None:
            given = await self._store.take([Want(queue=queue, room=1000, lease_s=60.0)], owner=OWNER, now=now)
            assert len(given.tasks) == len(ready)

        return self._expect({**taken}), take

    def _settle(self, taken: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask]:
        now = self._now
        moves: list[Move] = []
        after: dict[str, Task | None] = {}
        for key, task in taken.items():
            move = self._move(key, task)
            changed = {name: getattr(move, name) for name in SETTLED}
            due = task.due if move.due is None else move.due
            moves.append(move)
            settled = msgspec.structs.replace(task, **changed, due=due, owner=None, lease=None, unwanted=False)
            after[key] = settled if move.keep else None
            if move.successor is not None:
                after[of_task(move.successor)[0]] = msgspec.structs.replace(move.successor, created=now)

        async def settle() -> None:
            assert not await self._store.settle(moves, now=now)
            for move in moves:
                if move.successor is not None:
                    key = of_task(move.successor)[0]
                    (found,) = [t for t in await self._store.find(Query(limit=10**9)) if of_task(t)[0] == key]
                    self._ids[key] = found.id
                    self._last = max(self._last, found.id)

        return self._expect(after), settle

    def _move(self, key: str, task: Task) -> Move:
        common = {"id": self._ids[key], "fence": task.fence, "queue": task.queue, "attempts": task.attempts}
        tried = (*task.history[-2:], Try(start=task.started, end=self._now, verdict="retry", info="no"))
        match self._rng.randrange(8):
            case 0:
                return Move(**common, state=State.DONE, ended=self._now, keep=False)
            case 1:
                more = common | {"attempts": task.attempts + 1}
                return Move(**more, state=State.READY, due=self._now, previous=task.due, history=tried)
            case 2:
                return Move(**common, state=State.DEAD, ended=self._now, reason="failed", error="x" * 50)
            case 3:
                return Move(**common, state=State.DONE, ended=self._now, successor=self._new(task.queue))
            case _:
                return Move(**common, state=State.DONE, ended=self._now, started=self._now - 1.0, output="1")

    def _extend(self, taken: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask]:
        until = self._now + 90.0
        holds = [Hold(self._ids[key], task.fence) for key, task in taken.items()]
        longer = {key: msgspec.structs.replace(task, lease=until) for key, task in taken.items()}
        return self._expect({**longer}), lambda: self._store.extend(holds, until=until)

    def _drop(self, ended: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask]:
        ids = [self._ids[key] for key in ended]
        return self._expect(dict.fromkeys(ended)), lambda: self._store.drop(ids)

    def _revive(self, ended: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask] | None:
        key, task = self._rng.choice(sorted(ended.items()))
        again = msgspec.structs.replace(
            task, state=State.READY, due=self._now, attempts=0, deaths=0, ended=None, started=None, reason="",
            previous=task.due, key_until=None,
        )  # fmt: skip
        id, now = self._ids[key], self._now
        return self._expect({key: again}), lambda: self._store.revive([id], now=now)

    def _cancel(self, ready: dict[str, Task]) -> tuple[list[tuple[str, Any]], Ask]:
        key, task = self._rng.choice(sorted(ready.items()))
        gone = msgspec.structs.replace(task, state=State.CANCELLED, ended=self._now, reason="no")
        id, now = self._ids[key], self._now
        return self._expect({key: gone}), lambda: self._store.cancel([id], now=now, reason="no")

    def _on_table(self, name: str) -> tuple[list[tuple[str, Any]], Ask]:
        """As a cycle writes: the timing before the state, and at its end the state goes."""
        timing = ServiceTiming(next_due=self._now, last_info="i" * self._rng.choice((5, 200)))
        queue = NAMES * self._rng.choice((1, 1, 40))
        state = SchedulerState(cycle=str(self._now), slot=self._now, started=self._now, services_queue=queue)
        both: list[tuple[str, str, Any]] = [
            ("service_timing", name, timing),
            ("scheduler_state", name, None if self._rng.random() < 0.2 else state),
        ]
        changes = self._rng.choice((both, both, both[:1], both[1:]))
        return _rows(changes), lambda: self._store.save(changes)

    def _on_ledger(self, _: str) -> tuple[list[tuple[str, Any]], Ask]:
        now = self._now
        if len(self._ledger) > MANY:
            return self._prune()
        runs = [
            Run(id=f"{at}", service="a", scheduler="main", planned=at, attempt=1, start=at, outcome=Outcome.OK)
            for at in (now + n / 100 for n in range(self._rng.choice((1, 10))))
        ]
        slots = [Slot(service="a", planned=run.start, last=run.start, verdict="done", recorded=now) for run in runs]
        records = [*map(of_run, runs), *map(of_slot, slots)]
        self._ledger += [key for key, _ in records]
        return records, lambda: self._store.record(slots, runs)

    def _prune(self) -> tuple[list[tuple[str, Any]], Ask]:
        """Its commits are many: each of them may be there without the next, so each record is a change for itself."""
        now = self._now
        gone, self._ledger = self._ledger, []
        first = self._number + 1
        self._number += len(gone)
        for number, key in enumerate(gone, first):
            self._mark("begin", number, msgspec.json.encode([(key, None)]).decode())

        async def prune() -> None:
            await self._store.prune(before=now, keep=0)
            for number in range(first, first + len(gone)):
                self._mark("done", number, "0")

        return [], prune

    def _on_rest(self, _: str) -> tuple[list[tuple[str, Any]], Ask]:
        if self._rng.random() < 0.5:
            return [], self._store.checkpoint
        changes: list[tuple[str, str, Any]] = [
            ("definitions", "main", Definition(name="main", note=str(self._now))),
            ("lines", "red", Line(name="red", note=str(self._now))),
        ]
        return _rows(changes), lambda: self._store.save(changes)


SETTLED = (
    "state", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect", "history",
)  # fmt: skip


def _rows(changes: list[tuple[str, str, Any]]) -> list[tuple[str, Any]]:
    return [(f"{table}/{key}", None if record is None else plain(record)) for table, key, record in changes]


@contextmanager
def _settings(plan: Plan) -> Iterator[None]:
    """Raptor's own settings, but for those of a control, and for the length of a log."""
    durably = connection._make_durable

    def set_up(opened: sqlite3.Connection, path: Path) -> None:
        durably(opened, path)
        opened.execute(f"PRAGMA wal_autocheckpoint = {plan.checkpoint}")
        if plan.synchronous != "FULL":
            opened.execute(f"PRAGMA synchronous = {plan.synchronous}")

    connection._make_durable = set_up
    try:
        yield
    finally:
        connection._make_durable = durably


async def write(plan: Plan) -> None:
    marks = os.open(plan.marks, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    number = 0
    for _ in range(plan.openings):
        async with opened(Path(plan.home), SystemClock()) as store:
            scribe = Scribe(plan, store, marks, number)
            await scribe.learn()
            steps = 0
            while not plan.steps or steps < plan.steps:
                await scribe.step()
                steps += 1
            number = scribe.number
    os.close(marks)


def main(plan: Plan) -> None:
    with _settings(plan):
        SystemClock().run(lambda: write(plan))


if __name__ == "__main__":
    main(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan))
