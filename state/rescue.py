"""Tasks out of the pages of a damaged raptor.sqlite: rows that are whole, and what its indexes say of the others.

One checksum covers what a task is to do, the other what became of it. Where only the latter does not fit, the task is
kept as dead: it may have run, or not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from sqlite3 import Connection
from typing import cast

import msgspec

from raptor.state.columns import (
    ALL,
    COUNTS,
    FIELDS,
    MAYBE_COUNTS,
    MAYBE_NUMBERS,
    MAYBE_TEXTS,
    NUMBERS,
    SUMS,
    SUMS_SINCE,
    TEXTS,
    listed,
)
from raptor.state.salvage import Cell, Value
from raptor.state.seal import BrokenSeal
from raptor.state.sums import ASKED, BROKEN, asked_of, before, fate_of
from raptor.state.tasks import LAST
from raptor.task import State, Try

COLUMNS = ALL  # in the order of the schema
BEFORE = (*FIELDS, "crc")  # until version 3
_UNSET: Mapping[str, Value] = {"reason": ""} | dict.fromkeys(COUNTS, 0)
SHOWN = 20  # ids that a report names
GAP = 1_000_000  # ids that are passed over where it is not known which were used
FAR = 2**53  # an id that JSON could not hold

_tries = msgspec.json.Decoder(tuple[Try, ...])


class Rescue:
    """See every cell of the file, then ask."""

    def __init__(self) -> None:
        self._found: defaultdict[int, list[tuple[int, dict[str, Value]]]] = defaultdict(list)  # page and row
        self._said: defaultdict[int, set[str]] = defaultdict(set)  # the state of each, by an index
        self._doubtful: dict[int, dict[str, Value]] = {}  # what became of it does not fit
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
            case (None, *values) if cell.rowid > 0 and len(cell.values) in (len(COLUMNS), len(BEFORE)):
                row = _row((cell.rowid, *values))
                if is_whole(row):
                    self._found[cell.rowid].append((cell.page, row))
                elif cell.page > 0 and _is_what_was_asked(row):
                    self._doubtful[cell.rowid] = _given_up(row)
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
        return {id: row for id, (_, row) in self._newest.items()} | self._unsettled

    @property
    def _unsettled(self) -> dict[int, dict[str, Value]]:
        """Those of which an image that is sure knows no more than what was asked."""
        return {id: row for id, row in self._doubtful.items() if id not in self._newest or self._newest[id][0] < 0}

    @property
    def last(self) -> int:
        """An id that is not below any that was ever used."""
        known = max([0, *self._found, *self._doubtful, *self._said])
        if self._sequence is None or self._sequence < known:  # lost, or damaged
            return known + GAP if known else 0
        return self._sequence

    @property
    def losses(self) -> list[str]:
        rows, given_up = self.rows, sorted(self._unsettled)
        broken = {id for id in self._broken if self._sequence is None or id <= self._sequence}
        lost = sorted((self._said.keys() | broken) - rows.keys())
        sure = self._newest.keys() - self._unsettled.keys()
        late = sorted(id for id in self._said.keys() & sure if rows[id]["state"] not in self._said[id])
        unsure = sorted(id for id in sure if self._newest[id][0] < 0 and id not in self._said)
        told = [f"the task{'s' if lost[1:] else ''} {_shown(lost)}"] if lost else []
        told += [f"what became of the task {_shown(given_up)}: it is kept as dead"] if given_up else []
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


def last_of(task: int, mirror: int) -> int:
    """The last id by a stamp: of two that differ the higher, unless it is one that nobody reaches."""
    return max((last for last in (task, -1 - mirror) if last < FAR), default=0)


def _row(values: Sequence[Value]) -> dict[str, Value]:
    """By column. One of an older version gets the checksums that it would have, if its own fits."""
    if len(values) == len(COLUMNS):
        return dict(zip(COLUMNS, values, strict=True))
    row = dict(zip(BEFORE, values, strict=True)) | {"fate": BROKEN}
    id, queue, service, data = (row[name] for name in ("id", "queue", "service", "data"))
    texts = isinstance(queue, str) and isinstance(service, str) and isinstance(data, str | bytes)
    if not (texts and _makes_sense(row) and row["crc"] == before(id, queue, service, data)):  # type: ignore[arg-type]
        return row | {"crc": None}
    return row | {"crc": asked_of(row), "fate": fate_of(row)}


def is_whole(row: dict[str, Value]) -> bool:
    """Whether a row is what was put, and what was made of it."""
    return _makes_sense(row) and row["crc"] == asked_of(row) and row["fate"] == fate_of(row)


def _is_what_was_asked(row: dict[str, Value]) -> bool:
    return all(_fits(name, row[name]) for name in ASKED) and row["crc"] == asked_of(row)


def _given_up(row: dict[str, Value]) -> dict[str, Value]:
    """As one that is not tried any more: whether it has run is not known."""
    kept = {name: value if _fits(name, value) else _UNSET.get(name) for name, value in row.items()}
    kept |= {"state": "dead", "reason": "damaged", "history": None, "owner": None, "lease": None, "unwanted": 0}
    return kept | {"fate": fate_of(kept)}


def _makes_sense(row: dict[str, Value]) -> bool:
    if not (all(_fits(name, value) for name, value in row.items()) and isinstance(row["data"], str | bytes)):
        return False
    history = row["history"]
    try:
        _tries.decode(history if isinstance(history, str) else "[]")
    except msgspec.DecodeError:
        return False
    return True


def examine(connection: Connection) -> None:
    """Raise BrokenSeal unless every task is whole."""
    is_old = connection.execute("PRAGMA user_version").fetchone()[0] < SUMS_SINCE
    for values in connection.execute(f"SELECT {listed(BEFORE if is_old else COLUMNS)} FROM task"):
        if not is_whole(_row(values)):
            raise BrokenSeal(f"task {values[0]} is not what was put: its checksum or a column does not fit")


def insert(connection: Connection, rows: Iterable[dict[str, Value]], last: int) -> None:
    """Write them into a new file, in which no id up to `last` is used again."""
    places = ", ".join("?" * len(COLUMNS))
    command = f"INSERT INTO task ({listed(COLUMNS)}) VALUES ({places})"
    connection.executemany(command, (tuple(row[name] for name in COLUMNS) for row in rows))
    connection.execute(LAST, (last,))


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
    if name in SUMS:
        return isinstance(value, int)
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
