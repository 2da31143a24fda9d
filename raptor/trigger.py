"""APScheduler's triggers as timings, and cron as one of its triggers.

Imported only where a trigger is used: APScheduler takes longer to import than `raptor status` may take to answer.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
from apscheduler.triggers.base import BaseTrigger  # type: ignore[import-untyped]
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger  # type: ignore[import-untyped]
from apscheduler.triggers.combining import AndTrigger, OrTrigger  # type: ignore[import-untyped]
from apscheduler.triggers.date import DateTrigger  # type: ignore[import-untyped]
from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-untyped]

from raptor.cron import COUNTED, Cron, parse_cron
from raptor.errors import BadInput

_TICK = timedelta(microseconds=1)
_AGREEING = 10_000  # tries of an AndTrigger, and
_PATIENCE = timedelta(days=50 * 366)  # how far it looks


class CronTrigger(BaseTrigger):  # type: ignore[misc]
    """Cron for APScheduler: its own puts Monday at 0, joins day and weekday with AND, and trips over clock changes."""

    __slots__ = ("cron",)

    def __init__(self, expression: str, timezone: str | None = None) -> None:
        self.cron = parse_cron(expression, timezone)

    def get_next_fire_time(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, previous_fire_time: datetime | None, now: datetime
    ) -> datetime | None:
        if previous_fire_time is None:
            at = self.cron.first(now.timestamp())
        else:
            at = next(self.cron.times(previous_fire_time.timestamp()), math.inf)
        return None if at == math.inf else datetime.fromtimestamp(at, self.cron.timezone)

    def __repr__(self) -> str:
        return f"CronTrigger({self.cron.expression!r}, {self.cron.zone!r})"


class Calendar(msgspec.Struct, frozen=True):
    """The times of an APScheduler trigger; one that has ended is never due."""

    trigger: Any

    @property
    def every_s(self) -> None:
        return None

    @property
    def zone(self) -> str | None:
        """The name of the time zone, if the trigger has one."""
        zone = getattr(self.trigger, "timezone", None)
        return None if zone is None else str(zone)

    def first(self, now: float) -> float:
        return next(self._times(None, now), math.inf)

    def after(self, *, slot: float, end: float, origin: float) -> float:
        return next(self._times(slot, slot), math.inf)

    def latest(self, planned: float, until: float) -> tuple[float, int]:
        if planned > until:
            return planned, 0
        last, count = planned, 1
        for at in islice(self._times(planned, planned), COUNTED - 1):
            if at > until:
                break
            last, count = at, count + 1
        return last, count

    def preview(self, now: float, n: int) -> list[float]:
        return list(islice(self._times(None, now), n))

    def _times(self, previous: float | None, now: float) -> Iterator[float]:
        before = None if previous is None else datetime.fromtimestamp(previous, UTC)
        return (at.timestamp() for at in _fires(self.trigger, before, datetime.fromtimestamp(now, UTC)))


def adapt(trigger: Any) -> Cron | Calendar:
    """A timing out of `@service(trigger=...)`."""
    if isinstance(trigger, CronTrigger):
        return trigger.cron
    _check(trigger)
    return Calendar(trigger)


def once(moment: datetime) -> Calendar:
    return Calendar(DateTrigger(moment, timezone=UTC))


def interval_times(every_s: float, now: float, n: int) -> list[float]:
    """The next `n` times of an interval that begins now."""
    start = datetime.fromtimestamp(now, UTC)
    length: Any = every_s  # a fraction is fine, whatever the type checkers make of its default
    return Calendar(IntervalTrigger(seconds=length, start_date=start, timezone=UTC)).preview(now, n)


def _check(trigger: Any) -> None:
    if not callable(getattr(trigger, "get_next_fire_time", None)):
        raise BadInput(f"trigger {trigger!r}: not an APScheduler trigger; it has no get_next_fire_time")
    if getattr(trigger, "jitter", None):
        raise BadInput(f"trigger {trigger}: its times are random; give jitter to the service instead")
    for inner in getattr(trigger, "triggers", ()):
        _check(inner)
        if isinstance(trigger, AndTrigger) and _has_interval(inner):
            raise BadInput(f"trigger {trigger}: an interval hardly ever meets another time; use cron in its place")


def _has_interval(trigger: Any) -> bool:
    return isinstance(trigger, IntervalTrigger) or any(map(_has_interval, getattr(trigger, "triggers", ())))


def _fires(trigger: Any, previous: datetime | None, now: datetime) -> Iterator[datetime]:
    """Times in UTC, rising: later than `previous`, or at or after `now` if there is none."""
    # In UTC, because datetimes of one zone are compared by the clock on the wall, wrongly in a fold.
    since = now if previous is None else previous + _TICK
    inner: list[Any] = list(getattr(trigger, "triggers", ()))
    match trigger:
        case OrTrigger():
            return _distinct(heapq.merge(*(_fires(each, previous, now) for each in inner)))
        case AndTrigger():
            return _agreed(inner, since)
        case DateTrigger():
            # With no run before it, its time holds although it is past: due at once.
            return (at for at in _chain(trigger, None, now) if previous is None or at > previous)
        case CalendarIntervalTrigger():
            # It begins at its start date, however long ago, and counts on from a time of its own.
            return (at for at in _chain(trigger, None, since) if at >= since)
        case IntervalTrigger():
            return _grid(trigger, since)
        case _:
            return _chain(trigger, previous, since)


def _chain(trigger: Any, previous: datetime | None, now: datetime) -> Iterator[datetime]:
    while (fire := trigger.get_next_fire_time(previous, now)) is not None:
        at = fire.astimezone(UTC)
        if previous is not None and at <= previous.astimezone(UTC):
            return  # it would stand still for ever
        yield at
        previous, now = fire, max(now, at + _TICK)


def _grid(trigger: Any, since: datetime) -> Iterator[datetime]:
    """The times of an IntervalTrigger: its own, also when the time before was another trigger's."""
    # Not asked of it: it divides floats, and skips a time of its own when `since` is just that.
    start, step = trigger.start_date.astimezone(UTC), trigger.interval
    at = start + max(0, -((start - since) // step)) * step
    while trigger.end_date is None or at <= trigger.end_date:
        yield at
        at += step


def _agreed(triggers: list[Any], since: datetime) -> Iterator[datetime]:
    # AndTrigger itself looks for ever where its triggers never agree.
    tries, horizon = _AGREEING, since + _PATIENCE
    while tries and since < horizon:
        found = [next(_fires(inner, since - _TICK, since), None) for inner in triggers]
        times = [at for at in found if at is not None]
        if not times or len(times) < len(found):
            return
        if min(times) == max(times):
            yield times[0]
            tries, horizon = _AGREEING, times[0] + _PATIENCE
            since = times[0] + _TICK
        else:
            tries, since = tries - 1, max(times)


def _distinct(times: Iterator[datetime]) -> Iterator[datetime]:
    last = None
    for at in times:
        if at != last:
            yield at
        last = at
