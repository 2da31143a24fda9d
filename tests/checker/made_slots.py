"""Cycles of made-up histories: a scheduler without a store, over Raptor's own pure decisions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from raptor.agenda import Agenda
from raptor.due import Check, Due, NotDue, skip
from raptor.journal import finished, result_of, slots_of
from raptor.judge import advance, judge, passed_by
from raptor.rows import Definition, Scheduled, ServiceTiming
from raptor.service import Service
from raptor.task import Done, Outcome, Result, Run, Slot
from raptor.testing.checker import Command, Fault, Line
from raptor.testing.checker.history import What
from raptor.timing import Timing
from tests.checker.timeline import GRACE_S, Stretch, Timeline

replace = msgspec.structs.replace
OK, FAILED = Result(outcome=Outcome.OK), Result(outcome=Outcome.FAILED, info="no")


class Table:
    """The rows, as an Agenda looks at them."""

    def __init__(self) -> None:
        self.rows: dict[str, ServiceTiming] = {}
        self.claims: dict[str, Any] = {}
        self.gates: dict[str, float] = {}
        self.retries: dict[str, float] = {}

    def row(self, name: str) -> ServiceTiming | None:
        return self.rows.get(name)

    def save(self, name: str, row: ServiceTiming) -> None:
        self.rows[name] = row
        self.gates[name] = row.next_due if row.retry_at is None else row.retry_at
        self.retries.pop(name, None)
        if row.open is not None and row.retry_at is not None:
            self.retries[name] = row.retry_at


def services(rng: random.Random) -> list[Service]:
    made: list[Service] = []
    for number in range(rng.randrange(1, 5)):
        options: dict[str, Any] = {
            "anchor": rng.choice(["slot", "slot", "end", "grid"]),
            "missed": rng.choice(["once", "once", "skip", "all"]),
            "missed_limit": rng.choice([2, 10]),
            "overlap": rng.choice(["skip", "queue"]),
            "on_crash": rng.choice(["rerun", "rerun", "skip"]),
            "max_attempts": rng.choice([None, 1, 3]),
        }
        if rng.random() < 0.25:
            options |= {
                "cron": rng.choice(["* * * * *", "*/2 * * * *", "*/5 * * * *"]),
                "timezone": "UTC",
                "anchor": "slot",
            }
        else:
            options["every_s"] = rng.choice([7.0, 20.0, 60.0, 100.0])
        made.append(Service(name=f"s{number}", **options))
    return made


@dataclass
class Cycles:
    """The scheduler main through a timeline."""

    rng: random.Random
    line: Timeline
    catalogue: dict[str, Service]
    interval_s: float | None
    table: Table = field(default_factory=Table)
    lines: list[Line] = field(default_factory=list[Line])
    slots: list[Slot] = field(default_factory=list[Slot])
    runs: list[Run] = field(default_factory=list[Run])
    commands: list[Command] = field(default_factory=list[Command])
    faults: list[Fault] = field(default_factory=list[Fault])
    recorded: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])  # successes, and when
    read: float = 0.0
    _check: Check | None = None  # of a cycle that is not over
    _queue: tuple[str, ...] = ()
    _current: tuple[Due, Run] | None = None
    _number: int = 0

    def make(self) -> None:
        self.definition = Definition(
            name="main", interval_s=self.interval_s, should_run=True,
            services=tuple(Scheduled(name=name) for name in self.catalogue),
        )  # fmt: skip
        before: Stretch | None = None
        for stretch in self.line.owners:
            if before is None or before.how == "stop":
                at = stretch.since - 0.03
                self.commands.append(Command(what="define", at=at, acked=at + 0.01, definition=self.definition))
            self._live(stretch)
            before = stretch

    def _live(self, here: Stretch) -> None:
        """What one life does of it."""
        self.here, self.now, self.cycles = here, here.since + 0.02, 0
        table: Any = self.table
        self.agenda = Agenda(self.definition, self.catalogue, table, self.now)
        if self._check is not None:
            self._resume(self._check)
        while self._check is None:  # otherwise it ended in mid-cycle
            at, retries_only = self.agenda.next_check(self.now, caught_up=bool(self.cycles))
            assert at is not None
            limit = min(here.until, max(self.line.end, self.now)) if here.how == "end" else here.until
            if max(at, self.now) >= limit and (here.how != "end" or at > limit):
                self.read = limit
                return
            self.now = max(self.now, at) + self.rng.uniform(0, 0.01)
            if self.now >= here.until:
                return
            self._begin(self.agenda.begin(at, self.now, retries_only=retries_only))

    def _begin(self, check: Check) -> None:
        queue: list[str] = []
        for name, entry in self.agenda.listed().items():
            if self.table.gates.get(name, check.at) > check.at:
                continue
            found = self.agenda.ask(entry, check)
            if isinstance(found, Due):
                queue.append(name)
            elif isinstance(found, NotDue):
                self._note(found)
        if not queue:
            self.agenda.end(self.now)
            return
        self._check = check
        self._work(tuple(queue), resumed=False)

    def _note(self, found: NotDue) -> None:
        self.slots += found.closed
        if found.row is not None:
            self.table.save(found.service.name, found.row)

    def _work(self, queue: tuple[str, ...], *, resumed: bool) -> None:
        """One service after another, as far as this life gets."""
        check = self.agenda.check
        assert check is not None
        while queue:
            name, queue = queue[0], queue[1:]
            entry = self.agenda.entry(name)
            assert entry is not None
            self._queue = (name, *queue)
            if self.now >= self.here.until:
                return
            found = self.agenda.ask(entry, check)
            if not isinstance(found, Due):
                continue
            self._queue = queue
            if not self._run(found):
                return
        self._check, self._queue = None, ()
        self.cycles += 1
        self.agenda.end(self.now, resumed=resumed)

    def _run(self, due: Due) -> bool:
        """Run it; False if the life ended meanwhile."""
        rng, name, timing = self.rng, due.service.name, self._timing(due.service)
        self._number += 1
        run = Run(
            id=f"r{self._number}",
            service=name,
            scheduler="main",
            planned=due.planned,
            attempt=due.attempt,
            start=self.now,
        )
        self._current = due, run
        start = self.now + rng.uniform(0, 0.01)
        end = start + rng.choice([rng.uniform(0, 0.2), rng.uniform(0, 2), rng.uniform(0, 12)])
        result = rng.choice([OK, OK, OK, OK, FAILED])
        died = result is FAILED and rng.random() < 0.3
        settled, written = end + rng.uniform(0.001, 0.02), end + rng.uniform(0.021, 0.04)
        if start >= self.here.until:
            return False
        self._line("start", run, start)
        if settled >= self.here.until:
            return self._cut(due, run, end, timing)
        if died:
            self.faults.append(Fault(what="child", at=end, life=self.here.life))
        else:
            self._line("end" if result is OK else "fail", run, end)
        self._record(due, timing, finished(run, result, settled))
        self.now = written
        return True

    def _record(self, due: Due, timing: Timing, run: Run) -> None:
        result = OK if run.outcome is Outcome.OK else FAILED
        row = self.table.row(run.service)
        assert run.end is not None
        verdict = judge(due, timing, result, row, now=run.end, rng=self.rng)
        after = advance(due, timing, row, run, verdict)
        self.table.save(run.service, after)
        passed = () if after.open is not None else passed_by(due.service, timing, run, after, due.planned)
        closed = (*due.closed, *passed)
        self.slots += slots_of(result_of(run, verdict, closed), "main", run.end)
        self.runs.append(run)
        if isinstance(verdict, Done):
            self.recorded.append((run.end, run.id))
        self._current = None

    def _cut(self, due: Due, run: Run, end: float, timing: Timing) -> bool:
        """The life ends under it."""
        here = self.here
        if here.how == "stop":
            if end < here.until + GRACE_S - 0.5:  # it may end, and then nothing more begins
                self._line("end", run, end)
                self._record(due, timing, finished(run, OK, end + 0.01))
            else:
                self._line("cut", run, here.until + GRACE_S - 0.4)
                self.now = here.until + GRACE_S - 0.3
                self._current = None
                self._give_up(due.service, run)
        elif end < here.until:
            self._line("end", run, end)
        elif here.how == "freeze":
            self._line(self.rng.choice(["end", "cut"]), run, here.thawed + self.rng.uniform(0.01, 1))
        return False

    def _give_up(self, service: Service, run: Run) -> None:
        """What was interrupted comes first in what is left, or is passed over."""
        lost = replace(run, outcome=Outcome.INTERRUPTED, info="interrupted by a crash")
        self.runs.append(lost)
        if service.on_crash == "rerun":
            self._queue = (service.name, *self._queue)
            return
        assert self.agenda.check is not None
        timing = self._timing(service)
        row = self.table.row(service.name) or ServiceTiming(
            next_due=self.agenda.check.at, interval_seconds=timing.every_s
        )
        self._note(skip(service, timing, row, self.agenda.check, "interrupted"))

    def _resume(self, check: Check) -> None:
        self.agenda.take_up(check.at, check.up_since, self.now)
        if self._current is not None:
            (due, run), self._current = self._current, None
            self._give_up(due.service, run)
        self._work(self._queue, resumed=True)

    def _timing(self, service: Service) -> Timing:
        timing = self.agenda.timing_of_any(service)
        assert timing is not None
        return timing

    def _line(self, what: What, run: Run, at: float) -> None:
        self.lines.append(
            Line(
                what=what, run=run.id, service=run.service, scheduler="main", attempt=run.attempt, life=self.here.life,
                planned=run.planned, at=at,
            )
        )  # fmt: skip
