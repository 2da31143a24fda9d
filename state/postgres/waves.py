"""Which places of a lane's list of what is taken are in use: to take a task changes no index that would tell.

A place is written with each take, and is free for another when all of that has ended. What stands in one that is free
does no harm: whoever reads the list looks at the tasks themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


class Waves:
    """Of one store."""

    def __init__(self) -> None:
        self._taken: dict[int, set[int]] = {}  # by place; none: whatever it was kept for may come yet
        self._places: dict[int, int] = {}  # of tasks

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

    def give(self, kept: Iterable[int], taken: Mapping[int, Sequence[int]]) -> None:
        """What the take gave."""
        for place in kept:
            if not taken.get(place):
                self._taken.pop(place, None)
        for place, ids in taken.items():
            if not ids:
                continue
            self.end(ids)  # of one that came back nobody was told the end
            self._taken[place] = set(ids)
            self._places.update(dict.fromkeys(ids, place))

    def end(self, ids: Iterable[int]) -> None:
        """They are not taken any more, or not by us."""
        for id in ids:
            place = self._places.pop(id, None)
            if place is not None:
                left = self._taken[place]
                left.discard(id)
                if not left:
                    del self._taken[place]
