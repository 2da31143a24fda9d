"""The store protocol: what survives, as verbs on records. No policy here or behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.task import Run, Slot

Record: TypeAlias = ServiceTiming | SchedulerState | Definition

TABLES: dict[str, type[Record]] = {
    "service_timing": ServiceTiming,
    "scheduler_state": SchedulerState,
    "definitions": Definition,
}


class Store(Protocol):
    """Every method returns when what it did is durable; each is called from an event loop and does not block it.

    A write that fails raises NotWritten (nothing was acknowledged, try again) or RefusedState (only a new start helps).
    """

    async def load(self, table: str) -> dict[str, Record]:
        """All records of a table, by key, in the order of their last change."""
        ...

    async def save(self, changes: Sequence[tuple[str, str, Record | None]]) -> None:
        """Write or delete records, in this order, each durable before the next."""
        ...

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run]) -> None:
        """Add lines to the ledger; those that are there already (by run id, or service and planned time) stay."""
        ...

    async def history(
        self,
        service: str | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        """Past runs, newest first; `since` and `until` are of their start, both included."""
        ...

    async def slots(self, service: str, *, since: float, until: float, limit: int = 1000) -> list[Slot]:
        """Closed slots that touch a span of time, both ends included, oldest first."""
        ...

    async def prune(self, *, before: float, keep: int) -> int:
        """Forget runs and slots older than that, and all but the newest `keep` of each service; -> how many."""
        ...

    async def close(self) -> None: ...
