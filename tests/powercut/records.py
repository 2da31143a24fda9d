"""Everything that a store holds, by key, as plain values; and what may be there after a cut.

A scribe marks every change that it begins, with the values that its records get, and every one that is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeAlias

import msgspec

from raptor.state.base import TABLES, Query
from raptor.state.files import FileStore
from raptor.task import Run, Slot, Task

ALL = 10**9

Records: TypeAlias = dict[str, Any]
"""By key, "table/name"."""


def plain(record: msgspec.Struct) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(record))
    except UnicodeEncodeError:  # damaged: not what anybody wrote
        return {"damaged": repr(record)}


def of_task(task: Task) -> tuple[str, Any]:
    """A task is known by the first word of its data, for whoever puts it does not know its id."""
    value = plain(task)
    value.pop("id", None)
    return f"task/{str(task.data).split(' ')[0]}", value


def of_run(run: Run) -> tuple[str, Any]:
    return f"run/{run.id}", plain(run)


def of_slot(slot: Slot) -> tuple[str, Any]:
    return f"slot/{slot.service} {slot.planned}", plain(slot)


async def everything(store: FileStore) -> Records:
    found: Records = {}
    for table in TABLES:
        found |= {f"{table}/{key}": plain(record) for key, record in (await store.load(table)).items()}
    found |= dict(map(of_run, await store.history(limit=ALL)))
    found |= dict(map(of_slot, await store.slots("a", since=0.0, until=1e12, limit=ALL)))
    return found | dict(map(of_task, await store.find(Query(limit=ALL))))


@dataclass
class Change:
    """What one call writes, in the order in which it comes to the disk; None is a record that goes."""

    records: list[tuple[str, Any]]
    acknowledged: bool = False


@dataclass
class Told:
    """What a scribe said so far, on top of what was there before it began."""

    before: Records
    changes: dict[int, Change] = field(default_factory=dict[int, Change])
    last_id: int = 0  # of a task that was acknowledged

    def hear_all(self, marks: str) -> Told:
        """A last line that is cut off was never said."""
        for line in marks.splitlines(keepends=True):
            if line.endswith("\n"):
                self.hear(line)
        return self

    def hear(self, line: str) -> None:
        kind, number, rest = line.split(" ", 2)
        if kind == "begin":
            self.changes[int(number)] = Change([(key, value) for key, value in msgspec.json.decode(rest)])
        else:
            self.changes[int(number)].acknowledged = True
            self.last_id = max(self.last_id, int(rest))

    @property
    def acknowledged(self) -> int:
        return sum(change.acknowledged for change in self.changes.values())

    def wrong(self, found: Mapping[str, Any]) -> list[str]:
        """What must not be: something acknowledged that is gone, something that nobody wrote, half a commit."""
        versions = {key: [value] for key, value in self.before.items()}
        for change in self.changes.values():
            for key, value in change.records:
                older = versions.get(key, [None])
                versions[key] = [value] if change.acknowledged else [*older, value]
        wrong = [
            f"{key} is {_short(found.get(key))}, and was acknowledged as {_short(may[0])}"
            for key, may in versions.items()
            if found.get(key) not in may
        ]
        wrong += [f"{key} is there, and nobody wrote it" for key in found.keys() - versions.keys()]
        return wrong + [line for number in self.changes for line in self._halved(number, found)]

    def _halved(self, number: int, found: Mapping[str, Any]) -> Iterable[str]:
        change = self.changes[number]
        if change.acknowledged:
            return
        earlier = True  # whether all of the commits before it are there
        names = [key for key, _ in change.records]
        for table, group in groupby(change.records, key=_committed_with):
            new = {now for key, _ in group if (now := self._is_new(number, key, found.get(key))) is not None}
            if len(new) > 1:
                yield f"half of a commit is in {table or 'raptor.sqlite'}: {names}"
            if True in new and not earlier:
                yield f"{table} has a commit without the one before it: {names}"
            earlier = earlier and False not in new

    def _is_new(self, number: int, key: str, value: Any) -> bool | None:
        """Whether a record is as this change or a later one made it; None where that cannot be told."""
        before, since = [self.before.get(key)], list[Any]()
        for other, change in self.changes.items():
            (before if other < number else since).extend(value for name, value in change.records if name == key)
        return None if value in before and value in since else value in since


def _committed_with(record: tuple[str, Any]) -> str:
    """A save commits table by table; of the rest, one call is one commit."""
    table = record[0].partition("/")[0]
    return table if table in TABLES else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}..."
