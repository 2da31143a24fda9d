"""Tasks of made-up histories: each is put, taken, run, lost and found by Raptor's own pure decisions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from raptor.lane import INTERRUPTED
from raptor.service import Service
from raptor.settlement import LAPSED, Repeat, judge_task, lapsed, move
from raptor.task import Again, Outcome, Result, Skipped, State, Task, Verdict
from raptor.testing.checker import Command, Kept, Line
from raptor.testing.checker.history import What
from tests.checker.timeline import START, Stretch, Timeline

replace = msgspec.structs.replace
OK, FAILED = Result(outcome=Outcome.OK, value=1), Result(outcome=Outcome.FAILED, info="no")
SERVICES = [Service(name="post"), Service(name="once", on_crash="skip")]


@dataclass
class Tasks:
    """All tasks of a history."""

    rng: random.Random
    line: Timeline
    lines: list[Line] = field(default_factory=list[Line])
    commands: list[Command] = field(default_factory=list[Command])
    ended: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])  # when it was recorded, and of what
    kept: list[Kept] = field(default_factory=list[Kept])

    def make(self, count: int) -> None:
        waiting = [self._put(id) for id in range(1, count + 1)]
        number = count
        while waiting:
            successor = self._live(waiting.pop())
            if successor is not None:
                number += 1
                waiting.append(replace(successor, id=number))

    def _put(self, id: int) -> Task:
        rng = self.rng
        at = START + rng.uniform(2, (self.line.end - START) * 0.8)
        due = at + rng.choice([0.0, 0.0, rng.uniform(0, 60), 4000.0])
        ends = [stretch.until for stretch in self.line.stretches if stretch.how != "end"]
        if ends and rng.random() < 0.5:  # it is likely to run when somebody is disturbed
            at = due = rng.choice(ends) - rng.uniform(0, 8)
        service = rng.choice(SERVICES).name
        self.commands.append(Command(what="put", at=at, acked=at + 0.01, task=id, service=service, due=due))
        timing = None
        if rng.random() < 0.1:
            timing = msgspec.json.encode(Repeat(every_s=rng.choice([30.0, 90.0]), origin=due)).decode()
        return Task(
            id=id, service=service, due=due, created=at, max_attempts=rng.choice([1, 2, 3, None]), timing=timing
        )

    def _live(self, task: Task) -> Task | None:
        """From its put to its end, or to the end of the history; -> the next of a series."""
        successor: Task | None = None
        if task.due > self.line.end - 20 and task.timing is None and self.rng.random() < 0.3:
            at = self.line.end - 10
            self.commands.append(Command(what="cancel", at=at, acked=at + 0.1, task=task.id))
            task = replace(task, state=State.CANCELLED, reason="cancelled", ended=at)
        while task.state is State.READY:
            at = self.line.next_work(task.due) + self.rng.uniform(0.001, 0.05)
            if at > self.line.end - 15:
                break
            working = self.line.working(at)
            if not working:
                task = replace(task, due=at)
                continue
            task, successor = self._take(task, self.rng.choice(working), at)
        self.kept.append(Kept.of(task))
        return successor

    def _take(self, task: Task, here: Stretch, at: float) -> tuple[Task, Task | None]:
        rng, is_crash = self.rng, here.how in ("kill", "freeze")
        task = replace(task, state=State.TAKEN, fence=task.fence + 1, started=at, owner=f"life {here.life}")
        start = at + rng.uniform(0, 0.02)
        end = start + (rng.uniform(0, 0.5) if at > self.line.end - 45 else rng.choice([0.0, 0.3, rng.uniform(0, 20)]))
        settled = end + rng.uniform(0.001, 0.1)
        if start >= here.until:  # never begun
            return self._settle(task, LAPSED, here, settled) if is_crash else self._give_back(task, at)
        note = self._noted(task, here)
        note("start", start)
        if settled < here.until:
            result = rng.choice([OK, OK, OK, FAILED])
            note("end" if result is OK else "fail", end)
            return self._settle(task, result, here, settled)
        if is_crash:
            if end < here.until:
                note("end", end)
            elif here.how == "freeze":  # it goes on when it wakes, and its result is refused
                note(rng.choice(["end", "cut"]), here.thawed + rng.uniform(0.01, 1))
            return self._settle(task, LAPSED, here, settled)
        note("cut", here.until + 0.5)
        return self._settle(task, INTERRUPTED, here, here.until + 0.6)

    def _give_back(self, task: Task, at: float) -> tuple[Task, None]:
        return replace(task, state=State.READY, started=None, owner=None, due=task.due), None

    def _noted(self, task: Task, here: Stretch) -> Noted:
        return Noted(self.lines, task, here.life)

    def _settle(self, task: Task, result: Result, here: Stretch, at: float) -> tuple[Task, Task | None]:
        verdict: Verdict
        if result is LAPSED:
            at = self.line.next_work(here.until + self.rng.uniform(0.2, 6)) + 0.01
            skips = task.service == "once"
            verdict = Skipped("interrupted") if skips else lapsed(task, at)
        elif result is INTERRUPTED:
            verdict = Again(at)
        else:
            service = next(one for one in SERVICES if one.name == task.service)
            verdict = judge_task(task, service, result, at, self.rng)
        change = move(task, verdict, result, at)
        columns = {name: getattr(change, name) for name in change.__struct_fields__ if name in task.__struct_fields__}
        if change.due is None:
            columns.pop("due")
        if change.state in (State.DONE, State.DEAD):
            self.ended.append((at, task.id))
        return replace(task, **columns, owner=None), change.successor


@dataclass
class Noted:
    """Writes lines of one run."""

    lines: list[Line]
    task: Task
    life: int

    def __call__(self, what: What, at: float) -> None:
        task = self.task
        self.lines.append(
            Line(
                what=what, run=f"{task.id}.{task.fence}", service=task.service, task=task.id, fence=task.fence,
                attempt=task.attempts, life=self.life, planned=task.due, at=at,
            )
        )  # fmt: skip


def services() -> Iterator[Service]:
    yield from SERVICES
