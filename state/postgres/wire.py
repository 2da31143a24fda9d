"""Values as PostgreSQL's binary format has them: times in whole microseconds, and columns of many rows as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor
from struct import pack
from typing import Any

from psycopg.adapt import Dumper
from psycopg.pq import Format

from raptor.errors import BadInput

EPOCH = 946_684_800_000_000  # from 1970 to 2000, PostgreSQL's own, in microseconds
FIRST, LAST = -210_866_803_200_000_000, 9_224_318_016_000_000_000  # what a timestamptz holds, and a little less

INT2, INT4, INT8, FLOAT8, TEXT, BYTEA, TIME = 21, 23, 20, 701, 25, 17, 1184
ARRAYS = {INT2: 1005, INT4: 1007, INT8: 1016, FLOAT8: 1022, TEXT: 1009, BYTEA: 1001, TIME: 1185}
_FIXED = {INT2: "ih", INT4: "ii", INT8: "iq", FLOAT8: "id", TIME: "iq"}
_SIZES = {INT2: 2, INT4: 4, INT8: 8, FLOAT8: 8, TIME: 8}


def at(when: float) -> int:
    """The nearest microsecond: exact for a time that stands on one."""
    return _within(round(when * 1e6), when)


def not_before(when: float) -> int:
    """A due time: never earlier than it was asked for."""
    near = round(when * 1e6)
    return _within(near if near / 1e6 >= when else ceil(when * 1e6), when)


def reached(when: float) -> int:
    """A present: nothing is due that is not, not even by rounding."""
    near = round(when * 1e6)
    return _within(near if near / 1e6 <= when else floor(when * 1e6), when)


def seconds(micros: int) -> float:
    return (micros + EPOCH) / 1e6


def maybe(micros: int | None) -> float | None:
    return None if micros is None else (micros + EPOCH) / 1e6


def _within(micros: int, when: float) -> int:
    found = micros - EPOCH
    if not FIRST < found < LAST:
        raise BadInput(f"{when} is no time that PostgreSQL knows: give seconds since 1970")
    return found


class Time(int):
    """A timestamptz, from its microseconds."""


class Column:
    """An array, one element for each row."""

    __slots__ = ("of", "values")

    def __init__(self, of: int, values: Sequence[Any]) -> None:
        self.of = of
        self.values = values


def packed(of: int, values: Sequence[Any]) -> bytes:
    has_null = None in values
    head = pack(">iiiii", 1 if values else 0, int(has_null), of, len(values), 1)[: 20 if values else 12]
    if of in _FIXED and not has_null:
        flat: list[Any] = [_SIZES[of]] * (2 * len(values))
        flat[1::2] = values
        return head + pack(f">{_FIXED[of] * len(values)}", *flat)
    return head + b"".join(_elements(of, values))


def _elements(of: int, values: Iterable[Any]) -> Iterable[bytes]:
    code = f">{_FIXED[of]}" if of in _FIXED else ""
    for value in values:
        if value is None:
            yield b"\xff\xff\xff\xff"
        elif code:
            yield pack(code, _SIZES[of], value)
        else:
            body = value.encode() if isinstance(value, str) else value
            yield pack(">i", len(body))
            yield body


class TimeDumper(Dumper):
    oid = TIME
    format = Format.BINARY

    def dump(self, obj: Time) -> bytes:
        return pack(">q", obj)


class ColumnDumper(Dumper):
    format = Format.BINARY

    def __init__(self, cls: type, context: Any = None) -> None:
        super().__init__(cls, context)
        self.oid = 0

    def get_key(self, obj: Column, format: Any) -> Any:
        return (self.cls, obj.of)

    def upgrade(self, obj: Column, format: Any) -> Dumper:
        dumper = type(self)(self.cls)
        dumper.oid = ARRAYS[obj.of]
        return dumper

    def dump(self, obj: Column) -> bytes:
        return packed(obj.of, obj.values)
