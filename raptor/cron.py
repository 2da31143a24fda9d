"""Cron expressions in a time zone. cronsim knows the calendar; the changes of the clock are handled here.

An expression that names its hours means the clock on the wall: a time that does not exist runs at the first moment
after the gap, a time that exists twice runs once. One whose hours begin with `*` follows real time, so that an hourly
service has no hole and no extra run when the clock changes.
"""

from __future__ import annotations

import math
import os
import re
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import msgspec
from cronsim import CronSim, CronSimError

from raptor.errors import BadInput

ACCEPTED = (
    "write 5 fields (minute hour day month weekday), 6 with seconds first, or one of "
    "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually"
)
COUNTED = 100_000  # slots of a downtime that are counted one by one

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ONE_LONG = re.compile(r"\b(\w+)-\1/[0-9]+")  # 6-6/3 is 6, which cronsim takes for 6/3: 6, 9, 12, ...
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)
_DAY_S = 86400


class Cron(msgspec.Struct, frozen=True):
    """A cron timing. Its times are whole seconds since the epoch."""

    expression: str  # five or six fields
    timezone: zoneinfo.ZoneInfo

    @property
    def every_s(self) -> None:
        return None

    @property
    def zone(self) -> str:
        """The name of the time zone, for people."""
        return self.timezone.key

    def first(self, now: float) -> float:
        return next(self.times(math.ceil(now) - 1), math.inf)

    def after(self, *, slot: float, end: float, origin: float) -> float:
        return next(self.times(slot), math.inf)

    def latest(self, planned: float, until: float) -> tuple[float, int]:
        if planned > until:
            return planned, 0
        count = 1
        for _ in self.times(planned, until):
            count += 1
            if count == COUNTED:
                break
        return max(planned, self.last(until)), count

    def preview(self, now: float, n: int) -> list[float]:
        return list(islice(self.times(math.ceil(now) - 1), n))

    def times(self, after: float, until: float = math.inf) -> Iterator[float]:
        """Every time later than `after`, up to and with `until`."""
        start = math.floor(after)
        for at in self._real(start) if self._follows_real_time() else self._wall(start):
            if at > until:
                return
            yield float(at)

    def last(self, until: float) -> float:
        """The last time at or before `until`. There is one: what never comes is refused as an expression."""
        end = math.floor(until)
        return float(self._last_real(end) if self._follows_real_time() else self._last_wall(end))

    def _follows_real_time(self) -> bool:
        return self.expression.split()[-4].startswith("*")

    # cronsim is only given naive times. With a zone it skips fixed times of six fields in a gap and doubles them in a
    # fold, goes back in time when asked from inside a fold, and loses an hour at Lord Howe's half-hour change.

    def _wall(self, after: int) -> Iterator[int]:
        shown = datetime.fromtimestamp(after, self.timezone).replace(tzinfo=None)
        last = after
        for naive in CronSim(self.expression, shown):
            at = _instant(self.timezone, naive)
            if at > last:  # not behind us in a fold, nor a second one out of the same gap
                yield at
                last = at

    def _last_wall(self, until: int) -> int:
        shown = datetime.fromtimestamp(until, self.timezone)
        # In the second pass of a fold the whole first pass has been.
        rest = _ahead(shown.replace(fold=0)) - _ahead(shown)
        start = shown.replace(tzinfo=None) + timedelta(seconds=rest + 1)
        past = CronSim(self.expression, start, reverse=True)
        return next(at for at in (_instant(self.timezone, naive) for naive in past) if at <= until)

    def _real(self, after: int) -> Iterator[int]:
        begin = after + 1
        while True:  # one stretch between two changes of the clock
            offset = _offset(self.timezone, begin)
            clear, change = begin, None  # no change up to `clear`
            for naive in CronSim(self.expression, _EPOCH + timedelta(seconds=begin - 1 + offset)):
                at = _seconds(naive) - offset
                if change is None and at > clear:
                    change = _change(self.timezone, clear, at + _DAY_S)
                    clear = at + _DAY_S
                if change is not None and at >= change:
                    break
                yield at
            if change is None:
                return
            begin = change

    def _last_real(self, until: int) -> int:
        end = until
        while True:
            offset = _offset(self.timezone, end)
            start = _EPOCH + timedelta(seconds=end + 1 + offset)
            at = _seconds(next(CronSim(self.expression, start, reverse=True))) - offset
            change = _change(self.timezone, end, at)
            if change is None:
                return at
            end = change


def parse_cron(text: str, timezone: str | None = None) -> Cron:
    """The timing of a cron expression, in the named zone or the system's."""
    return Cron(normal_cron(text), system_zone() if timezone is None else zone_named(timezone))


def check_cron(text: object) -> None:
    """Refuse what is not a cron expression."""
    if not isinstance(text, str):
        raise BadInput(f"cron {text!r}: not a text; {ACCEPTED}")
    normal_cron(text)


def check_zone(name: object) -> None:
    """Refuse what is not the name of a time zone."""
    if not isinstance(name, str):
        raise BadInput(f"time zone {name!r}: not a text; write a name such as Europe/Sofia or UTC")
    zone_named(name)


def explain(text: str) -> str:
    """The expression in words: "At 02:30 every day"."""
    return CronSim(normal_cron(text), _EPOCH).explain()


@lru_cache(maxsize=4096)
def normal_cron(text: str) -> str:
    """The expression with its alias replaced; refused if it is wrong, or no date ever fits it."""
    shown = repr(text if len(text) <= 200 else f"{text[:40]}...")
    if len(text) > 200:
        raise BadInput(f"cron {shown}: too long; {ACCEPTED}")
    fields = " ".join(text.split())
    expression = _ONE_LONG.sub(r"\1", _ALIASES.get(fields.lower(), fields))
    if expression.startswith("@"):
        raise BadInput(f"cron {shown}: no such name; {ACCEPTED}")
    try:
        # Any start will do: cronsim looks 50 years ahead, more than the 28 in which weekdays and leap days repeat.
        found = next(CronSim(expression, datetime(2001, 1, 1)), None)
    except CronSimError as error:
        raise BadInput(f"cron {shown}: {str(error).lower()}; {ACCEPTED}") from None
    if found is None:
        raise BadInput(f"cron {shown}: no such date ever comes; {ACCEPTED}")
    return expression


def zone_named(name: str) -> zoneinfo.ZoneInfo:
    """The time zone, or a refusal with the names that are close."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; a path; a folder such as America
        import difflib  # only a mistake pays for it

        wanted, names = name[:100].lower(), _zones()
        close = dict.fromkeys(names[match] for match in difflib.get_close_matches(wanted, names, n=3))
        hint = f"did you mean {' or '.join(close)}?" if close else "write a name such as Europe/Sofia or UTC"
        raise BadInput(f"time zone {name[:100]!r}: no such zone; {hint}") from None


@cache
def _zones() -> dict[str, str]:
    """Zones by their name in lower case, and by that of their city alone. Finding them reads a tree of files."""
    known = {zone.lower(): zone for zone in sorted(zoneinfo.available_timezones())}
    return known | {zone.rpartition("/")[2]: known[zone] for zone in known if "/" in zone}


def system_zone() -> zoneinfo.ZoneInfo:
    """The zone that the machine is set to."""
    import tzlocal  # slow to import, and needed only here

    try:
        if os.environ.get("TZ"):
            return tzlocal.get_localzone()
        # Not get_localzone here: it compares with the clock, and warns where no zone is set.
        name = tzlocal.get_localzone_name()
        if name:
            return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadInput(f"the system's time zone: {error}; set TZ to a name such as Europe/Sofia") from error
    copied = Path("/etc/localtime")
    if not copied.exists():
        return zoneinfo.ZoneInfo("UTC")
    with copied.open("rb") as rules:
        return zoneinfo.ZoneInfo.from_file(rules, key="local")


def _seconds(naive: datetime) -> int:
    return (naive - _EPOCH) // _SECOND


def _offset(zone: zoneinfo.ZoneInfo, at: int) -> int:
    return _seconds(datetime.fromtimestamp(at, zone).replace(tzinfo=None)) - at


def _ahead(shown: datetime) -> int:
    """Seconds before those of UTC."""
    offset = shown.utcoffset()
    assert offset is not None
    return offset // _SECOND


def _instant(zone: zoneinfo.ZoneInfo, naive: datetime) -> int:
    """When the clock on the wall first shows this, or the end of the gap that it falls in."""
    shown = naive.replace(tzinfo=zone)
    before, after = _ahead(shown), _ahead(shown.replace(fold=1))
    at = _seconds(naive) - before
    if after <= before:
        return at
    end = _change(zone, _seconds(naive) - after, at)
    return at if end is None else end


def _change(zone: zoneinfo.ZoneInfo, near: int, far: int) -> int | None:
    """On the way from `near` to `far`, forwards or back, the first second with another offset."""
    offset = _offset(zone, near)
    while near != far:
        step = max(-_DAY_S, min(far - near, _DAY_S))
        if _offset(zone, near + step) != offset:
            same, other = near, near + step
            while abs(other - same) > 1:
                middle = (same + other) // 2
                same, other = (middle, other) if _offset(zone, middle) == offset else (same, middle)
            return other
        near += step
    return None
