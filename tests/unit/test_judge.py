"""What a result means for the slot and for the timing: pure decisions."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from tenacity import wait_fixed

from raptor.due import Due
from raptor.judge import advance, backoff_s, judge, passed_by
from raptor.rows import ServiceTiming
from raptor.service import Service
from raptor.task import Dead, Done, Outcome, Result, Retry, Run
from raptor.timing import Every, Timing, parse_cron

HOUR, DAY = 3600.0, 86400.0
NOON = 1_772_452_800.0
HOURLY = Every(HOUR)


class Unlucky(random.Random):
    """No jitter."""

    def random(self) -> float:
        return 0.0


def due(attempt: int = 1, **options: Any) -> Due:
    return Due(service=Service(name="a", **options), planned=NOON, slot=NOON, attempt=attempt, reason="")


def run(outcome: Outcome, end: float = NOON + 2.5) -> Run:
    return Run(
        id="r", service="a", scheduler="main", planned=NOON, attempt=1, start=NOON, end=end, outcome=outcome, info="so"
    )


def verdict(outcome: Outcome, given: Due, row: ServiceTiming | None = None, timing: Timing = HOURLY) -> object:
    return judge(given, timing, Result(outcome=outcome, info="no disk"), row, now=NOON + 2, rng=Unlucky())


def test_success_is_done() -> None:
    assert verdict(Outcome.OK, due()) == Done()


@pytest.mark.spec("R4-08")
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_failure_is_tried_again_until_the_last_allowed_run(outcome: Outcome) -> None:
    assert verdict(outcome, due()) == Retry(NOON + 3)
    assert verdict(outcome, due(attempt=2, max_attempts=3), ServiceTiming(next_due=NOON, failures=1)) == Retry(NOON + 4)
    assert verdict(outcome, due(attempt=3, max_attempts=3)) == Dead("no disk")


def test_backoff_doubles_from_a_second_up_to_an_hour() -> None:
    daily, a = Every(DAY), Service(name="a")
    assert [backoff_s(a, daily, n, Unlucky()) for n in range(1, 15)] == [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600,
    ]  # fmt: skip
    assert backoff_s(a, daily, 10**9, Unlucky()) == 3600


def test_backoff_is_at_most_the_interval_and_jittered_downwards() -> None:
    assert backoff_s(Service(name="a"), Every(10.0), 9, Unlucky()) == 10
    waits = [backoff_s(Service(name="a"), Every(DAY), 5, random.Random(seed)) for seed in range(100)]
    assert min(waits) >= 0.9 * 16
    assert max(waits) <= 16
    assert len(set(waits)) > 90


def test_backoff_may_be_any_wait_of_tenacity() -> None:
    assert backoff_s(Service(name="a", backoff=wait_fixed(7)), Every(DAY), 4, Unlucky()) == 7


@pytest.mark.spec("004-02", "004-18", "004-27")
def test_success_advances_the_timing_and_clears_the_failures() -> None:
    old = ServiceTiming(next_due=NOON, failures=3, attempts=3, open=NOON, retry_at=NOON + 1)
    row = advance(due(), HOURLY, old, run(Outcome.OK), Done())
    assert (row.last_run_timestamp, row.interval_seconds, row.slot) == (int(NOON + 2), HOUR, NOON)
    assert (row.next_due, row.origin, row.last_run_id) == (NOON + HOUR, NOON, "r")
    assert (row.failures, row.attempts, row.open, row.retry_at) == (0, 0, None, None)


@pytest.mark.spec("R4-06")
def test_a_failure_moves_nothing_but_the_last_run_the_failures_and_the_retry() -> None:
    old = advance(due(), HOURLY, None, run(Outcome.OK), Done())
    later = Due(service=Service(name="a"), planned=NOON + HOUR, slot=NOON + HOUR, attempt=1, reason="")
    row = advance(later, HOURLY, old, run(Outcome.FAILED), Retry(NOON + HOUR + 1))
    kept = ("last_run_timestamp", "interval_seconds", "slot", "next_due", "origin")
    assert [getattr(row, name) for name in kept] == [getattr(old, name) for name in kept]
    assert (row.failures, row.attempts, row.open, row.retry_at) == (1, 1, NOON + HOUR, NOON + HOUR + 1)


def test_the_end_of_the_tries_plans_the_next_slot_without_a_success() -> None:
    old = ServiceTiming(next_due=NOON, failures=2, attempts=2, open=NOON, retry_at=NOON + 1)
    row = advance(due(attempt=3), HOURLY, old, run(Outcome.FAILED), Dead("no disk"))
    assert (row.last_run_timestamp, row.slot, row.failures) == (None, None, 3)
    assert (row.next_due, row.open, row.retry_at, row.attempts) == (NOON + HOUR, None, None, 0)


@pytest.mark.spec("X4-10")
@pytest.mark.parametrize(
    ("timing", "following"),
    [
        (Every(HOUR), NOON + HOUR),
        (Every(HOUR, "end"), NOON + 1.5 * HOUR + HOUR),
        (Every(HOUR, "grid"), NOON + 2 * HOUR),
        (parse_cron("0 * * * *", "UTC"), NOON + HOUR),
    ],
)
def test_the_next_slot_is_counted_by_the_anchor(timing: Timing, following: float) -> None:
    assert advance(due(), timing, None, run(Outcome.OK, NOON + 1.5 * HOUR), Done()).next_due == following


def test_a_grid_keeps_its_origin_until_the_interval_changes_or_the_clock_is_set_back() -> None:
    grid = Every(HOUR, "grid")
    old = ServiceTiming(next_due=NOON, origin=NOON - 10 * HOUR - 600, interval_seconds=HOUR)
    assert advance(due(), grid, old, run(Outcome.OK), Done()).next_due == NOON + HOUR - 600
    assert advance(due(), Every(2 * HOUR, "grid"), old, run(Outcome.OK), Done()).origin == NOON
    ahead = ServiceTiming(next_due=NOON, origin=NOON + 300 * DAY, interval_seconds=HOUR)
    assert advance(due(), grid, ahead, run(Outcome.OK), Done()).next_due == NOON + HOUR


@pytest.mark.spec("X4-7")
def test_an_interval_under_a_second_is_stored_as_it_is() -> None:
    row = advance(due(), Every(0.25), None, run(Outcome.OK), Done())
    assert (row.interval_seconds, row.next_due) == (0.25, NOON + 0.25)


def test_the_origin_of_a_grid_is_its_first_planned_time_though_no_run_succeeds() -> None:
    late = Due(service=Service(name="a"), planned=NOON, slot=NOON + 9, attempt=1, reason="")
    row = advance(late, Every(60.0, "grid"), None, run(Outcome.FAILED, NOON + 10), Dead("no disk"))
    assert (row.origin, row.next_due, row.interval_seconds) == (NOON, NOON + 60, 60.0)


@pytest.mark.parametrize(
    ("overlap", "told"), [("skip", ("skipped", "overlap")), ("queue", ("coalesced", "one run for all"))]
)
def test_slots_of_a_grid_that_came_during_a_run_are_one_line(overlap: Any, told: tuple[str, str]) -> None:
    grid, long = Every(60.0, "grid"), run(Outcome.OK, NOON + 200)
    row = advance(due(), grid, None, long, Done())
    (slot,) = passed_by(Service(name="a", overlap=overlap), grid, long, row, NOON)
    assert (slot.planned, slot.last, slot.count) == (NOON + 60, NOON + 180, 3)
    assert (slot.verdict, slot.reason) == told
    assert row.next_due == NOON + 240


def test_a_short_run_and_another_anchor_pass_nothing_by() -> None:
    for timing, end in ((Every(60.0, "grid"), NOON + 30), (Every(60.0), NOON + 200), (Every(60.0, "end"), NOON + 200)):
        row = advance(due(), timing, None, run(Outcome.OK, end), Done())
        assert passed_by(Service(name="a"), timing, run(Outcome.OK, end), row, NOON) == ()


@pytest.mark.parametrize("timing", [None, parse_cron("0 * * * *", "UTC")])
def test_backoff_without_an_interval_knows_no_other_bound_than_an_hour(timing: Timing | None) -> None:
    assert backoff_s(Service(name="a"), timing, 40, Unlucky()) == HOUR


def test_a_late_run_keeps_the_origin_that_is_its_slot() -> None:
    late = Due(service=Service(name="a"), planned=NOON - 9, slot=NOON, attempt=1, reason="")
    old = ServiceTiming(next_due=NOON, origin=NOON, interval_seconds=60.0)
    assert advance(late, Every(60.0, "grid"), old, run(Outcome.OK), Done()).origin == NOON


@pytest.mark.parametrize(
    ("planned", "origin", "first"),
    [
        (NOON + 7, NOON, NOON + 60),  # late for its grid, which goes on by its origin
        (NOON - 90, NOON, NOON + 60),  # from before the grid began
        (NOON, None, NOON + 60),
    ],
)
def test_slots_that_came_during_a_run_are_those_of_the_grid(planned: float, origin: float | None, first: float) -> None:
    row = ServiceTiming(next_due=NOON + 240, origin=origin, interval_seconds=60.0)
    (slot,) = passed_by(Service(name="a"), Every(60.0, "grid"), run(Outcome.OK, NOON + 200), row, planned)
    assert (slot.planned, slot.last, slot.count) == (first, NOON + 180, 3)


def test_slots_that_came_during_a_run_are_told_of_as_such_though_its_row_has_moved_on() -> None:
    row = ServiceTiming(next_due=NOON + 600, origin=NOON, interval_seconds=60.0)
    (slot,) = passed_by(Service(name="a"), Every(60.0, "grid"), run(Outcome.OK, NOON + 200), row, NOON)
    assert (slot.planned, slot.last, slot.count) == (NOON + 60, NOON + 180, 3)


def test_a_row_keeps_how_the_last_run_of_each_scheduler_ended() -> None:
    def of(scheduler: str, id: str, outcome: Outcome = Outcome.OK) -> Run:
        return msgspec.structs.replace(run(outcome), scheduler=scheduler, id=id)

    row = advance(due(), HOURLY, None, of("main", "a", Outcome.FAILED), Retry(NOON + 9))
    row = advance(due(attempt=2), HOURLY, row, of("beat", "b", Outcome.FAILED), Dead("no disk"))
    row = advance(due(), HOURLY, row, of("late", "c"), Done())
    assert [row.ended(id) and row.ended(id).verdict for id in "abcd"] == ["retry", "failed", "done", None]  # type: ignore[union-attr]
    assert [one.scheduler for one in row.others] == ["main", "beat"]
    row = advance(due(), HOURLY, row, of("main", "d"), Done())
    assert row.ended("a") is None
    assert [(one.scheduler, one.run) for one in row.others] == [("beat", "b"), ("late", "c")]


def test_slots_of_a_fine_grid_that_came_during_a_run_are_all_counted() -> None:
    grid, long = Every(0.25, "grid"), run(Outcome.OK, NOON + 1.1)
    row = advance(due(), grid, None, long, Done())
    (slot,) = passed_by(Service(name="a"), grid, long, row, NOON)
    assert (slot.planned, slot.last, slot.count, row.next_due) == (NOON + 0.25, NOON + 1.0, 4, NOON + 1.25)
