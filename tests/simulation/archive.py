"""The store of a simulation: it keeps what retention lets go of, since the checker judges the whole history."""

from __future__ import annotations

from raptor.state.memory import MemoryStore
from raptor.task import Run, Slot, Task


class Archive(MemoryStore):
    def __init__(self, *, exclusive: bool = True) -> None:
        super().__init__(exclusive=exclusive)
        self._old_tasks: dict[int, Task] = {}
        self._old_runs: dict[str, Run] = {}
        self._old_slots: dict[tuple[str, float], Slot] = {}

    def _forget(self, id: int) -> None:
        self._old_tasks[id] = self._tasks[id]
        super()._forget(id)

    async def prune(self, *, before: float, keep: int) -> int:
        runs, slots = dict(self._runs), dict(self._slots)
        count = await super().prune(before=before, keep=keep)
        self._old_runs |= {key: runs[key] for key in runs.keys() - self._runs.keys()}
        self._old_slots |= {key: slots[key] for key in slots.keys() - self._slots.keys()}
        return count

    # All that there ever was

    @property
    def all_tasks(self) -> dict[int, Task]:
        return self._old_tasks | self._tasks

    @property
    def all_runs(self) -> dict[str, Run]:
        return self._old_runs | self._runs

    @property
    def all_slots(self) -> dict[tuple[str, float], Slot]:
        return self._old_slots | self._slots
