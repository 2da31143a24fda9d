"""How the work on a queue went: counted by unit, for whoever looks."""

from __future__ import annotations

from collections.abc import Iterable

from raptor.task import Dead, Ended, Outcome, Retry

OK = Outcome.OK  # looked up once: an enum's members are slow to find
LONG_S = 10.0  # of a turn, from taken to judged


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

    def add(self, each: Iterable[Ended], took_s: float) -> None:
        self.duration_s += took_s
        self.long += took_s > LONG_S
        for _, result, verdict, _ in each:
            self.processed += 1
            if result.outcome is OK and not isinstance(verdict, Dead):
                self.retried += isinstance(verdict, Retry)
            elif result.outcome is not Outcome.INTERRUPTED:
                self.errors += 1
                self.retried += isinstance(verdict, Retry)
                self.last_error = result.info

    def show(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in sorted(self.__slots__)}
