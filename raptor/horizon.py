"""Which queues may have something due, and when the others will: the near due times, in a wheel. Pure.

All else is the store's: of what lies behind a queue's horizon nothing is known here until that is reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from raptor.wheel import Wheel

DUE_TIMES = 1000  # that are asked for at a time, over all queues
FEW = 10  # of each queue, at least


class Horizon:
    """The queues of a worker, in the order of their turns.

    `hot` ones may have something due; `doubtful` ones have something that runs apart; of `far` ones the store is asked
    what comes next. Up to the end of its horizon each due time of a queue is in the wheel.
    """

    def __init__(self, now: float, names: Iterable[str] | None = None) -> None:
        self.is_open = names is None  # to queues that are heard of
        self.hot: set[str] = set()
        self.doubtful: set[str] = set()
        self.far: set[str] = set()
        self._ends: dict[str, float] = {}  # in the order of their turns
        self._wheel: Wheel[tuple[str, float]] = Wheel(now)
        self._now = now
        self._since = now  # what became due later than this may not have been seen in a far queue
        for name in names or ():
            self._add(name)

    @property
    def names(self) -> Iterable[str]:
        """In the order of their turns."""
        return self._ends

    def __len__(self) -> int:
        """How many due times are held."""
        return len(self._wheel)

    def learn(self, names: Iterable[str]) -> bool:
        """There are such queues; -> whether one of them is news."""
        new = [name for name in names if name not in self._ends] if self.is_open else []
        for name in new:
            self._add(name)
        return bool(new)

    def hear(self, news: Mapping[str, float], now: float) -> bool:
        """Something is ready at a time, and maybe more after it; -> whether that concerns anybody here."""
        concerns = self.learn(news)
        for name, due in news.items():
            if due < self._ends.get(name, -inf) or (due <= now and name in self._ends):
                concerns = True
                self._expect(name, due, now)
        if len(self._wheel) > 4 * DUE_TIMES + len(self._ends):
            self._forget(now)
        return concerns

    def look_at(self, name: str) -> None:
        """Whatever it has may be taken now."""
        self.hot.add(name)

    def look_at_all(self) -> None:
        self.hot.update(self._ends)

    def wait(self, name: str, until: float) -> None:
        """Its rate is used up until then."""
        self._wheel.add((name, until), until)

    def advance(self, now: float) -> None:
        """What is due by now is hot."""
        if now < self._now:  # the clock was set back: what was due may not be any more
            self._now = now
            self._lose_sight(self._ends)
        self._now = now
        for name, due in self._wheel.advance(now):
            self.look_at(name)
            if due >= self._ends[name]:
                self._lose_sight((name,))

    def next(self) -> float | None:
        """When something is due, or has to be asked for."""
        return self._wheel.next()

    def served(self, names: Iterable[str]) -> None:
        """They had their turn: the others go first."""
        for name in names:
            self._ends[name] = self._ends.pop(name)

    def ask(self) -> tuple[list[str], float, int]:
        """The queues whose due times are to be asked for, after which time, and how many of them.

        That time is not now: what became due since they were last looked at was neither taken nor expected. What is
        heard meanwhile counts.
        """
        names = sorted(self.far)
        self.far.clear()
        for name in names:
            self._ends[name] = inf
        return names, self._since, len(names) * max(FEW, DUE_TIMES // max(len(self._ends), 1))

    def told(self, names: Iterable[str], found: Sequence[tuple[str, float]], limit: int) -> None:
        """The answer to `ask`."""
        for name, due in found:
            self._wheel.add((name, due), due)
        if len(found) >= limit:
            end = found[-1][1]
            for name in names:
                self._end_at(name, end)

    def _expect(self, name: str, due: float, now: float) -> None:
        if due <= now:
            self.look_at(name)
            self._lose_sight((name,))  # of what comes after it nothing was said
        else:
            self._end_at(name, due)

    def _end_at(self, name: str, due: float) -> None:
        if due <= self._ends[name]:
            self._ends[name] = due
            self._wheel.add((name, due), due)

    def _lose_sight(self, names: Iterable[str]) -> None:
        """They are far from now on."""
        self._since = min(self._since, self._now) if self.far else self._now
        self.far.update(names)

    def _add(self, name: str) -> None:
        self._ends[name] = -inf
        self.look_at(name)
        self._lose_sight((name,))

    def _forget(self, now: float) -> None:
        """Too much was heard, each earlier than the last: begin anew."""
        self._wheel = Wheel(now)
        self.look_at_all()
        self._lose_sight(self._ends)
