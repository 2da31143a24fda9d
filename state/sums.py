"""Checksums of a task's row: of what was asked (`crc`), and of what became of it (`fate`). Pure.

Times that were asked for are added, not mixed in: a due time that moves changes the sum without the rest of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection
from struct import error, pack
from typing import Any, Final
from zlib import crc32

import msgspec

BROKEN: Final = -1  # stands where a checksum did not fit before its row was changed: no row has it by itself
MOST = 2**32
TICKS = 2.0**22  # in a second. From 2004 to 2038 any time is a whole number of them; others are read as they stand

# What each covers, in the order of its arguments.
ASKED = (
    "id", "queue", "service", "data", "priority", "due", "created", "max_attempts", "key", "key_until", "parent",
    "active_s", "timeout_s", "timing",
)  # fmt: skip
FATE = (
    "state", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect", "history",
    "fence", "owner", "lease", "unwanted",
)  # fmt: skip

NONSENSE = (TypeError, ValueError, OverflowError, error)  # what a column of another kind, or no text, leads to

_encode = msgspec.msgpack.Encoder().encode  # which tells bytes from texts, and floats from integers
FRESH = ("ready", 0, None, None, None, None, None, "", 0, 0, None, 0, None, None, 0)  # nothing has become of it
_NEW = crc32(_encode(FRESH))


def moment(at: float) -> int:
    """A number for a time, another one for any other."""
    return int(at * TICKS) if 2.0**30 <= at <= 2.0**31 else crc32(pack("<d", at))


def plain(
    id: int, queue: str, service: str, data: str | bytes, priority: int, max_attempts: int | None, wait: int
) -> int:
    """Of a task without the rarer columns, whose due time is so far from its creation."""
    # What it begins with: numbers that are nearly always small, and cost less so than as digits.
    first = priority if max_attempts is None else priority + 16 * (max_attempts + 1)
    if not 0 <= first < MOST:
        first = crc32(b"%d" % first)
    if isinstance(data, str):
        return crc32(f"{id}\0{queue}\0{service}\0{data}".encode("utf-8", "surrogateescape"), first) + wait
    # Its last character tells bytes from a text of the same bytes.
    head = f"{id}\0{queue}\0{service}\1".encode("utf-8", "surrogateescape")
    return crc32(data, crc32(head, first)) + wait


def asked(
    id: int, queue: str, service: str, data: str | bytes, priority: int, due: float, created: float,
    max_attempts: int | None, key: str | None, key_until: float | None, parent: int | None, active_s: float | None,
    timeout_s: float | None, timing: str | None,
) -> int | None:  # fmt: skip
    """None for what no row can hold that was put."""
    try:
        wait = moment(due) - moment(created)
        rare = (key, _real(key_until), parent, _real(active_s), _real(timeout_s), timing)
        more = 0 if rare == (None,) * 6 else crc32(_encode(rare))
        return plain(id, queue, service, data, priority, max_attempts, wait) + more
    except NONSENSE:
        return None


def fate(
    state: str, attempts: int, previous: float | None, started: float | None, ended: float | None, output: str | None,
    error: str | None, reason: str, deaths: int, suspect: int, history: str | None, fence: int, owner: str | None,
    lease: float | None, unwanted: int,
) -> int | None:  # fmt: skip
    """0 for a task that nothing has become of; None for what no row can hold that was written."""
    try:
        body = _encode((
            state, attempts, _real(previous), _real(started), _real(ended), output, error, reason, deaths,
            int(suspect), history, fence, owner, _real(lease), int(unwanted),
        ))  # fmt: skip
    except NONSENSE:
        return None
    return crc32(body) ^ _NEW


def asked_of(row: Mapping[str, Any]) -> int | None:
    return asked(*[row[name] for name in ASKED]) if isinstance(row["data"], str | bytes) else None


def fate_of(row: Mapping[str, Any]) -> int | None:
    return fate(*[row[name] for name in FATE])


def _real(value: float | None) -> float | None:
    """As the file gives it back."""
    return None if value is None else float(value)


def before(id: int, queue: str, service: str, data: str | bytes) -> int:
    """The one checksum that a row had until version 3."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    return crc32(raw, crc32(f"{id}\0{queue}\0{service}\0".encode("utf-8", "surrogateescape")))


def teach(connection: Connection) -> None:
    """What the script of version 4 asks for: both, of a row whose checksum until then is its last argument."""
    connection.create_function("task_asked", len(ASKED) + 2, _asked_before)
    connection.create_function("task_fate", len(FATE), _fate_before)


def _asked_before(id: int, queue: bytes, service: bytes, kind: str, data: bytes, *more: Any) -> int:
    """Texts come as bytes: SQLite gives a function none that are not whole. Of data `kind` says which it was."""
    *rest, crc = (_text(value) for value in more)
    line, name, content = _text(queue), _text(service), data if kind == "blob" else _text(data)
    if kind not in ("text", "blob") or crc != before(id, line, name, content):
        return BROKEN
    given = asked(id, line, name, content, *rest)
    return BROKEN if given is None else given


def _fate_before(*columns: Any) -> int:
    given = fate(*(_text(value) for value in columns))
    return BROKEN if given is None else given


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
