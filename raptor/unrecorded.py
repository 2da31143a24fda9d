"""What has ended here and is not recorded yet: whoever has to end before it is says so, and it counts as broken off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from raptor.task import Outcome

if TYPE_CHECKING:
    from raptor.events import Events

_log = logging.getLogger("raptor")

SILENT = "the store has not answered"


class Unrecorded(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose end the store did not take, or a task that could not be given back."""

    run: str
    service: str
    task: int | None = None
    scheduler: str | None = None  # of a slot
    outcome: Outcome
    again: bool  # whether it runs again, as after a crash; else that gives it up
    why: str = SILENT


Ends = Callable[[], Iterable[Unrecorded]]


@dataclass
class _Page:
    """What is recorded together."""

    whose: str  # the actor that has it recorded
    ends: Ends
    error: str | None = None  # why nobody tries any more


class Pending:
    """Of one node, page by page."""

    def __init__(self) -> None:
        self.told: list[Unrecorded] = []
        self._pages: dict[object, _Page] = {}

    def begin(self, key: object, whose: str, ends: Ends) -> None:
        """From now on it is to be recorded; `ends` is asked only if it never is."""
        self._pages[key] = _Page(whose, ends)

    def done(self, key: object) -> None:
        self._pages.pop(key, None)

    def failed(self, key: object, error: BaseException) -> None:
        if key in self._pages:
            self._pages[key].error = str(error)

    def forget(self, whose: str) -> None:
        """What it had given up its successor has found on disk as it was before."""
        for key, page in list(self._pages.items()):
            if page.whose == whose and page.error is not None:
                del self._pages[key]

    def tell(self, events: Events, whose: str | None = None) -> None:
        """The actor has ended, or all have: nobody records it any more. Where nobody hears of it, it is logged."""
        found: list[Unrecorded] = []
        for key, page in list(self._pages.items()):
            if whose in (None, page.whose):
                del self._pages[key]
                found += (msgspec.structs.replace(end, why=page.error or SILENT) for end in page.ends())
        self.told += found
        for (service, scheduler, again, why), alike in _groups(found).items():
            events.emit(
                "not_recorded", service=service, scheduler=scheduler, again=again, error=why,
                runs=[end.run for end in alike], tasks=[end.task for end in alike if end.task is not None],
            )  # fmt: skip
        for end in () if events.heard("not_recorded") else found:
            _log.error("not recorded: run %s of %s: %s", end.run, end.service, end.why)


def _groups(ends: Iterable[Unrecorded]) -> dict[tuple[str, str | None, bool, str], list[Unrecorded]]:
    groups: dict[tuple[str, str | None, bool, str], list[Unrecorded]] = {}
    for end in ends:
        groups.setdefault((end.service, end.scheduler, end.again, end.why), []).append(end)
    return groups
