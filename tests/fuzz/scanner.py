"""Cron by brute force, independent of raptor.cron: walk every minute, look at the clock on the wall, match the fields.

An expression that names its hours runs at the first minute at which its wall time has been reached: so one in a gap
runs at the end of the gap, and one that comes twice runs at the first. One whose hours begin with `*` runs at every
minute whose wall time fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
NAMES = {
    name: number
    for names, first in (("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", 1), ("SUN MON TUE WED THU FRI SAT", 0))
    for number, name in enumerate(names.split(), first)
}


class Fields(NamedTuple):
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    last_day: bool  # L among the days
    nth: frozenset[tuple[int, int]]  # weekday#which
    either: bool  # both a day and a weekday are named: one is enough
    follows_real_time: bool

    def fits(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        weekday = wall.isoweekday() % 7
        day = wall.day in self.days or (self.last_day and (wall + timedelta(days=1)).day == 1)
        named = weekday in self.weekdays or (weekday, (wall.day + 6) // 7) in self.nth
        return day or named if self.either else day and named


def read(expression: str) -> Fields:
    fields = expression.upper().split()
    seconds = _values(fields.pop(0), 0, 59) if len(fields) == 6 else frozenset({0})
    minute, hour, day, month, weekday = fields
    days = [part for part in day.split(",") if part != "L"]
    weekdays = [part for part in weekday.split(",") if "#" not in part]
    nth = [part.split("#") for part in weekday.split(",") if "#" in part]
    return Fields(
        seconds=seconds,
        minutes=_values(minute, 0, 59),
        hours=_values(hour, 0, 23),
        days=_values(",".join(days), 1, 31),
        months=_values(month, 1, 12),
        weekdays=frozenset(number % 7 for number in _values(",".join(weekdays), 0, 7)),
        last_day="L" in day.split(","),
        nth=frozenset((_number(one) % 7, int(which)) for one, which in nth),
        either=not day.startswith("*") and not weekday.startswith("*"),
        follows_real_time=hour.startswith("*"),
    )


def _values(text: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = least if span == "*" else _number(low)
        last = most if span == "*" or (step and not high) else _number(high or low)
        found |= set(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


def walk(zone: ZoneInfo, since: int, until: int) -> list[tuple[int, datetime]]:
    """Every minute from `since` to before `until`, and what the clock on the wall shows at it."""
    begin = datetime.fromtimestamp(since, UTC)
    count = (until - since) // 60
    return [(since + 60 * n, (begin + n * MINUTE).astimezone(zone).replace(tzinfo=None)) for n in range(count)]


def times(fields: Fields, minutes: list[tuple[int, datetime]]) -> list[int]:
    return sorted(set(_real(fields, minutes) if fields.follows_real_time else _wall(fields, minutes)))


def _real(fields: Fields, minutes: list[tuple[int, datetime]]) -> Iterator[int]:
    for at, wall in minutes:
        if fields.fits(wall):
            yield from (at + second for second in fields.seconds)


def _wall(fields: Fields, minutes: list[tuple[int, datetime]]) -> Iterator[int]:
    reached = minutes[0][1] - MINUTE
    for at, wall in minutes:
        while reached + MINUTE < wall:  # a gap: never shown, and passed by now
            reached += MINUTE
            if fields.fits(reached):
                yield at
        if wall > reached:
            reached = wall
            if fields.fits(wall):
                yield from (at + second for second in fields.seconds)


def changes(zone: ZoneInfo, first: int = 2000, last: int = 2037) -> list[int]:
    """Every moment of these years at which the offset of the zone changes."""
    at, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (first, last + 1))
    found: list[int] = []
    before = offset(zone, at)
    while at < end:
        after = offset(zone, at + 86400)
        if after != before:
            low, high = at, at + 86400
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(zone, middle) == before else (low, middle)
            found.append(high)
            before = offset(zone, high)
            if before != after:  # two in one day
                at = high
                continue
        at += 86400
    return found


def offset(zone: ZoneInfo, at: int) -> float:
    shown = datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset()
    assert shown is not None
    return shown.total_seconds()
