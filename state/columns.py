"""The columns of a task in raptor.sqlite: whole rows, whether their checksums fit, and records made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from sqlite3 import Connection
from types import NoneType
from typing import Any

import msgspec

from raptor.state.seal import BrokenSeal
from raptor.state.sums import ASKED, BROKEN, FATE, FRESH, asked, asked_of, fate, fate_of
from raptor.task import PENDING, State, Task, Try

STATES: Mapping[object, State] = {state.value: state for state in State}
FIELDS = Task.__struct_fields__
ALL = (*FIELDS, "crc", "fate")  # in the order of the schema
SUMS_SINCE = 4  # the version of raptor.sqlite whose rows have both checksums
CRC, SUM_OF_FATE = len(FIELDS), len(FIELDS) + 1
DATA = FIELDS.index("data")

# What each may hold, besides the id, and the data, which are text or bytes.
TEXTS = {"queue", "service", "state", "reason"}
NUMBERS = {"due", "created"}
COUNTS = {"priority", "attempts", "fence", "deaths", "suspect", "unwanted"}
SUMS = {"crc", "fate"}
MAYBE_TEXTS = {"key", "timing", "output", "error", "history", "owner"}
MAYBE_NUMBERS = {"key_until", "active_s", "timeout_s", "started", "previous", "ended", "lease"}
MAYBE_COUNTS = {"max_attempts", "parent"}
_KINDS: list[tuple[set[str], tuple[type, ...], Any]] = [
    (TEXTS, (str,), ""), (NUMBERS, (float, int), 0.0), (COUNTS, (int,), 0), (SUMS, (int,), BROKEN),
    (MAYBE_TEXTS, (str, NoneType), None), (MAYBE_NUMBERS, (float, int, NoneType), None),
    (MAYBE_COUNTS, (int, NoneType), None), ({"data"}, (str, bytes), "null"),
]  # fmt: skip
KINDS = {name: (kind, blank) for names, kind, blank in _KINDS for name in names}

_tries = msgspec.json.Decoder(tuple[Try, ...])
_asked = itemgetter(*map(ALL.index, ASKED))
_became = itemgetter(*map(ALL.index, FATE))


def listed(names: Iterable[str], end: str = "") -> str:
    return ", ".join(f'"{name}"{end}' for name in names)


def as_list(ids: Iterable[int]) -> str:
    """As one argument: of others SQLite takes only so many."""
    return msgspec.json.encode([*ids]).decode()


BY_ID = f"SELECT {listed(ALL)} FROM task WHERE id IN (SELECT value FROM json_each(?))"


def whole_rows(connection: Connection, ids: Iterable[int]) -> list[Sequence[Any]]:
    return connection.execute(BY_ID, (as_list(ids),)).fetchall()


def by_name(row: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(ALL, row, strict=True))


def is_sealed(row: Sequence[Any]) -> bool:
    """Whether both checksums fit."""
    if not isinstance(row[DATA], str | bytes) or row[CRC] != asked(*_asked(row)):
        return False
    became = _became(row)
    return bool(row[SUM_OF_FATE] == (0 if became == FRESH else fate(*became)))


def nonsense(row: Sequence[Any]) -> dict[str, Any]:
    """Columns that hold what SQLite lets nobody store, each with what may stand there instead."""
    found = zip(ALL, row, strict=True)
    return {name: KINDS[name][1] for name, value in found if name != "id" and not isinstance(value, KINDS[name][0])}


def sealed(row: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The row with some of its columns changed. A checksum that did not fit before does not fit then."""
    new = {**row, **changes}
    new["crc"] = asked_of(new) if row["crc"] == asked_of(row) else BROKEN
    new["fate"] = fate_of(new) if row["fate"] == fate_of(row) else BROKEN
    return new


def as_task(row: Sequence[Any], *, fits: bool, **changes: Any) -> Task:
    """As a record; one that does not fit its checksums says so."""
    fields = dict(zip(FIELDS, row, strict=False)) | changes
    if not fits:
        fields |= {name: blank for name, blank in nonsense(row).items() if name in fields and name not in changes}
    state = STATES.get(fields["state"])
    if state is None:
        raise BrokenSeal(f"task {fields['id']} is in no state that there is: {fields['state']!r}")
    fields["state"] = state
    tries = history(fields["history"])
    fields["history"] = tries or ()
    fields["suspect"], fields["unwanted"] = bool(fields["suspect"]), bool(fields["unwanted"])
    damaged = not fits or tries is None
    if damaged and (state in PENDING or not fields["reason"]):  # one that was set aside has its own
        fields["reason"] = "damaged"
    return Task(**fields)


def history(text: str | None) -> tuple[Try, ...] | None:
    """None for one that is damaged."""
    try:
        return _tries.decode(text) if text else ()
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
