"""Tasks out of the pages of a damaged raptor.sqlite: rows that are whole, and what its indexes say of the others.

A checksum covers what a task is to do; its other columns are believed if they are what the columns may hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property, partial
from sqlite3 import Connection
from typing import cast

import msgspec

from raptor.state.salvage import Cell, Value
from raptor.state.seal import BrokenSeal
from raptor.state.tasks import FIELDS, checksum
from raptor.task import State, Try

COLUMNS = (*FIELDS, "crc")  # in the order of the schema
NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
TEXTS = {"queue", "service", "state", "reason"}
NUMBERS = {"due", "created"}
COUNTS = {"priority", "attempts", "fence", "deaths", "suspect", "unwanted", "crc"}
MAYBE_TEXTS = {"key", "timing", "output", "error", "history", "owner"}
MAYBE_NUMBERS = {"key_until", "active_s", "timeout_s", "started", "previous", "ended", "lease"}
MAYBE_COUNTS = {"max_attempts", "parent"}
SHOWN = 20  # ids that a report names
GAP = 1_000_000  # ids that are passed over where it is not known which were used

_tries = msgspec.json.Decoder(tuple[Try, ...])


class Rescue:
    """See every cell of the file, then ask."""

    def __init__(self) -> None:
        self._found: defaultdict[int, list[tuple[int, dict[str, Value]]]] = defaultdict(list)  # page and row
        self._said: defaultdict[int, set[str]] = defaultdict(set)  # the state of each, by an index
        self._broken: set[int] = set()
        self._sequence: int | None = None

    def reached(self, last: int) -> None:
        """No id up to this one is to be used again."""
        self._sequence = max(last, self._sequence or 0)

    def see(self, cell: Cell) -> None:
        match cell.values:
            case ("task", int(last)) if cell.rowid:  # of a file before version 3
                self.reached(last)
            case (str(), int(), int(), int() | float(), int(id)) if self._sure(cell):
                self._said[id].add("ready")
            case (str(), "taken", int() | float(), int(id)) if self._sure(cell):
                self._said[id].add("taken")
            case (str(), "dead", int(id)) if self._sure(cell):
                self._said[id].add("dead")
            case (int() | float(), str(), ("done" | "cancelled") as state, int(id)) if self._sure(cell):
                self._said[id].add(state)
            case (None, *_) if cell.rowid > 0 and len(cell.values) == len(COLUMNS):
                row = dict(zip(COLUMNS, (cell.rowid, *cell.values[1:]), strict=True))
                if is_whole(row):
                    self._found[cell.rowid].append((cell.page, row))
                elif cell.page > 0:
                    self._broken.add(cell.rowid)
            case _:
                pass  # of another table or index

    def _sure(self, cell: Cell) -> bool:
        """In an index, and not in a damaged page of the log, which may be an old one."""
        return not cell.rowid and cell.page > 0

    @cached_property
    def _newest(self) -> dict[int, tuple[int, dict[str, Value]]]:
        return {id: max(found, key=partial(self._rank, id)) for id, found in sorted(self._found.items())}

    @property
    def rows(self) -> dict[int, dict[str, Value]]:
        """The newest of each."""
        return {id: row for id, (_, row) in self._newest.items()}

    @property
    def last(self) -> int:
        """An id that is not below any that was ever used."""
        known = max([0, *self._found, *self._said])
        if self._sequence is None or self._sequence < known:  # lost, or damaged
            return known + GAP if known else 0
        return self._sequence

    @property
    def losses(self) -> list[str]:
        rows = self.rows
        broken = {id for id in self._broken if self._sequence is None or id <= self._sequence}
        lost = sorted((self._said.keys() | broken) - rows.keys())
        late = sorted(id for id in self._said.keys() & rows.keys() if rows[id]["state"] not in self._said[id])
        unsure = sorted(id for id, (page, _) in self._newest.items() if page < 0 and id not in self._said)
        told = [f"the task{'s' if lost[1:] else ''} {_shown(lost)}"] if lost else []
        told += [f"the last change of the task {_shown(late)}: an older record is kept"] if late else []
        return told + (
            [f"what became of the task {_shown(unsure)}: it is kept as a damaged page of the log has it"]
            if unsure
            else []
        )

    def _rank(self, id: int, found: tuple[int, dict[str, Value]]) -> tuple[bool, int, bool, bool]:
        page, row = found
        said = row["state"] in self._said.get(id, ())
        return said, cast("int", row["fence"]), row["state"] != "taken", page > 0


def is_whole(row: dict[str, Value]) -> bool:
    """Whether a row is what was put, as far as its columns tell."""
    if not all(_fits(name, value) for name, value in row.items()):
        return False
    id, queue, service, data, history = (row[name] for name in ("id", "queue", "service", "data", "history"))
    if not (isinstance(id, int) and isinstance(queue, str) and isinstance(service, str)):
        return False
    if not isinstance(data, str | bytes):
        return False
    try:
        _tries.decode(history if isinstance(history, str) else "[]")
    except msgspec.DecodeError:
        return False
    return row["crc"] == checksum(id, queue, service, data)


def examine(connection: Connection) -> None:
    """Raise BrokenSeal unless every task is whole."""
    for values in connection.execute(f"SELECT {NAMES} FROM task"):
        if not is_whole(dict(zip(COLUMNS, values, strict=True))):
            raise BrokenSeal(f"task {values[0]} is not what was put: its checksum or a column does not fit")


def insert(connection: Connection, rows: Iterable[dict[str, Value]], last: int) -> None:
    """Write them into a new file, in which no id up to `last` is used again."""
    places = ", ".join("?" * len(COLUMNS))
    connection.executemany(f"INSERT INTO task ({NAMES}) VALUES ({places})", (tuple(row.values()) for row in rows))
    connection.execute("UPDATE stamp SET task = ?", (last,))


def _fits(name: str, value: Value) -> bool:
    if isinstance(value, str):
        known = name in TEXTS or name in MAYBE_TEXTS or name == "data"
        return known and _is_text(value) and (name != "state" or value in set(State))
    if isinstance(value, bytes):
        return name == "data"
    if value is None:
        return name in MAYBE_TEXTS or name in MAYBE_NUMBERS or name in MAYBE_COUNTS
    if name in NUMBERS or name in MAYBE_NUMBERS:
        return value == value
    least, most = {"priority": (0, 9), "suspect": (0, 1), "unwanted": (0, 1)}.get(name, (0, 2**63))
    known = name in COUNTS or name in MAYBE_COUNTS or name == "id"
    return known and isinstance(value, int) and least <= value <= most


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(ids: list[int]) -> str:
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return ", ".join(map(str, ids[:SHOWN])) + more
