"""Which places of a lane's list of what is taken are in use: to take a task changes no index that would tell.

A place is written with each take, and is free for another when all of that has ended. What stands in one that is free
does no harm: whoever reads the list looks at the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Key: TypeAlias = tuple[int, int]
"""A task, and the fence of the take."""


class Waves:
    """Of one store. A verdict on an older take of a task, which is refused, says nothing of the last one."""

    def __init__(self) -> None:
        self._taken: dict[int, set[int]] = {}  # by place; none: whatever it was kept for may come yet
        self._last: dict[int, Key] = {}  # of each task the fence of its last take, and its place

    def keep(self, count: int) -> list[int]:
        """Places for a take."""
        kept: list[int] = []
        place = 0
        while len(kept) < count:
            if place not in self._taken:
                self._taken[place] = set()
                kept.append(place)
            place += 1
        return kept

    def give(self, kept: Iterable[int], taken: Mapping[int, Sequence[Key]]) -> None:
        """What the take gave."""
        for place in kept:
            if not taken.get(place):
                self._taken.pop(place, None)
        for place, keys in taken.items():
            new = {id: (fence, place) for id, fence in keys if id not in self._last or self._last[id][0] < fence}
            for id in new:
                self._end(id)  # of one that came back nobody was told the end
            if new:
                self._taken[place] = set(new)
                self._last.update(new)
            elif keys:
                self._taken.pop(place, None)

    def end(self, keys: Iterable[Key]) -> None:
        """They are not taken any more, or not by us."""
        for id, fence in keys:
            if id in self._last and self._last[id][0] == fence:
                self._end(id)

    def _end(self, id: int) -> None:
        _, place = self._last.pop(id, (0, None))
        if place is not None:
            left = self._taken[place]
            left.discard(id)
            if not left:
                del self._taken[place]
