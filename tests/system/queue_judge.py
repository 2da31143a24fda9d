"""What a history of tasks must be, whatever was killed meanwhile. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from raptor.settlement import LAPSED, LIVES
from raptor.task import ENDED, State, Task, Try


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the ledger that the services wrote."""

    what: str  # start, end, fail, cut
    task: int
    fence: int
    attempt: int
    life: int  # of the node: how many there were before
    pid: int
    planned: float
    at: float

    @classmethod
    def read(cls, text: str) -> Line:
        what, task, fence, attempt, life, pid, planned, at = text.split()
        return cls(
            what=what, task=int(task), fence=int(fence), attempt=int(attempt), life=int(life), pid=int(pid),
            planned=float(planned), at=float(at),
        )  # fmt: skip


@dataclass(frozen=True)
class Ack:
    """A put that was acknowledged."""

    task: int
    since: float | None  # it is due then at the earliest; None: not known
    new: bool


@dataclass(frozen=True)
class Death:
    """What the disk had when a node had just been killed."""

    life: int
    ended: frozenset[int] = frozenset()
    taken: tuple[str, ...] = ()  # the owner of each
    seen: int = 0  # lines of the ledger by then


@dataclass(frozen=True, kw_only=True)
class Story:
    """All that is known of some lives of a node, one after the other, or of several nodes on a shared store."""

    acks: Sequence[Ack]
    lines: Sequence[Line]  # in the order they were written
    tasks: Sequence[Task]  # as the store has them in the end
    deaths: Sequence[Death]
    lanes: int
    shared: bool = False
    _by_id: dict[int, Task] = field(default_factory=dict[int, Task], init=False)
    _runs: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list), init=False)
    _ends: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str], init=False)

    def __post_init__(self) -> None:
        self._by_id.update((task.id, task) for task in self.tasks)
        for line in self.lines:
            if line.what == "start":
                self._runs[line.task].append(line)
            else:
                self._ends[line.task, line.fence] = line.what

    def complaints(self) -> list[str]:
        """Everything that is wrong; empty for a sound history."""
        found = [*self._lost(), *self._overlaps(), *self._repeated_work(), *self._early(), *self._broken_series()]
        for task in self.tasks:
            found += [f"task {task.id} ({task.service}): {wrong}" for wrong in self._wrong_runs(task)]
        return [*found, *self._excess()]

    def _lost(self) -> Iterator[str]:
        for id in sorted({ack.task for ack in self.acks}):
            task = self._by_id.get(id)
            if task is None:
                yield f"task {id} was acknowledged and is gone"
            elif task.timing is None and task.state not in (State.DONE, State.DEAD):
                yield f"task {id} ({task.service}) ended as {task.state}"

    def _overlaps(self) -> Iterator[str]:
        """Two runs of a task at a time, unless the node of the first was gone."""
        running: dict[int, Line] = {}
        killed = {death.life for death in self.deaths}
        for line in self.lines:
            before = running.pop(line.task, None)
            if line.what == "start":
                if before is not None and (before.life == line.life or (self.shared and before.life not in killed)):
                    yield f"task {line.task}: run {line.fence} began while {before.fence} ran"
                running[line.task] = line
            elif before is None or before.fence != line.fence:
                if self.shared and line.life in killed:  # one that stood still, and whose result was refused
                    running |= {} if before is None else {line.task: before}
                    continue
                yield f"task {line.task}: run {line.fence} ended, and was not the one that ran"

    def _repeated_work(self) -> Iterator[str]:
        for death in self.deaths:
            for number, line in enumerate(self.lines):
                is_later = number >= death.seen if self.shared else line.life > death.life
                if line.what == "start" and is_later and line.task in death.ended:
                    yield f"task {line.task} had ended in life {death.life}, and ran in life {line.life}"

    def _early(self) -> Iterator[str]:
        earliest = {ack.task: ack.since for ack in self.acks if ack.new}
        for id, runs in self._runs.items():
            for run in runs:
                if run.at < run.planned:
                    yield f"task {id}: run {run.fence} began {run.planned - run.at} s early"
            since = earliest.get(id)
            if since is not None and runs[0].planned < since:
                yield f"task {id} was put for {since}, and ran for {runs[0].planned}"

    def _broken_series(self) -> Iterator[str]:
        following: Counter[int] = Counter()
        for task in self.tasks:
            if task.timing is not None and task.parent is not None:
                following[task.parent] += 1
        for task in self.tasks:
            wanted = 1 if task.timing is not None and task.state in ENDED else 0
            if task.timing is not None and following[task.id] != wanted:
                yield f"task {task.id} is {task.state} and has {following[task.id]} successors"

    def _wrong_runs(self, task: Task) -> Iterator[str]:
        """Each run is the last one, or a try that the row remembers."""
        runs = self._runs.get(task.id, [])
        fences = [run.fence for run in runs]
        if sorted(set(fences)) != fences or (fences and fences[-1] > task.fence):
            yield f"runs {fences}, and the row says {task.fence}"
        if task.state in (State.DONE, State.DEAD):
            yield from self._wrong_end(task, runs)
        if len(task.history) >= LIVES:
            return
        before = [run for run in runs if run.fence < task.fence or task.state not in ENDED]
        for run in before:
            if not any((past.start or past.end) <= run.at <= past.end for past in task.history):
                yield f"run {run.fence} of life {run.life} is in no try of the row"
        if len(before) > len(task.history):
            yield f"{len(before)} runs before the last, for {len(task.history)} tries"
        for past in task.history:
            yield from self._wrong_try(past, [run for run in before if (past.start or past.end) <= run.at <= past.end])
        failed = sum(past.verdict == "retry" for past in task.history)
        last = task.state is State.DEAD and task.reason in ("failed", "lapsed", "poison")
        if task.attempts != failed + last:
            yield f"{task.attempts} attempts, for {failed + last} that failed or lapsed"

    def _wrong_try(self, past: Try, runs: Sequence[Line]) -> Iterator[str]:
        killed = {death.life for death in self.deaths}
        ends = [self._ends.get((run.task, run.fence)) for run in runs]
        if len(runs) > 1:
            yield f"one try, and runs {[run.fence for run in runs]}"
        elif past.info == LAPSED.info:
            if past.verdict != "retry":
                yield f"it lapsed, which is {past.verdict} and cost no attempt"
            if any(run.life not in killed for run in runs):
                yield f"run {runs[0].fence} lapsed, and life {runs[0].life} was not killed"
        elif past.verdict == "retry" and ends != ["fail"]:
            yield f"a try that failed, and its run: {ends}"
        elif past.verdict == "again" and ends not in ([], ["cut"], [None]):
            yield f"a try that was broken off, and its run: {ends}"

    def _wrong_end(self, task: Task, runs: Sequence[Line]) -> Iterator[str]:
        end = self._ends.get((task.id, task.fence))
        ran = bool(runs) and runs[-1].fence == task.fence
        if task.state is State.DONE and end != "end":
            yield f"done, and its run {task.fence} says {end}"
        elif task.reason == "failed" and end != "fail":
            yield f"dead, and its run {task.fence} says {end}"
        elif task.reason == "lapsed" and ran and runs[-1].life not in {death.life for death in self.deaths}:
            yield f"lapsed, and life {runs[-1].life} was not killed"

    def _excess(self) -> Iterator[str]:
        """A kill may cost what was in the lanes, and no more."""
        for death in self.deaths:
            for owner, count in Counter(death.taken).items():
                if count > self.lanes:
                    yield f"life {death.life}: {count} tasks were taken by {owner}, for {self.lanes} lanes"
        extra = sum(max(0, len(self._runs.get(task.id, [])) - 1 - _costly(task)) for task in self.tasks)
        if extra > len(self.deaths) * self.lanes:
            yield f"{extra} runs too many, for {len(self.deaths)} kills of {self.lanes} lanes"


def _costly(task: Task) -> int:
    """Tries that ended by themselves or by an orderly stop, rather than by a kill."""
    return sum(past.info != LAPSED.info for past in task.history)


def counted(story: Story) -> Mapping[str, int]:
    """How much there was to judge."""
    states = Counter(str(task.state) for task in story.tasks)
    lapses = sum(past.info == LAPSED.info for task in story.tasks for past in task.history)
    return {
        "acks": len(story.acks),
        "runs": sum(line.what == "start" for line in story.lines),
        "lapses": lapses,
        **states,
    }
