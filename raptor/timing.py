"""When a service is due: intervals with their anchors, cron, any APScheduler trigger. Pure: `now` is handed in.

Slots are exact to the microsecond: sums are made of whole microseconds, since the float nearest to slot + 0.1 s is off
by a little each time, 30 s in a year.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from raptor.cron import Cron as Cron
from raptor.cron import check_cron, check_zone, normal_cron, parse_cron
from raptor.cron import explain as explain
from raptor.duration import LONGEST_S, seconds, show_seconds
from raptor.errors import BadInput
from raptor.rows import Scheduled

if TYPE_CHECKING:
    from raptor.service import Anchor, Service

__all__ = [
    "Cron",
    "Every",
    "Timing",
    "at",
    "check_cron",
    "check_name",
    "check_zone",
    "explain",
    "has_timing",
    "parse_cron",
    "parse_schedule",
    "seconds",
    "show_seconds",
    "timing_of",
]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_US = 1_000_000


class Timing(Protocol):
    """When the slots of a service are planned. A slot is in seconds since the epoch; `math.inf` is never."""

    @property
    def every_s(self) -> float | None:
        """The interval; None for a timing of the calendar."""
        ...

    def first(self, now: float) -> float:
        """The first slot of a service that never ran: now for an interval, else the first time at or after now."""
        ...

    def after(self, *, slot: float, end: float, origin: float) -> float:
        """The slot planned after a successful run of `slot` that ended at `end`; `origin` is the first of a grid."""
        ...

    def latest(self, planned: float, until: float) -> tuple[float, int]:
        """The last slot up to `until`, and how many there are from `planned` to it, both included; 0 if none."""
        ...

    def preview(self, now: float, n: int) -> list[float]:
        """The next `n` slots, as if each ran and ended at its time."""
        ...


class Every(msgspec.Struct, frozen=True):
    """An interval, counted from the slot, from the end of the run, or on the grid of the first slot."""

    every_s: float
    anchor: Anchor = "slot"

    def first(self, now: float) -> float:
        return now

    def after(self, *, slot: float, end: float, origin: float) -> float:
        step = _us(self.every_s)
        match self.anchor:
            case "slot":
                return (_us(slot) + step) / _US
            case "end":
                return (_us(end) + step) / _US
            case "grid":
                start = _us(origin)
                return (start + max(0, (_whole_us(end) - start) // step + 1) * step) / _US

    def latest(self, planned: float, until: float) -> tuple[float, int]:
        if planned > until:
            return planned, 0
        if self.anchor == "end":
            return planned, 1  # the next one is counted from the end of a run that has not been
        step = _us(self.every_s)
        more = max(0, (_whole_us(until) - _us(planned)) // step)
        return (_us(planned) + more * step) / _US if more else planned, more + 1

    def preview(self, now: float, n: int) -> list[float]:
        from raptor.trigger import interval_times  # APScheduler is slow to import

        return interval_times(self.every_s, now, n)


def has_timing(service: Service) -> bool:
    """Whether a service says itself when it runs."""
    return bool(service.every_s or service.cron or service.trigger)


def timing_of(service: Service, *, every_s: float | None, cron: str | None, interval_s: float | None) -> Timing:
    """The timing that holds: what `schedule` gave, else the service's own, else the scheduler's interval."""
    if every_s is not None and cron is not None:
        raise BadInput(f"service {service.name}: an interval and a cron expression; give one of them")
    if every_s is None and cron is None:
        if sum(given is not None for given in (service.every_s, service.cron, service.trigger)) > 1:
            raise BadInput(f"service {service.name}: give one of every, cron and trigger")
        if service.trigger is not None:
            from raptor.trigger import adapt  # APScheduler is slow to import

            return adapt(service.trigger)
        every_s, cron = service.every_s, service.cron
    if cron is not None:
        return parse_cron(cron, service.timezone)
    every_s = interval_s if every_s is None else every_s
    if every_s is None:
        raise BadInput(
            f"service {service.name}: nothing says when; give it every=, cron= or trigger=, "
            f"write {service.name}=24h in schedule, or give the scheduler an interval"
        )
    if not 0 < every_s <= LONGEST_S or _us(every_s) == 0:
        raise BadInput(f"service {service.name}: an interval of {every_s} s; between 1ms and 100 years is accepted")
    return Every(every_s, service.anchor)


def at(moment: float | datetime) -> Timing:
    """Once, at a moment: seconds since the epoch, or a datetime with its zone. A past one is due at once."""
    from raptor.trigger import once  # APScheduler is slow to import

    if isinstance(moment, datetime) and moment.tzinfo is None:
        raise BadInput(f"the time {moment.isoformat()} has no zone; write one such as {moment.isoformat()}+00:00")
    return once(moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC))


def parse_schedule(text: str) -> Scheduled:
    """`name`, `name=24h`, `name=cron 30 2 * * *` or `name=@daily`, as the command line has them."""
    name, given, when = text.partition("=")
    name, when = check_name(name.strip()), when.strip()
    if not given:
        return Scheduled(name=name)
    word, _, rest = when.partition(" ")
    if word == "cron" or when.startswith("@"):
        return Scheduled(name=name, cron=normal_cron(rest if word == "cron" else when))
    try:
        return Scheduled(name=name, every_s=seconds(when))
    except BadInput as error:
        raise BadInput(f"{name}: {error}; a cron expression is {name}='cron 30 2 * * *'") from None


def check_name(name: str) -> str:
    """The name, if it can be one of a service, a scheduler or a file."""
    if _NAME.fullmatch(name):
        return name
    raise BadInput(
        f"name {name[:100]!r}: a name has 1 to 100 of the letters a-z and A-Z, digits, '_', '-' and '.', "
        "and begins with a letter, a digit or '_'"
    )


def _us(s: float) -> int:
    return round(s * _US)


def _whole_us(s: float) -> int:
    """The last whole microsecond that is not after `s`, as floats compare."""
    us = _us(s)
    return us - 1 if us / _US > s else us
