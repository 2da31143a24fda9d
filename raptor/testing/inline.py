"""A node that is none: what is put runs at once, in the caller."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from raptor.catalogue import Catalogue
from raptor.current import CURRENT, Known
from raptor.desk import Named, name_of
from raptor.errors import TaskFailed
from raptor.orders import Order, task_for
from raptor.service import Given
from raptor.task import Dead, Outcome, Result
from raptor.testing.once import at_once, clock_here, in_place, run_once
from raptor.testing.puts import Puts


class Ran:
    """A task that was put, and has run."""

    def __init__(self, id: int, outcome: Result) -> None:
        self.id = id
        self.new = True
        self.outcome = outcome

    @property
    def value(self) -> Any:
        """What the service returned."""
        return self.outcome.value

    @property
    def failed(self) -> bool:
        return self.outcome.outcome is not Outcome.OK or isinstance(self.outcome.decision, Dead)

    def result(self, timeout_s: float | None = None) -> Any:
        """As of a node: what the service returned, or TaskFailed. To be awaited on an event loop."""
        return at_once(self._result())

    def check(self) -> None:
        """TaskFailed, if it is."""
        if self.failed:
            asked = self.outcome.decision
            reason = asked.reason if isinstance(asked, Dead) else "failed"
            raise TaskFailed(self.id, "dead", reason, self.outcome.error or self.outcome.info)

    async def _result(self) -> Any:
        self.check()
        return self.value


class Inline:
    """Takes tasks as a node does, and runs each while it is put, whenever it would be due."""

    home: Path | None = None  # nothing runs in a process of its own

    def __init__(self, services: Iterable[Given], *, raises: bool = True) -> None:
        self.puts = Puts()
        self.assert_put = self.puts.check
        self._catalogue = Catalogue.of([in_place(service) for service in services])
        self._raises = raises

    async def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Ran:
        name, now = name_of(service), self.now()
        put = self.puts.note(len(self.puts) + 1, task_for(name, data, self._catalogue, {}, now, **order), now)
        known = self._catalogue.find(name)
        given = data if known.batch is None else [data]
        ran = Ran(put.id, await run_once(known, given, id=put.id, desk=self))
        if self._raises:
            ran.check()
        return ran

    async def put_many(self, service: Named, many: Iterable[Any], **order: Unpack[Order]) -> list[int]:
        return [(await self.put(service, data, **order)).id for data in many]

    def put_from(self, service: Named, data: Any, **order: Any) -> Any:
        return at_once(self.put(service, data, **order))

    def known(self) -> Known:
        return Known(self._catalogue, {})

    def now(self) -> float:
        return clock_here().now()


@contextmanager
def inline(services: Iterable[Given], *, raises: bool = True) -> Generator[Inline]:
    """Within it `function.put(...)` runs the service at once: for tests of code that puts tasks.

    A service that fails makes its put raise TaskFailed; without `raises` only `result()` does, as of a node.
    """
    made = Inline(services, raises=raises)
    token = CURRENT.set(made)
    try:
        yield made
    finally:
        CURRENT.reset(token)
