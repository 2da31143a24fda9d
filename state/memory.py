"""A store that forgets everything with the process: for tests, simulation, and programs that want no files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from raptor.state.base import TABLES, Record, Right
from raptor.state.rights import KeepsRights, Rights
from raptor.state.transient import TransientTasks
from raptor.task import Outcome, Run, Slot

T = TypeVar("T", Run, Slot)


class MemoryStore(TransientTasks, KeepsRights):
    """`exclusive=False` has it behave as one that nodes share: for many of them in one process."""

    def __init__(self, *, exclusive: bool = True) -> None:
        super().__init__(exclusive=exclusive)
        self._rights = Rights(exclusive=exclusive)
        self._tables: dict[str, dict[str, Record]] = {name: {} for name in TABLES}
        self._runs: dict[str, Run] = {}
        self._slots: dict[tuple[str, float], Slot] = {}

    @property
    def sequence(self) -> int:
        return self._changes

    async def load(self, table: str) -> dict[str, Record]:
        return dict(self._tables[table])

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        self._rights.check(rights)
        self._changes += 1
        for table, key, record in changes:
            rows = self._tables[table]
            rows.pop(key, None)
            if record is not None:
                rows[key] = record
        self._news.tell((table, key) for table, key, _ in changes)

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        self._rights.check(rights)
        self._changes += 1
        for run in runs:
            self._runs.setdefault(run.id, run)
        for slot in slots:
            known = self._slots.setdefault((slot.service, slot.planned), slot)
            if slot.extends(known):
                self._slots[slot.service, slot.planned] = slot

    async def history(
        self,
        service: str | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        runs = [
            run
            for run in self._runs.values()
            if (service is None or run.service == service)
            and (since is None or run.start >= since)
            and (until is None or run.start <= until)
            and not (failed and run.outcome in (None, Outcome.OK))
        ]
        return sorted(runs, key=attrgetter("start", "id"), reverse=True)[:limit]

    async def slots(self, service: str, *, since: float, until: float, limit: int = 1000) -> list[Slot]:
        slots = [s for s in self._slots.values() if s.service == service and s.last >= since and s.planned <= until]
        return sorted(slots, key=attrgetter("planned"))[:limit]

    async def prune(self, *, before: float, keep: int) -> int:
        runs = _doomed(self._runs, before, keep, age=attrgetter("start"), order=attrgetter("start", "id"))
        slots = _doomed(self._slots, before, keep, age=attrgetter("last"), order=attrgetter("planned"))
        for run in runs:
            del self._runs[run]
        for slot in slots:
            del self._slots[slot]
        return len(runs) + len(slots)

    def sever(self, owner: str) -> None:
        """As if the connection of a node were gone: it counts as gone a beat after it was last seen."""
        self._rights.sever(owner)

    async def close(self) -> None:
        pass


def _doomed(
    rows: dict[Any, T], before: float, keep: int, *, age: Callable[[T], float], order: Callable[[T], Any]
) -> list[Any]:
    """The keys of those that are too old, or not among the newest `keep` of their service."""
    by_service = defaultdict[str, list[Any]](list)
    for key in sorted(rows, key=lambda key: order(rows[key]), reverse=True):
        if age(rows[key]) >= before:
            by_service[rows[key].service].append(key)
    kept = {key for keys in by_service.values() for key in keys[:keep]}
    return [key for key in rows if key not in kept]
