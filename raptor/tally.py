"""How the work on a queue went: counted by unit, for whoever looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from raptor.task import Dead, Done, Outcome, Result, Retry, Verdict

LONG_S = 10.0  # of a turn, from taken to judged
LATELY_S = 60


class _Second(NamedTuple):
    at: int
    done: int


class Tally:
    """What the handlers of one queue did since the worker started."""

    __slots__ = ("duration_s", "errors", "last_error", "long", "processed", "retried")

    def __init__(self) -> None:
        self.processed = 0
        self.errors = 0
        self.retried = 0
        self.duration_s = 0.0
        self.last_error: str | None = None
        self.long = 0  # turns of more than LONG_S

    def add(self, each: Collection[tuple[Result, Verdict]], took_s: float) -> None:
        self.duration_s += took_s
        self.long += took_s > LONG_S
        for result, verdict in each:
            self.processed += 1
            if result.outcome is Outcome.OK and not isinstance(verdict, Dead):
                self.retried += isinstance(verdict, Retry)
            elif result.outcome is not Outcome.INTERRUPTED:
                self.errors += 1
                self.retried += isinstance(verdict, Retry)
                self.last_error = result.info

    def show(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in sorted(Tally.__slots__)}


class TimedTally(Tally):
    """The same, and how many tasks a second were done lately. The past minute is kept as counts of whole seconds."""

    __slots__ = ("_lately", "_monotonic", "_since")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._since = monotonic()
        self._lately: deque[_Second] = deque()

    def add(self, each: Collection[tuple[Result, Verdict]], took_s: float) -> None:
        super().add(each, took_s)
        done, second = sum(isinstance(verdict, Done) for _, verdict in each), int(self._monotonic())
        if self._lately and self._lately[-1].at == second:
            done += self._lately.pop().done
        self._lately.append(_Second(second, done))
        self._forget(second)

    def show(self) -> dict[str, object]:
        return {**super().show(), "done_per_s": self.rate()}

    def rate(self) -> float:
        """Tasks done in a second, over the last minute, or since the first where that is later."""
        now = self._monotonic()
        self._forget(int(now))
        return sum(second.done for second in self._lately) / min(max(now - self._since, 1.0), LATELY_S)

    def _forget(self, second: int) -> None:
        while self._lately and self._lately[0].at <= second - LATELY_S:
            self._lately.popleft()
