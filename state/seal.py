"""Records as JSON that says whether it is whole: a checksum of table, key and text stands in its last field."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast
from zlib import crc32

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

TAIL = len(',"crc":"00000000"}')


class BrokenSeal(ValueError):
    """A record is not what was written."""


def seal(table: str, key: str, record: msgspec.Struct) -> str:
    body = msgspec.json.encode(record)
    # Infinity, for one, becomes null: what could not be read back is refused before it is written.
    if b"null" in body:
        _decoder(type(record)).decode(body)
    return f'{body[:-1].decode()},"crc":"{_crc(table, key, body):08x}"}}'


def unseal(table: str, key: object, text: object, kind: type[T]) -> T:
    if not (isinstance(key, str) and isinstance(text, str)):
        raise BrokenSeal(f"a row of {table} is not of text")
    raw = text.encode("utf-8", "surrogateescape")
    body = raw[:-TAIL] + b"}"
    if raw[-TAIL:] != b',"crc":"%08x"}' % _crc(table, key, body):
        raise BrokenSeal(f"the checksum of {table} {key!r} does not fit its text")
    try:
        return cast("T", _decoder(kind).decode(body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BrokenSeal(f"{table} {key!r} is not a {kind.__name__}: {error}") from error


def new_id() -> str:
    """A random id whose last eight digits check the others: a damaged one is not taken for somebody else's."""
    import secrets  # slow to import, and needed once in the life of a state

    text = secrets.token_hex(12)
    return f"{text}{crc32(text.encode()):08x}"


def is_id(text: str) -> bool:
    return len(text) == 32 and text[24:] == f"{crc32(text[:24].encode('utf-8', 'surrogateescape')):08x}"


def _crc(table: str, key: str, body: bytes) -> int:
    return crc32(body, crc32(f"{table}\0{key}\0".encode("utf-8", "surrogateescape")))


@cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
