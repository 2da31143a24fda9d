"""The rows that survive: timing of services, state of a cycle, definitions of schedulers.

`ServiceTiming` and `SchedulerState` are rows of the two tables; the rest lives in raptor.sqlite. Slots and runs, the
ledger proper, are task.py's.
"""

from __future__ import annotations

import msgspec

from raptor.task import Run, Slot


class ServiceTiming(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A row of service_timing: one per service, never deleted."""

    last_run_timestamp: int | None = None  # when the last successful run ended, whole Unix seconds
    interval_seconds: float | None = None  # None for a calendar service
    slot: float | None = None  # of the last successful run
    next_due: float  # the next planned slot; a failure leaves it
    origin: float | None = None  # the first slot of a grid
    last_run_id: str | None = None
    last_outcome: str | None = None
    last_info: str = ""
    last_start: float | None = None
    last_end: float | None = None
    failures: int = 0  # in a row
    attempts: int = 0  # runs of the open slot that failed
    open: float | None = None  # the slot that is still being tried
    retry_at: float | None = None


class CycleResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one service in a cycle; the journal of the ledger's lines."""

    run: Run
    verdict: str  # done, retry, failed, skipped, interrupted
    reason: str = ""
    closed: tuple[Slot, ...] = ()  # slots that were left behind


class SchedulerState(msgspec.Struct, frozen=True, kw_only=True):
    """A row of scheduler_state: there while a cycle runs, deleted at its end."""

    cycle: str
    slot: float  # the planned time of the check that began it
    up_since: float | None = None  # slots before it were missed, as that check saw it
    started: float
    services_queue: tuple[str, ...]  # without the current one
    current_service: str | None = None
    current_run: Run | None = None
    current_closed: tuple[Slot, ...] = ()  # slots that the current run leaves behind
    results: tuple[CycleResult, ...] = ()
    resumed: int = 0  # how often it was taken up again after a crash


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A service in a scheduler's list, with the timing that `schedule` gave it, if any."""

    name: str
    every_s: float | None = None
    cron: str | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler as it was asked for: permanent."""

    name: str
    interval_s: float | None = None  # None: auto
    services: tuple[Scheduled, ...] = ()
    paused: bool = False
    paused_services: tuple[str, ...] = ()
    should_run: bool = False
    note: str = ""
