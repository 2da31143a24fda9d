"""Lengths of time as people write them: `90s`, `1h30m`, `500ms`, `PT1H30M`, and back."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from raptor.errors import BadInput

ACCEPTED = "write 500ms, 90s, 1h30m, 1d, 2w or PT1H30M"
LONGEST_S = 36525 * 86400.0  # 100 years
SHORTEST_S = 0.001

_UNITS = {
    "w": Decimal(604800),
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_BARE = re.compile(rf"[+-]?(?:{_NUMBER}|\.[0-9]+)")
_PART = re.compile(rf"({_NUMBER}) ?([a-zA-Zµ]+) *")
_ISO = re.compile(
    rf"P(?:(?P<w>{_NUMBER})W|(?:(?P<d>{_NUMBER})D)?"
    rf"(?:T(?=.)(?:(?P<h>{_NUMBER})H)?(?:(?P<m>{_NUMBER})M)?(?:(?P<s>{_NUMBER})S)?)?)(?<=[WDHMS])"
)


def seconds(value: str | timedelta) -> float:
    """The length in seconds, to the microsecond. A bare number is refused: nobody knows its unit."""
    if isinstance(value, timedelta):
        return _in_range(value.total_seconds(), str(value))
    if not isinstance(value, str):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        raise _no_unit(str(value)) if number else _bad(repr(value), "not a duration")
    text = value.strip()
    if len(text) > 64:
        raise _bad(f"{text[:20]!r}...", "too long to be a duration")
    if not text:
        raise _bad(repr(value), "empty")
    if _BARE.fullmatch(text):
        raise _no_unit(text)
    if text[0] in "+-":
        raise _bad(repr(text), "a duration has no sign")
    parts = _iso_parts(text) if text[0] in "Pp" else _parts(text)
    if any(number != number.to_integral_value() for _, number in parts[:-1]):
        raise _bad(repr(text), "only its last part may have decimals")
    total = sum((number * _UNITS[unit] for unit, number in parts), Decimal())
    return _in_range(round(float(total), 6), repr(text))


def show_seconds(s: float) -> str:
    """The shortest form that `seconds` reads back: days from two up, so that 24h stays 24h."""
    if not math.isfinite(s):
        return "never"
    us = round(abs(s) * 1_000_000)
    sign = "-" if s < 0 and us else ""
    if 0 < us < 1_000_000:
        return f"{sign}{_decimal(us, 1_000)}ms"
    whole, rest = divmod(us, 60_000_000)
    hours, minutes = divmod(whole, 60)
    days, hours = divmod(hours, 24) if hours >= 48 else (0, hours)
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m")) if n]
    if rest or not parts:
        parts.append(f"{_decimal(rest, 1_000_000)}s")
    return sign + "".join(parts)


def _decimal(n: int, unit: int) -> str:
    whole, rest = divmod(n, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _parts(text: str) -> list[tuple[str, Decimal]]:
    parts: list[tuple[str, Decimal]] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            raise _bad(repr(text), "not a duration")
        number, unit = found.groups()
        if unit not in _UNITS:
            raise _bad(repr(text), f"unknown unit {unit!r}; the units are w, d, h, m, s and ms")
        if any(unit == known for known, _ in parts):
            raise _bad(repr(text), f"the unit {unit!r} is there twice")
        parts.append((unit, Decimal(number)))
        at = found.end()
    return parts


def _iso_parts(text: str) -> list[tuple[str, Decimal]]:
    found = _ISO.fullmatch(text.upper())
    if found is None:
        calendar = re.match(r"P[0-9.]+[YM]", text.upper())
        raise _bad(repr(text), "a year or a month has no fixed length" if calendar else "not an ISO 8601 duration")
    return [(unit, Decimal(number)) for unit, number in found.groupdict().items() if number is not None]


def _in_range(s: float, shown: str) -> float:
    if s <= 0:
        raise _bad(shown, "a duration is more than zero")
    if s < SHORTEST_S:
        raise _bad(shown, "shorter than 1ms")
    if s > LONGEST_S:
        raise _bad(shown, "longer than 100 years")
    return s


def _no_unit(text: str) -> BadInput:
    return BadInput(f"duration {text}: a number without a unit; did you mean {text}s or {text}ms?")


def _bad(shown: str, problem: str) -> BadInput:
    return BadInput(f"duration {shown}: {problem}; {ACCEPTED}")
