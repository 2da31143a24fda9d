"""Which services may run at a check, and what becomes of the slots that will not: pure decisions.

A check is a planned moment at which a scheduler looks. What it finds due runs after one another.
"""

from __future__ import annotations

import msgspec

from raptor.rows import ServiceTiming
from raptor.service import Service
from raptor.task import Slot
from raptor.timing import Every, Timing, show_seconds

LONGEST_RETRY_S = 3600.0
DAY_S = 86400.0
NEVER = 253_370_764_800.0  # the year 9999: a trigger that has ended
EXACT_S = 2.0**31  # up to here, the year 2038, a float tells microseconds apart with a quarter of one to spare


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """When a scheduler looks, and what it knows then."""

    scheduler: str
    at: float  # the planned time
    now: float
    up_since: float  # slots before it were missed because nobody was there
    retries_only: bool = False  # between two checks: only what failed is tried again
    exact: bool = False  # it looks when something is due, not by a beat of its own


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """A service that may run now."""

    service: Service
    planned: float  # the slot it runs for
    slot: float  # what the next slot is counted from
    attempt: int
    reason: str
    closed: tuple[Slot, ...] = ()  # slots that this run leaves behind


class NotDue(msgspec.Struct, frozen=True, kw_only=True):
    """A service that may not, yet."""

    service: Service
    until: float  # when it may
    reason: str
    row: ServiceTiming | None = None  # to be saved: its plan has changed
    closed: tuple[Slot, ...] = ()


def decide(service: Service, timing: Timing, row: ServiceTiming | None, check: Check) -> Due | NotDue:
    """Whether a service runs at this check, for which slot, and why."""
    if row is None:
        return _first(service, timing, check)
    row = clamp(row, timing, check.now)
    gate = row.next_due if row.retry_at is None else row.retry_at
    if gate > check.at or (check.retries_only and row.open is None):
        why = "retries" if row.open is not None else "first run" if row.last_run_timestamp is None else "runs"
        return NotDue(service=service, until=gate, reason=f"{why} in {_wait(gate - check.now)}")
    return _found(service, timing, row, check)


def next_due(service: Service, timing: Timing, row: ServiceTiming | None, now: float) -> float:
    """When a service may run next."""
    if row is None:
        return timing.first(now)
    row = clamp(row, timing, now)
    return row.next_due if row.retry_at is None else row.retry_at


def clamp(row: ServiceTiming, timing: Timing, now: float) -> ServiceTiming:
    """A row from the future, after the clock was set back, must not freeze the service: as if it had run just now.

    The answer is to be saved, since by the next look now is another. A row that is right is given back itself.
    """
    changes: dict[str, float] = {}
    if _is_ahead(row, timing, now):
        ran = reached(now)
        origin = ran if row.origin is None else min(row.origin, ran)
        soonest = rounded(timing.after(slot=ran, end=ran, origin=origin))
        if soonest < row.next_due:
            changes = {"next_due": soonest, "origin": origin} | ({} if row.slot is None else {"slot": ran})
    if row.retry_at is not None and row.retry_at > now + LONGEST_RETRY_S:
        changes["retry_at"] = now + LONGEST_RETRY_S
    return msgspec.structs.replace(row, **changes) if changes else row


def _is_ahead(row: ServiceTiming, timing: Timing, now: float) -> bool:
    if timing.every_s is None and row.failures and row.open is None and row.next_due > now:
        # It gave a slot up, and which one is not in its row: no more than one slot is to be lost.
        first = rounded(timing.after(slot=now, end=now, origin=now))
        return row.next_due > first and row.next_due > rounded(timing.after(slot=first, end=first, origin=first))
    if row.slot is None:  # it never succeeded; a plan that is not far off needs no second look
        return row.next_due - now > (DAY_S if timing.every_s is None else timing.every_s)
    if timing.every_s is None:  # a slot that has been is not repeated, if only it costs no more than one
        return row.slot - now > row.next_due - row.slot
    return row.slot > now


def rounded(at: float) -> float:
    """Planned times stand on whole microseconds, so that sums of intervals meet; JSON has no infinity."""
    if at < EXACT_S:
        return round(at * 1e6) / 1e6  # a tenth of what the next line takes
    return round(min(at, NEVER), 6)


def reached(now: float) -> float:
    """The last whole microsecond that is not after now: nothing is early, not even by rounding."""
    at = rounded(now)
    return at if at <= now else rounded(at - 1e-6)


def _before(at: float) -> float:
    """The last whole microsecond before that, where a slot may stand."""
    last = rounded(at)
    return last if last < at else rounded(last - 1e-6)


def skip(service: Service, timing: Timing, row: ServiceTiming, check: Check, reason: str) -> NotDue:
    """Close every slot up to the check without a run, and plan the next."""
    planned = _pending(row)
    if planned > check.at:
        return NotDue(service=service, until=row.next_due, reason=reason)
    last, count = timing.latest(planned, check.at)
    after = rounded(timing.after(slot=last, end=check.at, origin=row.origin if row.origin is not None else last))
    changed = msgspec.structs.replace(row, next_due=after, open=None, attempts=0, retry_at=None)
    closed = _range(service, check, planned, last, count, "skipped", reason)
    return NotDue(service=service, until=after, reason=reason, row=changed, closed=(closed,))


def _first(service: Service, timing: Timing, check: Check) -> Due | NotDue:
    first = rounded(timing.first(check.at))
    if first <= check.at and not check.retries_only:
        return Due(service=service, planned=first, slot=first, attempt=1, reason="first run")
    row = ServiceTiming(interval_seconds=timing.every_s, next_due=first)
    return NotDue(service=service, until=first, reason=f"first run in {_wait(first - check.now)}", row=row)


def _found(service: Service, timing: Timing, row: ServiceTiming, check: Check) -> Due | NotDue:
    planned = _pending(row)
    last, count = timing.latest(planned, check.at) if planned <= check.at else (planned, 1)
    if row.open is None and service.overlap == "skip" and _ran_over(row, planned):
        assert row.last_end is not None
        behind = timing.latest(planned, min(_before(row.last_end), check.at))
        return _passed_by(service, timing, row, check, behind, "skipped", "overlap")
    if row.open is None and planned < check.up_since:
        behind = timing.latest(planned, min(_before(check.up_since), check.at))
        if service.missed == "skip":
            return _passed_by(service, timing, row, check, behind, "missed", "node down")
        if service.missed == "all" and count > 1:
            return _catch_up(service, timing, row, check, behind[1])
    if row.open is not None and planned < check.up_since and service.missed == "all" and count > 1:
        return _caught_up_again(service, timing, row, check, last)
    if count > 1:
        return _coalesced(service, timing, row, check, last, count)
    if row.open is not None:
        return _another_try(service, row, planned)
    slot = _anchor(timing, check, planned)
    return Due(service=service, planned=planned, slot=slot, attempt=1, reason=_since(row, timing, check))


def _another_try(service: Service, row: ServiceTiming, planned: float) -> Due:
    """It does not move its slot."""
    attempt = row.attempts + 1
    return Due(service=service, planned=planned, slot=planned, attempt=attempt, reason=f"attempt {attempt}")


def _caught_up_again(service: Service, timing: Timing, row: ServiceTiming, check: Check, last: float) -> Due | NotDue:
    """A missed slot that failed is tried until the next slot of all comes; then the next missed one has its turn."""
    planned = _pending(row)
    if row.last_start is None or last <= row.last_start:
        return _another_try(service, row, planned)
    closed = _range(service, check, planned, planned, 1, "failed", row.last_info)
    after = rounded(timing.after(slot=planned, end=planned, origin=row.origin or planned))
    found = _found(service, timing, msgspec.structs.replace(row, next_due=after, open=None, retry_at=None), check)
    return msgspec.structs.replace(found, closed=(closed, *found.closed))


def _coalesced(
    service: Service, timing: Timing, row: ServiceTiming, check: Check, last: float, count: int
) -> Due | NotDue:
    """Several slots, one run: for the last of them."""
    planned = _pending(row)
    closed: list[Slot] = []
    if row.open is not None:  # the tries for it end here: its successor has come
        closed.append(_range(service, check, planned, planned, 1, "failed", row.last_info))
        planned, count = rounded(timing.after(slot=planned, end=planned, origin=row.origin or planned)), count - 1
    if count > 1:
        closed += _left_behind(service, timing, check, planned, last, count - 1)
    return Due(
        service=service,
        planned=last,
        slot=_anchor(timing, check, last),
        attempt=1,
        reason=_since(row, timing, check),
        closed=tuple(closed),
    )


def _left_behind(service: Service, timing: Timing, check: Check, planned: float, last: float, count: int) -> list[Slot]:
    """The slots before the one that runs: missed while nobody was there, coalesced afterwards."""
    before_last = timing.latest(planned, _before(last))[0]
    if planned >= check.up_since:
        return [_range(service, check, planned, before_last, count, "coalesced", "one run for all")]
    if before_last < check.up_since:
        return [_range(service, check, planned, before_last, count, "missed", "node down")]
    while_down, missed = timing.latest(planned, _before(check.up_since))
    resumed = rounded(timing.after(slot=while_down, end=while_down, origin=while_down))
    return [
        _range(service, check, planned, while_down, missed, "missed", "node down"),
        _range(service, check, resumed, before_last, count - missed, "coalesced", "one run for all"),
    ]


def _ran_over(row: ServiceTiming, planned: float) -> bool:
    """Whether the last run still went on when the slot came."""
    return row.last_start is not None and row.last_end is not None and row.last_start < planned < row.last_end


def _passed_by(
    service: Service,
    timing: Timing,
    row: ServiceTiming,
    check: Check,
    behind: tuple[float, int],
    verdict: str,
    reason: str,
) -> Due | NotDue:
    """Close the slots up to `behind` without a run, then look at those after it."""
    last, count = behind
    closed = _range(service, check, row.next_due, last, count, verdict, reason)
    end = check.at if isinstance(timing, Every) and timing.anchor == "end" else last
    after = rounded(timing.after(slot=last, end=end, origin=row.origin if row.origin is not None else last))
    changed = msgspec.structs.replace(row, next_due=after, retry_at=None)
    if after > check.at:
        told = f"{reason}: runs in {_wait(after - check.now)}"
        return NotDue(service=service, until=after, reason=told, row=changed, closed=(closed,))
    found = _found(service, timing, changed, check)
    return msgspec.structs.replace(found, closed=(closed, *found.closed))


def _catch_up(service: Service, timing: Timing, row: ServiceTiming, check: Check, count: int) -> Due:
    """missed = "all": one run for each of `count` slots, the oldest first, but not more than the limit."""
    planned = _pending(row)
    closed: tuple[Slot, ...] = ()
    surplus = count - service.missed_limit
    if surplus > 0:
        first = planned
        last = _further(timing, first, surplus - 1)
        planned = rounded(timing.after(slot=last, end=last, origin=first))
        closed = (_range(service, check, first, last, surplus, "missed", "more than missed_limit"),)
    left = min(count, service.missed_limit)
    return Due(
        service=service, planned=planned, slot=planned, attempt=1, reason=f"catching up, {left} left", closed=closed
    )


def _further(timing: Timing, planned: float, steps: int) -> float:
    """The slot so many steps on: by arithmetic for an interval, of which there may be millions."""
    if timing.every_s is not None:
        return (round(planned * 1e6) + steps * round(timing.every_s * 1e6)) / 1e6
    origin = planned
    for _ in range(steps):
        planned = rounded(timing.after(slot=planned, end=planned, origin=origin))
    return planned


def _pending(row: ServiceTiming) -> float:
    return row.next_due if row.open is None else row.open


def _anchor(timing: Timing, check: Check, planned: float) -> float:
    """An interval is counted from the check that found it due; a calendar time, and a check without a beat, from it."""
    return planned if timing.every_s is None or check.exact or check.retries_only else check.at


def _range(service: Service, check: Check, planned: float, last: float, count: int, verdict: str, reason: str) -> Slot:
    return Slot(
        service=service.name,
        planned=planned,
        last=last,
        count=count,
        verdict=verdict,
        reason=reason,
        scheduler=check.scheduler,
        recorded=check.now,
    )


def _since(row: ServiceTiming, timing: Timing, check: Check) -> str:
    if row.last_run_timestamp is None:
        return "never run"
    every = "" if timing.every_s is None else f", every {show_seconds(timing.every_s)}"
    return f"last run {_wait(check.now - row.last_run_timestamp)} ago{every}"


def _wait(seconds: float) -> str:
    if seconds >= 1:
        seconds = float(round(seconds))
    return show_seconds(max(seconds, 0.001))
