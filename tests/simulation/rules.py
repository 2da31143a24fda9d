"""What must hold at every step, looked at with each write and each start of a run. The checker judges the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raptor.rows import SchedulerState, ServiceTiming
from raptor.task import State

if TYPE_CHECKING:
    from raptor.testing.checker.history import Line
    from tests.simulation.lives import Living
    from tests.simulation.world import World


LONG_S = 300.0  # from the taking of something to its start, at the most


class Rules:
    def __init__(self, world: World) -> None:
        self._stepped_at = -LONG_S  # when the wall clock was last set
        self._shown = 0.0  # the latest that it has shown before that
        self._world = world
        self._fences: dict[str, tuple[int, str]] = {}  # of rights: the highest, and whose it was
        self._cycles: dict[str, tuple[str, ...]] = {}  # what each began with
        self._recorded: set[str] = set()  # runs whose result stands in service_timing
        self._runs: set[str] = set()
        self._tasks: dict[int, int] = {}  # the fence of the last run that began
        self._taking: dict[int, int] = {}  # the fence of the last take
        self._settled: set[tuple[int, int]] = set()
        self._unwanted: set[int] = set()  # tasks that were cancelled while they ran
        self.owners: dict[int, str] = {}  # of tasks that are taken

    # Writes

    def before(self, verb: str, args: tuple[Any, ...]) -> None:
        """A result that is handed in holds no lane up: its successor may be taken meanwhile, and starts when it is
        written. It may be taken before, if the first try to write the result fails."""
        if verb == "settle":
            for move in args[0]:
                self.owners.pop(move.id, None)

    def after(self, living: Living, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        match verb:
            case "save" | "record":
                for right in kwargs.get("rights", ()):
                    self._write(verb, right.key, right.fence)
                for _, key, record in args[0] if verb == "save" else ():
                    if isinstance(record, SchedulerState):
                        self._cycle(key, record)
                    elif isinstance(record, ServiceTiming) and record.last_run_id is not None:
                        self._recorded.add(record.last_run_id)
            case "claim":
                for key, grant in answer.items():
                    self._grant(key, grant.fence, grant.owner)
            case "take":
                self._taken(kwargs["owner"], answer)
            case "settle":
                for move in args[0]:
                    if move.id not in answer:
                        self._settle(move.id, move.fence)
            case "cancel":
                self._unwanted.update(id for id, state in answer.items() if state is State.TAKEN)
            case "revive":
                self._unwanted.difference_update(answer)
            case "extend":
                for hold in args[0]:
                    if hold.id not in answer.stale:
                        self._is_latest(hold.id, hold.fence, "its lease was extended")
            case _:
                pass

    def _grant(self, key: str, fence: int, owner: str) -> None:
        known, whose = self._fences.get(key, (0, ""))
        if fence < known or (fence == known and owner != whose):
            self._world.violated(f"right {key}: fence {fence} of {owner}, after {known} of {whose}")
        self._fences[key] = fence, owner

    def _write(self, verb: str, key: str, fence: int) -> None:
        known, whose = self._fences.get(key, (fence, ""))
        if fence < known:
            self._world.violated(f"right {key}: a {verb} with fence {fence} was accepted, after {known} of {whose}")

    def _is_latest(self, id: int, fence: int, what: str) -> None:
        if fence != self._taking.get(id, fence):
            self._world.violated(f"task {id}: {what} for fence {fence}, when {self._taking[id]} had been given out")

    def _taken(self, owner: str, answer: Any) -> None:
        for task in answer.tasks:
            self._taking[task.id] = task.fence
            if task.id in self._unwanted:
                self._world.violated(f"task {task.id}: it was cancelled while it ran, and was given out again")
            self.owners[task.id] = owner
        held = sum(one == owner for one in self.owners.values())
        if held > self._world.lanes:
            self._world.violated(f"{held} tasks are taken by {owner}, for {self._world.lanes} lanes")

    def _settle(self, id: int, fence: int) -> None:
        self.owners.pop(id, None)
        self._is_latest(id, fence, "a result was accepted")
        if (id, fence) in self._settled:
            self._world.violated(f"task {id}: the result of run {fence} was accepted twice")
        self._settled.add((id, fence))

    def _cycle(self, scheduler: str, state: SchedulerState) -> None:
        """Nothing appears in a cycle, and what has its result stays out of the queue."""
        current = () if state.current_service is None else (state.current_service,)
        ahead = (*current, *state.services_queue)
        over = [result.run.service for result in state.results if result.verdict != "interrupted"]
        over += [result.service for result in state.recorded if result.verdict != "interrupted"]
        began = self._cycles.setdefault(state.cycle, ahead)
        strangers = {*ahead, *over} - set(began)
        if strangers:
            self._world.violated(f"scheduler {scheduler}: {sorted(strangers)} came into a cycle of {began}")
        if again := set(ahead) & set(over):
            self._world.violated(f"scheduler {scheduler}: {sorted(again)} has its result, and is still to run")
        if twice := [name for name, count in Counter(over).items() if count > 1]:
            self._world.violated(f"scheduler {scheduler}: {twice} has two results in a cycle")
        if ahead != began[len(began) - len(ahead) :]:
            self._world.violated(f"scheduler {scheduler}: {ahead} is not what is left of {began}")
        run = state.current_run
        if run is not None and run.id in self._recorded:
            self._world.violated(f"scheduler {scheduler}: run {run.id} of {run.service} is recorded, and to be started")

    # Ends

    def stopped(self, living: Living) -> None:
        """What a node ran that stopped in order, and is not recorded, it says."""
        said = {one.run for one in living.unrecorded}
        image: Any = self._world.image
        left = [
            f"{task.id}.{task.fence}"
            for task in image._tasks.values()
            if task.state is State.TAKEN and task.owner == living.owner
        ]
        if not self._world.shared:
            left += self._ended_slots(image._tables)
        for run in left:
            if run in self._runs and run not in said:
                self._world.violated(f"{living.process.name} stopped in order, and said nothing of run {run}")

    def _ended_slots(self, tables: dict[str, dict[str, Any]]) -> Iterator[str]:
        """Runs for slots that ended well, and are not in the row of their service."""
        lines = self._world.work.lines
        for state in tables["scheduler_state"].values():
            run = state.current_run
            row = None if run is None else tables["service_timing"].get(run.service)
            if run is None or (row is not None and row.ended(run.id) is not None):
                continue
            if any(line.run == run.id and line.what == "end" for line in reversed(lines)):
                yield run.id

    # Runs

    def stepped(self, wall: float) -> None:
        """The wall clock, which shows that, is set."""
        self._stepped_at = self._world.loop.now_s
        self._shown = max(self._shown, wall)

    def started(self, living: Living, line: Line) -> None:
        if line.run in self._runs:
            self._world.violated(f"run {line.run} of {line.service} began twice")
        self._runs.add(line.run)
        taken_in_time = self._world.loop.now_s - self._stepped_at < LONG_S
        tried_again = line.task is None and line.attempt > 1 and line.planned <= self._shown
        if line.wall is not None and line.planned > line.wall and not taken_in_time and not tried_again:
            self._world.violated(f"run {line.run} of {line.service} began {line.planned - line.wall} s early")
        if line.run in self._recorded:
            self._world.violated(f"run {line.run} of {line.service} began after its result was recorded")
        if line.task is not None and not self._world.shared:
            # Among many nodes one that stood still may begin late; its result is refused.
            self._task_started(line.task, line.fence)

    def _task_started(self, task: int, fence: int) -> None:
        if fence <= self._tasks.get(task, 0):
            self._world.violated(f"task {task}: run {fence} began after run {self._tasks[task]}")
        self._tasks[task] = fence
        if (task, fence) in self._settled:
            self._world.violated(f"task {task}: run {fence} began after its result was recorded")
