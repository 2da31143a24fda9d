"""How a queue is set, as it is written. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from raptor.duration import seconds
from raptor.errors import BadInput, did_you_mean
from raptor.rows import Line

COUNTS = ("processors", "concurrency", "batch_size")
SETTINGS = ("paused", "note", *COUNTS, "rate", "lease", "max_attempts")
UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def set_line(line: Line, written: Mapping[str, Any]) -> Line:
    """The queue with some of its settings changed; "none" takes a limit away."""
    fields: dict[str, Any] = {}
    for name, value in written.items():
        if name not in SETTINGS:
            advice = did_you_mean(name, SETTINGS) or f"the settings are {', '.join(SETTINGS)}"
            raise BadInput(f"{name}: no such setting: {advice}")
        fields |= _field(name, None if value == "none" else value)
    return msgspec.structs.replace(line, **fields)


def _field(name: str, value: Any) -> dict[str, Any]:
    match name, value:
        case "paused", bool():
            return {name: value}
        case "note", str():
            return {name: value[:200]}
        case "rate", None:
            return {"rate": None}
        case "rate", str():
            return _rate(value)
        case "lease", str():
            return {"lease_s": _lease(value)}
        case "max_attempts", "unlimited":
            return {name: None}
        case (("processors" | "concurrency"), None):
            return {name: None}
        case _ if name in (*COUNTS, "max_attempts") and _is_count(value):
            return {name: value}
        case _:
            pass
    accepted = {
        "paused": "true or false",
        "note": "a text",
        "rate": 'so many starts in a time, such as "100/s" or "5/10min", or "none"',
        "lease": 'a duration such as "60s"',
        "max_attempts": 'a whole number from 1, or "unlimited"',
    }
    raise BadInput(f"{name}: {accepted.get(name, 'a whole number from 1')}, not {value!r}")


def _rate(text: str) -> dict[str, Any]:
    count, slash, span = text.partition("/")
    digits = span.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = span[len(digits) :].strip()
    try:
        if not slash or unit not in UNITS or int(count) < 1:
            raise ValueError
        per_s = (float(digits) if digits.strip() else 1.0) * UNITS[unit]
        if not 0 < per_s < math.inf:
            raise ValueError
    except ValueError:
        raise BadInput(f'rate: so many starts in a time, such as "100/s" or "5/10min", not {text!r}') from None
    return {"rate": int(count), "per_s": per_s}


def _lease(text: str) -> float:
    lease_s = seconds(text)
    if lease_s < 0.1:
        raise BadInput(f"lease: 100ms at least, not {text!r}")
    return lease_s


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
