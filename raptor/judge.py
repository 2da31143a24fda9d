"""What a result means: for the slot, and for the timing of its service. Pure."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from raptor.due import LONGEST_RETRY_S, Due, rounded
from raptor.rows import Ended, ServiceTiming
from raptor.service import Service
from raptor.task import Dead, Done, Outcome, Result, Retry, Run, Slot, Verdict
from raptor.timing import Every, Timing


def judge(
    due: Due, timing: Timing, result: Result, row: ServiceTiming | None, *, now: float, rng: random.Random
) -> Verdict:
    """Done, another try, or the end of the tries for this slot."""
    service = due.service
    if result.outcome is Outcome.OK:
        return Done()
    limit = service.max_attempts
    if limit is not None and due.attempt >= limit:
        return Dead(result.info or str(result.outcome))
    failures = (row.failures if row is not None else 0) + 1
    return Retry(at=rounded(now + backoff_s(service, timing, failures, rng)))


def backoff_s(service: Service, timing: Timing | None, failures: int, rng: random.Random) -> float:
    """1, 2, 4, ... s, up to an hour and never beyond the service's own interval, less a little chance."""
    from tenacity import RetryCallState, wait_exponential  # slow to import, and only a failure needs it

    state: Any = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = min(failures, 64)  # beyond that the power only overflows
    wait = service.backoff or wait_exponential(multiplier=1, exp_base=2, max=LONGEST_RETRY_S)
    full = min(float(wait(state)), LONGEST_RETRY_S)
    if timing is not None and timing.every_s is not None:
        full = min(full, timing.every_s)
    return full * (1 - 0.1 * rng.random())


def passed_by(service: Service, timing: Timing, run: Run, row: ServiceTiming, planned: float) -> tuple[Slot, ...]:
    """The slots of a grid that came while the run for `planned` went on: the row after it plans none of them.

    A row that has moved on since may plan a later one. What closed the slots between has lines of its own.
    """
    assert run.end is not None
    if not (isinstance(timing, Every) and timing.anchor == "grid"):
        return ()
    origin = planned if row.origin is None else row.origin
    ran = max(planned, origin)
    first = rounded(timing.after(slot=ran, end=ran, origin=origin))
    following = rounded(timing.after(slot=ran, end=run.end, origin=origin))
    last, count = timing.latest(first, min(following, row.next_due) - 1e-6)
    if not count:
        return ()
    skips = service.overlap == "skip"
    slot = Slot(
        service=service.name,
        planned=first,
        last=last,
        count=count,
        verdict="skipped" if skips else "coalesced",
        reason="overlap" if skips else "one run for all",
        scheduler=run.scheduler,
        recorded=run.end,
    )
    return (slot,)


def advance(due: Due, timing: Timing, row: ServiceTiming | None, run: Run, verdict: Verdict) -> ServiceTiming:
    """The service's row after a run: only a success moves its timing on."""
    assert run.end is not None
    every = timing.every_s
    old = row or ServiceTiming(next_due=due.planned, interval_seconds=every)
    # The first slot is the origin of a grid. A new interval begins a new one, and so does a clock that was set back.
    keeps = old.origin is not None and old.interval_seconds == every and old.origin <= due.slot
    origin = old.origin if keeps and old.origin is not None else due.planned
    seen = msgspec.structs.replace(
        old,
        last_run_id=run.id,
        last_outcome=str(run.outcome),
        last_info=run.info,
        last_start=run.start,
        last_end=run.end,
        last_scheduler=run.scheduler,
        others=_of_others(old, run.scheduler),
    )
    following = rounded(timing.after(slot=due.slot, end=run.end, origin=origin))
    match verdict:
        case Done():
            return msgspec.structs.replace(
                seen,
                last_run_timestamp=int(run.end),
                interval_seconds=every,
                slot=due.slot,
                next_due=following,
                origin=origin,
                failures=0,
                attempts=0,
                open=None,
                retry_at=None,
            )
        case Retry(at=at):
            return msgspec.structs.replace(
                seen, failures=old.failures + 1, attempts=due.attempt, open=due.planned, retry_at=at
            )
        case _:
            return msgspec.structs.replace(
                seen,
                failures=old.failures + 1,
                attempts=0,
                open=None,
                retry_at=None,
                next_due=following,
                interval_seconds=every,
                origin=origin,
            )


def _of_others(row: ServiceTiming, scheduler: str | None) -> tuple[Ended, ...]:
    """The last run of each other scheduler: a crash may have kept its journal from telling of it."""
    last = None if row.last_run_id is None or row.last_scheduler is None else row.ended(row.last_run_id)
    known = {one.scheduler: one for one in (*row.others, last) if one is not None}
    return tuple(one for one in known.values() if one.scheduler != scheduler)
