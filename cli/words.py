"""Times and lengths of time as people read them, and as JSON carries them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from typing import Any, cast

from raptor.moment import moment

TIMES = frozenset(
    {
        "now", "next_check", "current_since", "last_start", "last_end", "next_due", "retry_at", "planned", "last",
        "start", "end", "recorded", "at", "times", "due", "created", "started", "ended", "previous", "lease",
        "key_until", "oldest", "origin",
    }
)  # fmt: skip
"""Keys of answers whose values are moments."""

GIVEN = frozenset({"data", "output"})
"""Keys of answers whose values are somebody else's: whatever is in them stays as it is."""


def plain(text: object) -> str:
    """A text without anything that a terminal would obey."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def plain_lines(text: str) -> str:
    """The same for several lines, which stay lines."""
    return "\n".join(plain(line.replace("\t", "    ")) for line in text.splitlines())


def zone_of(name: str | None) -> tzinfo | None:
    """The zone to show times in; None is the machine's."""
    if name is None:
        return None
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def clock_time(at: float, zone: tzinfo | None = None) -> str:
    return moment(at, zone).strftime("%H:%M:%S")


def when(at: float | None, now: float, zone: tzinfo | None = None) -> str:
    """`23:55:12` today, `tomorrow 08:00`, `2026-11-18 02:30` otherwise."""
    if at is None or not math.isfinite(at):
        return "never"
    there, here = moment(at, zone), moment(now, zone)
    days = (there.date() - here.date()).days
    if days == 0:
        return there.strftime("%H:%M:%S")
    name = {1: "tomorrow", -1: "yesterday"}.get(days)
    seconds = ":%S" if there.second else ""
    return there.strftime(f"{name} %H:%M{seconds}" if name else f"%Y-%m-%d %H:%M{seconds}")


def rough(seconds: float) -> str:
    """`0.4 s`, `12 s`, `57 min`, `2h`, `1h 30m`, `3d`: exact enough to look at."""
    seconds = abs(seconds)
    if seconds < 0.95:
        return f"{seconds:.1f} s" if seconds >= 0.05 else f"{seconds * 1000:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60}h {minutes % 60}m" if minutes % 60 and minutes < 10 * 60 else f"{round(minutes / 60)}h"
    return f"{round(minutes / 1440)}d"


def took(seconds: float | None) -> str:
    """How long a run took."""
    if seconds is None:
        return "-"
    if seconds < 0.095:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 59.95 else rough(seconds)


def until(at: float | None, now: float, zone: tzinfo | None = None) -> str:
    """`23:55:12 (in 57 min)`, or `now`."""
    if at is None or not math.isfinite(at):
        return "never"
    return "now" if at <= now + 0.05 else f"{when(at, now, zone)} (in {rough(at - now)})"


def ago(at: float | None, now: float) -> str:
    return "-" if at is None else "just now" if now - at < 0.5 else f"{rough(now - at)} ago"


def rfc3339(at: float | None) -> str | None:
    if at is None or not math.isfinite(at):
        return None
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def public(value: Any, key: str = "") -> Any:
    """An answer for JSON: every moment in RFC 3339, UTC."""
    if key in GIVEN:
        return value
    if isinstance(value, dict):
        return {name: public(inner, name) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [public(inner, key) for inner in cast("list[Any]", value)]
    if key in TIMES and isinstance(value, int | float) and not isinstance(value, bool):
        return rfc3339(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
