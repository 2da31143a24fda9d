"""Trails: how far takes have come in queues that had more than was asked for.

What is taken leaves a dead entry in the index until a vacuum comes: a take that began at the front again would walk
over all of them. One that follows a trail begins where the last one ended. What is earlier than that is heard of, or
found by the look of each second, and ends the trail; so does a take that finds less than it asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raptor.state.bells import Bells
from raptor.state.postgres.wire import INT8, TIME, Column, seconds

PRIORITIES = 10
BEFORE_ALL = -(1 << 63)  # PostgreSQL's -infinity, as a time


class End(NamedTuple):
    """The last that was taken."""

    priority: int
    due: int
    id: int


class Trails(Bells):
    """Of the queues of a store, where somebody listens: to nobody else what is earlier is told."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[str, End] = {}

    def ring(self, news: Iterable[tuple[str, float]]) -> None:
        told = list(news)
        for queue, due in told:
            end = self._ends.get(queue)
            if end is not None and due <= seconds(end.due):
                del self._ends[queue]
        super().ring(told)

    def find(self, queue: str) -> End | None:
        return self._ends.get(queue) if self.heard else None

    def leave(self, queue: str, end: End | None) -> None:
        """None: there is no more than was given."""
        if end is None:
            self._ends.pop(queue, None)
        else:
            self._ends[queue] = end


def after(end: End | None) -> dict[str, Column]:
    """The same for a statement: due time and id after which to begin, by priority."""
    dues, ids = [BEFORE_ALL] * PRIORITIES, [0] * PRIORITIES
    if end is not None:
        dues[end.priority], ids[end.priority] = end.due, end.id
    return {"dues": Column(TIME, dues), "ids": Column(INT8, ids)}
