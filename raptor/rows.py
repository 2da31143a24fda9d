"""The rows that survive: timing of services, state of a cycle, definitions of schedulers.

`ServiceTiming` and `SchedulerState` are rows of the two tables; the rest lives in raptor.sqlite. Slots and runs, the
ledger proper, are task.py's.
"""

from __future__ import annotations

import msgspec

from raptor.task import Outcome, Run, Slot

INFO = 200
"""Characters of a result that rows keep."""

LEASE_S = 60.0
"""How long a queue's taken task is its owner's, unless that is renewed."""


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run for a slot ended, until the journal of its scheduler tells of it."""

    run: str
    scheduler: str
    verdict: str  # done, retry, failed
    outcome: str
    info: str = ""
    end: float | None = None


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
    last_scheduler: str | None = None  # whose the last run was
    others: tuple[Ended, ...] = ()  # the last run of each other scheduler that has it on its list

    def ended(self, run: str) -> Ended | None:
        """What became of a run, if it is recorded here: the last one of any scheduler is."""
        if self.last_run_id != run:
            return next((one for one in self.others if one.run == run), None)
        outcome = self.last_outcome or Outcome.OK
        verdict = "done" if outcome == Outcome.OK else "retry" if self.open is not None else "failed"
        return Ended(
            run=run, scheduler=self.last_scheduler or "", verdict=verdict, outcome=outcome, info=self.last_info,
            end=self.last_end,
        )  # fmt: skip


class CycleResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one service in a cycle; the journal of the ledger's lines."""

    run: Run
    verdict: str  # done, retry, failed, skipped, interrupted
    reason: str = ""
    closed: tuple[Slot, ...] = ()  # slots that were left behind


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """A result in short, [name, verdict, info, attempt]: all that is kept of it once its lines are in the ledger."""

    service: str
    verdict: str
    info: str = ""
    attempt: int = 1


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
    recorded: tuple[Recorded, ...] = ()  # the results before `results`, whose lines are in the ledger
    results: tuple[CycleResult, ...] = ()
    resumed: int = 0  # how often it was taken up again after a crash

    @property
    def told(self) -> tuple[Recorded, ...]:
        """Every result so far, in short."""
        return (*self.recorded, *map(short, self.results))


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
    grace_s: float = 30.0  # how long what runs may finish, once it should not run any more
    version: int = 0  # grows with every change, so that an older one is known as such


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as it was set: how its tasks are taken. Permanent."""

    name: str
    paused: bool = False
    note: str = ""
    processors: int | None = None  # lanes of a worker that it may fill; None: all
    concurrency: int | None = None  # runs at a time over all nodes
    rate: int | None = None  # starts in any `per_s`, over all nodes
    per_s: float = 1.0
    batch_size: int = 10  # tasks of a turn, before the next queue has its turn
    lease_s: float = LEASE_S
    max_attempts: int | None = 3  # of tasks that say nothing themselves; None: no limit


def short(result: CycleResult) -> Recorded:
    run = result.run
    return Recorded(run.service, result.verdict, result.reason or run.info, run.attempt)


def told(run: Run) -> Recorded:
    """A run of the ledger as a result in short."""
    return Recorded(run.service, "done" if run.outcome == "ok" else "failed", run.info, run.attempt)


def line_of(result: Recorded) -> list[object]:
    """[name, ok or error, info], as the original has it."""
    return [result.service, "ok" if result.verdict == "done" else "error", result.info]
