"""Points in time as people write them. Pure: `now` is handed in."""

from __future__ import annotations

from datetime import date, datetime, timedelta, tzinfo

from raptor.duration import seconds
from raptor.errors import BadInput

ACCEPTED = "write 02:30, yesterday 02:30, tomorrow 02:30, 2026-11-18 02:30, 2026-11-18T02:30:00Z, 2h ago or now"


def moment(at: float, zone: tzinfo | None = None) -> datetime:
    """A time in a zone; None is the machine's."""
    return datetime.fromtimestamp(at).astimezone() if zone is None else datetime.fromtimestamp(at, zone)


def read_moment(text: str, now: float, zone: tzinfo | None = None) -> float:
    """`02:30`, `yesterday 02:30`, `2026-11-18 02:30`, RFC 3339, `2h ago` or `now` -> seconds since the epoch."""
    words = text.strip().split()
    if words == ["now"]:
        return now
    if len(words) == 2 and words[1] == "ago":
        return now - seconds(words[0])
    today = moment(now, zone).date()
    days: dict[str, date] = {
        "today": today,
        "yesterday": today - timedelta(days=1),
        "tomorrow": today + timedelta(days=1),
    }
    if words and words[0] in days:
        words[0] = days[words[0]].isoformat()
    elif len(words) == 1 and ":" in words[0] and "-" not in words[0] and "T" not in words[0]:
        words.insert(0, today.isoformat())
    try:
        found = datetime.fromisoformat(" ".join(words))
        if found.tzinfo is None:
            # astimezone() of a naive time takes it for the machine's.
            found = found.replace(tzinfo=zone) if zone is not None else found.astimezone()
        at = found.timestamp()
        moment(at, zone)  # one that nobody could show is none
        return at
    except (ValueError, OverflowError):
        raise BadInput(f"time {text[:100]!r}: not understood; {ACCEPTED}") from None
