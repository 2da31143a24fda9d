"""How the work on a queue went: counted by unit, for whoever looks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from raptor.task import Dead, Done, Ended, Outcome, Retry

Turn = tuple[Iterable[Ended], float]
"""What became of the tasks of a unit, and the seconds from their take until that was recorded."""

OK = Outcome.OK  # looked up once: an enum's members are slow to find
LONG_S = 10.0  # of a turn
LATELY_S = 60
COUNTS = ("duration_s", "errors", "last_error", "long", "processed", "retried")


class Tally:
    """What the handlers of one queue did since the worker started, and how many tasks were done lately."""

    __slots__ = (*COUNTS, "_lately", "_monotonic", "_since")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.processed = 0
        self.errors = 0
        self.retried = 0
        self.duration_s = 0.0
        self.last_error: str | None = None
        self.long = 0  # turns of more than LONG_S
        self._monotonic = monotonic
        self._since = monotonic()
        self._lately: deque[tuple[int, int]] = deque()  # whole seconds of the past minute, and what was done in each

    def add(self, turns: Iterable[Turn]) -> None:
        done = 0
        for each, took_s in turns:
            self.duration_s += took_s
            self.long += took_s > LONG_S
            for _, result, verdict, _ in each:
                self.processed += 1
                if type(verdict) is Done:
                    done += 1
                elif result.outcome is OK and not isinstance(verdict, Dead):
                    self.retried += isinstance(verdict, Retry)
                elif result.outcome is not Outcome.INTERRUPTED:
                    self.errors += 1
                    self.retried += isinstance(verdict, Retry)
                    self.last_error = result.info
        if done:
            self._note(done)

    def show(self) -> dict[str, object]:
        return {**{name: getattr(self, name) for name in COUNTS}, "done_per_s": self.rate()}

    def rate(self) -> float:
        """Tasks done in a second, over the last minute, or since the first where that is later."""
        now = self._monotonic()
        self._forget(int(now))
        return sum(done for _, done in self._lately) / min(max(now - self._since, 1.0), LATELY_S)

    def _note(self, done: int) -> None:
        second = int(self._monotonic())
        if self._lately and self._lately[-1][0] == second:
            done += self._lately.pop()[1]
        else:
            self._forget(second)
        self._lately.append((second, done))

    def _forget(self, second: int) -> None:
        while self._lately and self._lately[0][0] <= second - LATELY_S:
            self._lately.popleft()
