"""Which services may run at a check: pure decisions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.due import NEVER, Check, Due, NotDue, clamp, decide, next_due, reached, rounded, skip
from raptor.rows import ServiceTiming
from raptor.service import Service
from raptor.timing import Every, Timing, parse_cron

HOUR, DAY = 3600.0, 86400.0
NOON = 1_772_452_800.0  # 2026-03-02 12:00 UTC
HOURLY = Every(HOUR)


def service(**options: Any) -> Service:
    return Service(name="a", **options)


def check(at: float, **options: Any) -> Check:
    return Check(**({"scheduler": "main", "at": at, "now": at, "up_since": 0.0} | options))


def ran(slot: float, *, every_s: float | None = HOUR, **fields: Any) -> ServiceTiming:
    """A row after a success."""
    known = {
        "slot": slot,
        "last_run_timestamp": int(slot),
        "last_start": slot,
        "last_end": slot,
        "next_due": slot + (every_s or DAY),
        "interval_seconds": every_s,
        "origin": slot,
    }
    return ServiceTiming(**(known | fields))


def due(found: Due | NotDue) -> Due:
    assert isinstance(found, Due), found
    return found


def not_due(found: Due | NotDue) -> NotDue:
    assert isinstance(found, NotDue), found
    return found


def closed(found: Due | NotDue) -> list[tuple[float, float, int, str, str]]:
    return [(slot.planned, slot.last, slot.count, slot.verdict, slot.reason) for slot in found.closed]


@pytest.mark.spec("004-15", "R4-05")
def test_a_service_without_a_row_is_due_at_once_as_a_first_run() -> None:
    found = due(decide(service(), HOURLY, None, check(NOON)))
    assert (found.planned, found.slot, found.attempt, found.reason) == (NOON, NOON, 1, "first run")


def test_a_calendar_service_without_a_row_waits_for_its_time_and_its_plan_is_kept() -> None:
    found = not_due(decide(service(), parse_cron("0 13 * * *", "UTC"), None, check(NOON)))
    assert found.row is not None
    assert (found.until, found.row.next_due, found.reason) == (NOON + HOUR, NOON + HOUR, "first run in 1h")


@pytest.mark.spec("R4-05", "004-04")
def test_a_service_is_due_when_the_check_is_at_or_after_its_slot_and_never_before() -> None:
    row = ran(NOON)
    early = not_due(decide(service(), HOURLY, row, check(NOON + HOUR - 0.001)))
    assert (early.until, early.row, early.reason) == (NOON + HOUR, None, "runs in 1ms")
    on_time = due(decide(service(), HOURLY, row, check(NOON + HOUR)))
    assert (on_time.planned, on_time.reason) == (NOON + HOUR, "last run 1h ago, every 1h")


@pytest.mark.spec("X4-10")
def test_an_interval_counts_from_the_check_that_found_it_due() -> None:
    found = due(decide(service(), HOURLY, ran(NOON), check(NOON + HOUR + 30)))
    assert (found.planned, found.slot) == (NOON + HOUR, NOON + HOUR + 30)
    exact = due(decide(service(), HOURLY, ran(NOON), check(NOON + HOUR + 30, exact=True)))
    assert (exact.planned, exact.slot) == (NOON + HOUR, NOON + HOUR)
    cron = parse_cron("0 * * * *", "UTC")
    found = due(decide(service(), cron, ran(NOON, every_s=None, next_due=NOON + HOUR), check(NOON + HOUR + 30)))
    assert found.slot == NOON + HOUR


def test_an_open_slot_is_tried_again_at_its_retry_time_and_not_before() -> None:
    row = ran(NOON, open=NOON + HOUR, attempts=2, failures=2, retry_at=NOON + HOUR + 4)
    waiting = not_due(decide(service(), HOURLY, row, check(NOON + HOUR + 3)))
    assert (waiting.until, waiting.reason) == (NOON + HOUR + 4, "retries in 1s")
    again = due(decide(service(), HOURLY, row, check(NOON + HOUR + 4, retries_only=True)))
    assert (again.planned, again.slot, again.attempt, again.reason) == (NOON + HOUR, NOON + HOUR, 3, "attempt 3")


def test_a_check_for_retries_starts_nothing_else() -> None:
    not_due(decide(service(), HOURLY, ran(NOON), check(NOON + 2 * HOUR, retries_only=True)))
    not_due(decide(service(), HOURLY, None, check(NOON, retries_only=True)))


def test_the_tries_for_a_slot_end_when_its_successor_comes() -> None:
    row = ran(NOON, open=NOON + HOUR, attempts=5, retry_at=NOON + 2 * HOUR + 7, last_info="no disk")
    found = due(decide(service(), HOURLY, row, check(NOON + 2 * HOUR + 7, retries_only=True)))
    assert closed(found) == [(NOON + HOUR, NOON + HOUR, 1, "failed", "no disk")]
    assert (found.planned, found.slot, found.attempt) == (NOON + 2 * HOUR, NOON + 2 * HOUR, 1)


def test_slots_between_two_checks_are_coalesced_into_one_range() -> None:
    found = due(decide(service(), HOURLY, ran(NOON), check(NOON + 5 * HOUR)))
    assert closed(found) == [(NOON + HOUR, NOON + 4 * HOUR, 4, "coalesced", "one run for all")]
    assert found.planned == NOON + 5 * HOUR


def test_slots_of_a_downtime_are_missed_and_those_after_it_coalesced() -> None:
    found = due(decide(service(), HOURLY, ran(NOON), check(NOON + 6 * HOUR, up_since=NOON + 3.5 * HOUR)))
    assert closed(found) == [
        (NOON + HOUR, NOON + 3 * HOUR, 3, "missed", "node down"),
        (NOON + 4 * HOUR, NOON + 5 * HOUR, 2, "coalesced", "one run for all"),
    ]


def test_missed_skip_passes_over_the_downtime_only() -> None:
    skipping, up = service(missed="skip"), NOON + 3.5 * HOUR
    found = not_due(decide(skipping, HOURLY, ran(NOON), check(up, up_since=up)))
    assert found.row is not None
    assert (found.until, found.row.next_due) == (NOON + 4 * HOUR, NOON + 4 * HOUR)
    later = due(decide(skipping, HOURLY, ran(NOON), check(NOON + 4 * HOUR, up_since=up)))
    assert closed(later) == closed(found) == [(NOON + HOUR, NOON + 3 * HOUR, 3, "missed", "node down")]
    assert later.planned == NOON + 4 * HOUR


@pytest.mark.parametrize("timing", [HOURLY, parse_cron("0 * * * *", "UTC")])
def test_missed_all_takes_the_oldest_within_the_limit(timing: Timing) -> None:
    up = NOON + 20.5 * HOUR
    all_of_them = service(missed="all", missed_limit=4)
    row = ran(NOON, every_s=timing.every_s, next_due=NOON + HOUR)
    found = due(decide(all_of_them, timing, row, check(up, up_since=up)))
    assert closed(found) == [(NOON + HOUR, NOON + 16 * HOUR, 16, "missed", "more than missed_limit")]
    assert (found.planned, found.slot, found.reason) == (NOON + 17 * HOUR, NOON + 17 * HOUR, "catching up, 4 left")
    # Slots that came since the start are not missed, and do not make the missed ones one.
    later = ran(NOON + 18 * HOUR, every_s=timing.every_s, next_due=NOON + 19 * HOUR)
    found = due(decide(all_of_them, timing, later, check(NOON + 21 * HOUR, up_since=up)))
    assert (found.planned, found.closed) == (NOON + 19 * HOUR, ())


@pytest.mark.parametrize("timing", [HOURLY, parse_cron("0 * * * *", "UTC")])
def test_slots_that_come_while_a_run_goes_on_are_skipped_or_wait(timing: Timing) -> None:
    row = ran(NOON, every_s=timing.every_s, next_due=NOON + HOUR, last_end=NOON + 2.5 * HOUR)
    at = check(NOON + 2.5 * HOUR, exact=True)
    found = not_due(decide(service(), timing, row, at))
    assert found.until == NOON + 3 * HOUR
    assert closed(found) == [(NOON + HOUR, NOON + 2 * HOUR, 2, "skipped", "overlap")]
    queued = due(decide(service(overlap="queue"), timing, row, at))
    assert (queued.planned, len(queued.closed)) == (NOON + 2 * HOUR, 1)
    later = due(decide(service(), timing, row, check(NOON + 4 * HOUR, exact=True)))
    assert [slot.reason for slot in later.closed] == ["overlap", "one run for all"]
    assert later.planned == NOON + 4 * HOUR


def test_skip_closes_every_slot_up_to_the_check() -> None:
    found = skip(service(), HOURLY, ran(NOON), check(NOON + 3.5 * HOUR), "paused")
    assert found.row is not None
    assert closed(found) == [(NOON + HOUR, NOON + 3 * HOUR, 3, "skipped", "paused")]
    assert found.row.next_due == NOON + 4 * HOUR
    assert skip(service(), HOURLY, found.row, check(NOON + 3.6 * HOUR), "paused").closed == ()


# Clocks


def test_a_row_that_is_right_is_left_as_it_is() -> None:
    row = ran(NOON)
    assert clamp(row, HOURLY, NOON + 1) is row


@pytest.mark.parametrize("timing", [HOURLY, Every(HOUR, "end"), Every(HOUR, "grid"), parse_cron("0 * * * *", "UTC")])
def test_a_row_from_the_future_is_due_again_within_an_interval_and_stays_put(timing: Timing) -> None:
    row = ran(NOON + 365 * DAY, every_s=timing.every_s, next_due=NOON + 365 * DAY + HOUR)
    clamped = clamp(row, timing, NOON + 5)
    assert NOON < clamped.next_due <= NOON + 5 + HOUR
    assert clamp(clamped, timing, NOON + 60) is clamped
    assert next_due(service(), timing, row, NOON + 5) == clamped.next_due


def test_a_calendar_slot_that_has_been_is_not_repeated_when_the_clock_goes_back_a_little() -> None:
    nightly = parse_cron("30 2 * * *", "UTC")
    slot = nightly.first(NOON)
    row = ran(slot, every_s=None, next_due=slot + DAY)
    assert clamp(row, nightly, slot - HOUR) is row
    assert clamp(row, nightly, slot - 2 * DAY).next_due < slot


def test_a_retry_in_the_far_future_is_brought_near() -> None:
    row = ran(NOON, open=NOON, retry_at=NOON + 10 * DAY)
    assert clamp(row, HOURLY, NOON).retry_at == NOON + HOUR


def test_a_plan_of_a_service_that_never_ran_is_brought_near() -> None:
    daily = parse_cron("0 13 * * *", "UTC")
    row = ServiceTiming(next_due=NOON + 400 * DAY)
    assert clamp(row, daily, NOON).next_due == NOON + HOUR
    assert clamp(ServiceTiming(next_due=NOON + 10 * HOUR, interval_seconds=HOUR), HOURLY, NOON).next_due == NOON + HOUR


def test_never_is_a_time_that_json_can_hold() -> None:
    assert rounded(math.inf) == NEVER
    row = ServiceTiming(next_due=rounded(math.inf))
    assert msgspec.json.decode(msgspec.json.encode(row), type=ServiceTiming) == row


@given(st.floats(0, 4e9))
def test_the_reached_microsecond_is_never_ahead(now: float) -> None:
    assert now - 2e-6 < reached(now) <= now


# In general


JUST_AFTER = NOON + HOUR + 7e-7  # a slot, by less than the microsecond that slots stand on


def test_a_run_that_ends_just_after_a_slot_ran_over_one_slot() -> None:
    row = ran(NOON, last_end=JUST_AFTER)
    found = decide(service(overlap="skip"), HOURLY, row, check(NOON + HOUR + 1))
    assert closed(found) == [(NOON + HOUR, NOON + HOUR, 1, "skipped", "overlap")]


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_node_that_comes_just_after_a_slot_missed_one_slot(missed: str) -> None:
    at = check(NOON + 3 * HOUR + 1, up_since=JUST_AFTER)
    found = due(decide(service(missed=missed), HOURLY, ran(NOON), at))
    told = closed(found)
    assert all(count > 0 for _, _, count, _, _ in told)
    if missed != "all":
        assert told == [
            (NOON + HOUR, NOON + HOUR, 1, "missed", "node down"),
            (NOON + 2 * HOUR, NOON + 2 * HOUR, 1, "coalesced", "one run for all"),
        ]
    assert found.planned == (NOON + HOUR if missed == "all" else NOON + 3 * HOUR)


@given(
    st.sampled_from(["slot", "end", "grid"]),
    st.floats(0.1, 1e5),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.sampled_from(["once", "skip", "all"]),
)
def test_nothing_is_early_and_ranges_do_not_overlap(
    anchor: Any, every_s: float, later: float, up: float, missed: Any
) -> None:
    timing, row = Every(rounded(every_s), anchor), ran(NOON, every_s=rounded(every_s))
    row = msgspec.structs.replace(row, next_due=rounded(NOON + timing.every_s))
    at = check(rounded(NOON + later), up_since=rounded(NOON + up))
    found = decide(service(missed=missed), timing, row, at)
    spans = [(slot.planned, slot.last) for slot in found.closed]
    if isinstance(found, Due):
        assert row.next_due <= found.planned <= at.at
        spans.append((found.planned, found.planned))
    else:
        assert found.until > at.at
    assert all(first <= last for first, last in spans)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(spans))
    if spans:
        assert spans[0][0] == row.next_due


@pytest.mark.parametrize(("timing", "first"), [(HOURLY, NOON + 5), (parse_cron("0 * * * *", "UTC"), NOON + HOUR)])
def test_a_service_without_a_row_is_due_next_at_its_first_slot(timing: Timing, first: float) -> None:
    assert next_due(service(), timing, None, NOON + 5) == first


def test_a_row_from_the_future_that_is_due_no_later_than_after_a_run_now_is_left_alone() -> None:
    row = ran(NOON + 10, next_due=NOON + HOUR)
    assert clamp(row, HOURLY, NOON) is row


def test_a_row_from_the_future_has_run_just_now_if_it_ever_has() -> None:
    assert clamp(ran(NOON + 10 * HOUR), HOURLY, NOON).slot == NOON
    assert clamp(ServiceTiming(next_due=NOON + 10 * HOUR, interval_seconds=HOUR), HOURLY, NOON).slot is None


@pytest.mark.parametrize("ahead", [60.0, HOUR])
def test_the_first_plan_of_a_grid_is_kept_though_its_origin_lies_elsewhere(ahead: float) -> None:
    row = ServiceTiming(next_due=NOON + ahead, interval_seconds=HOUR, origin=NOON - HOUR + 10)
    assert clamp(row, Every(HOUR, "grid"), NOON) is row


def test_a_slot_that_is_no_further_ahead_than_the_one_after_it_is_not_repeated() -> None:
    nightly, slot = parse_cron("0 12 * * *", "UTC"), NOON
    row = ran(slot, every_s=None)
    assert clamp(row, nightly, slot - DAY) is row
    long = ran(NOON, next_due=NOON + 3 * HOUR)  # its run passed two slots by
    assert clamp(long, Every(HOUR, "grid"), NOON) is long


@pytest.mark.parametrize("slot", [NOON - HOUR, None])
def test_a_calendar_that_gave_up_on_a_slot_which_lies_ahead_is_not_left_there(slot: float | None) -> None:
    hourly = parse_cron("0 * * * *", "UTC")

    def gave_up(next_due: float) -> ServiceTiming:
        return msgspec.structs.replace(ran(NOON - HOUR, every_s=None, next_due=next_due, failures=1), slot=slot)

    assert clamp(gave_up(NOON + 8 * HOUR), hourly, NOON + 1).next_due == NOON + HOUR
    assert clamp(gave_up(NOON + 3 * HOUR), hourly, NOON + 1).next_due == NOON + HOUR
    near = gave_up(NOON + 2 * HOUR)
    assert clamp(near, hourly, NOON + 1) is near
    rare = gave_up(NOON + 30 * DAY)
    assert clamp(rare, parse_cron("0 12 1 4 *", "UTC"), NOON + 1) is rare


def test_planned_times_stand_on_whole_microseconds() -> None:
    assert rounded(NOON + 4.8e-7) == NOON
    assert rounded(NOON + 7.2e-7) == NOON + 1e-6
    assert rounded(2.0**31 + 4.8e-7) == 2.0**31
    assert rounded(3_726_133_102.1505313) == 3_726_133_102.150531  # in 2088 a product would be half of one off


@pytest.mark.parametrize(("origin", "following"), [(NOON - 2 * HOUR, NOON + HOUR), (None, NOON + HOUR + 120)])
def test_what_is_skipped_is_followed_by_the_next_slot_of_its_grid(origin: float | None, following: float) -> None:
    row = ran(NOON - 2 * HOUR, origin=origin, next_due=NOON - HOUR + 120, attempts=2)
    found = skip(service(), Every(HOUR, "grid"), row, check(NOON + 600), "paused")
    assert found.row is not None
    assert (found.row.next_due, found.row.attempts) == (following, 0)
    assert closed(found) == [(NOON - HOUR + 120, NOON + 120, 2, "skipped", "paused")]


@pytest.mark.parametrize(
    ("every", "ended", "skipped", "runs"),
    [
        (HOUR, NOON + HOUR, (NOON, NOON, 1), NOON + HOUR),  # a slot at the very end of the run is its own
        (0.25, NOON + 1.1, (NOON, NOON + 1.0, 5), NOON + 1.25),
    ],
)
def test_slots_that_came_while_the_last_run_went_on_are_skipped_up_to_its_end(
    every: float, ended: float, skipped: tuple[float, float, int], runs: float
) -> None:
    row = ran(NOON - every, every_s=every, last_end=ended)
    found = due(decide(service(), Every(every), row, check(runs)))
    assert (found.planned, closed(found)) == (runs, [(*skipped, "skipped", "overlap")])


def test_a_slot_that_lies_ahead_since_the_clock_was_set_back_is_still_tried_again() -> None:
    row = ran(NOON - HOUR, open=NOON + 60, next_due=NOON + 60, retry_at=NOON - 1, attempts=1)
    found = due(decide(service(), HOURLY, row, check(NOON)))
    assert (found.planned, found.attempt, found.closed) == (NOON + 60, 2, ())


@pytest.mark.parametrize(
    ("every", "since", "missed", "runs"),
    [
        (HOUR, NOON, None, NOON),  # one that came just when the node did is not missed
        (HOUR, NOON + HOUR, (NOON, NOON, 1), NOON + HOUR),
        (0.25, NOON + 1.1, (NOON, NOON + 1.0, 5), NOON + 1.25),
    ],
)
def test_slots_before_the_node_was_up_are_missed_and_no_others(
    every: float, since: float, missed: tuple[float, float, int] | None, runs: float
) -> None:
    found = due(
        decide(service(missed="skip"), Every(every), ran(NOON - every, every_s=every), check(runs, up_since=since))
    )
    told = [] if missed is None else [(*missed, "missed", "node down")]
    assert (found.planned, closed(found)) == (runs, told)


def test_one_missed_slot_is_made_up_for_as_any_late_one() -> None:
    found = due(decide(service(missed="all"), HOURLY, ran(NOON - HOUR), check(NOON + 60, up_since=NOON + 30)))
    assert (found.planned, found.slot, found.closed) == (NOON, NOON + 60, ())
    assert found.reason.startswith("last run")


@pytest.mark.parametrize(
    ("every", "since", "missed", "coalesced", "runs"),
    [
        (HOUR, NOON + HOUR, (NOON, NOON, 1), (NOON + HOUR, NOON + HOUR, 1), NOON + 2 * HOUR),
        (0.25, NOON + 1.1, (NOON, NOON + 1.0, 5), (NOON + 1.25, NOON + 1.75, 3), NOON + 2.0),
    ],
)
def test_what_one_run_stands_for_was_missed_up_to_the_start_of_the_node_and_coalesced_from_then_on(
    every: float, since: float, missed: tuple[float, ...], coalesced: tuple[float, ...], runs: float
) -> None:
    found = due(decide(service(), Every(every), ran(NOON - every, every_s=every), check(runs, up_since=since)))
    told = [(*missed, "missed", "node down"), (*coalesced, "coalesced", "one run for all")]
    assert (found.planned, closed(found)) == (runs, told)


def test_after_missed_slots_a_grid_goes_on_by_its_origin() -> None:
    row = ran(NOON - 2 * HOUR, next_due=NOON + 120)
    found = not_due(decide(service(missed="skip"), Every(HOUR, "grid"), row, check(NOON + 900, up_since=NOON + 600)))
    assert (found.until, closed(found)) == (NOON + HOUR, [(NOON + 120, NOON + 120, 1, "missed", "node down")])


def test_of_missed_slots_one_more_than_the_limit_is_left_out() -> None:
    asked = service(missed="all", missed_limit=2)
    found = due(decide(asked, HOURLY, ran(NOON - HOUR), check(NOON + 2.5 * HOUR, up_since=NOON + 2.5 * HOUR)))
    assert (found.planned, found.reason) == (NOON + HOUR, "catching up, 2 left")
    assert closed(found) == [(NOON, NOON, 1, "missed", "more than missed_limit")]


def test_as_many_missed_slots_as_the_limit_are_all_made_up_for() -> None:
    asked = service(missed="all", missed_limit=2)
    found = due(decide(asked, HOURLY, ran(NOON - HOUR), check(NOON + 1.5 * HOUR, up_since=NOON + 1.5 * HOUR)))
    assert (found.planned, found.closed, found.reason) == (NOON, (), "catching up, 2 left")


def test_a_missed_slot_that_failed_is_tried_until_a_newer_slot_than_its_run_comes() -> None:
    asked, timing, up = service(missed="all"), Every(HOUR, "grid"), NOON + 1.5 * HOUR
    row = ran(NOON - HOUR, origin=None, open=NOON, attempts=1, last_start=NOON + HOUR, last_info="no disk")
    again = due(decide(asked, timing, row, check(NOON + 1.6 * HOUR, up_since=up)))
    assert (again.planned, again.attempt, again.closed) == (NOON, 2, ())
    next_one = due(decide(asked, timing, row, check(NOON + 2 * HOUR, up_since=up)))
    assert (next_one.planned, next_one.attempt) == (NOON + HOUR, 1)
    assert closed(next_one) == [(NOON, NOON, 1, "failed", "no disk")]


def test_a_slot_that_came_as_the_node_did_was_not_missed() -> None:
    row = ran(NOON - HOUR, open=NOON, attempts=1, last_start=NOON + HOUR, last_info="no disk")
    found = due(decide(service(missed="all"), HOURLY, row, check(NOON + HOUR, up_since=NOON)))
    assert (found.planned, closed(found)) == (NOON + HOUR, [(NOON, NOON, 1, "failed", "no disk")])
    found = due(decide(service(), HOURLY, ran(NOON - HOUR), check(NOON + HOUR, up_since=NOON)))
    assert (found.planned, closed(found)) == (NOON + HOUR, [(NOON, NOON, 1, "coalesced", "one run for all")])


def test_a_slot_that_came_as_a_run_began_is_not_run_over_by_it() -> None:
    row = ran(NOON - HOUR, last_start=NOON, last_end=NOON + 600)
    found = due(decide(service(), HOURLY, row, check(NOON + 600)))
    assert (found.planned, found.closed) == (NOON, ())


@pytest.mark.parametrize(("origin", "timing"), [(NOON - HOUR, HOURLY), (None, Every(HOUR, "grid"))])
def test_an_open_slot_has_failed_when_its_successors_come_and_one_run_stands_for_those(
    origin: float | None, timing: Timing
) -> None:
    row = ran(NOON - HOUR, origin=origin, open=NOON, retry_at=NOON + 60, attempts=1, last_info="no disk")
    found = due(decide(service(), timing, row, check(NOON + 2 * HOUR)))
    hour = (NOON + HOUR, NOON + HOUR, 1, "coalesced", "one run for all")
    assert closed(found) == [(NOON, NOON, 1, "failed", "no disk"), hour]
    assert found.planned == NOON + 2 * HOUR


def test_why_a_calendar_service_runs_names_no_interval() -> None:
    found = due(decide(service(), parse_cron("0 12 * * *", "UTC"), ran(NOON - DAY, every_s=None), check(NOON)))
    assert found.reason == "last run 24h ago"


def test_why_a_service_with_a_plan_runs_for_the_first_time() -> None:
    assert due(decide(service(), HOURLY, ServiceTiming(next_due=NOON), check(NOON))).reason == "never run"


@pytest.mark.parametrize(("left", "told"), [(5.4, "5s"), (1.4, "1s"), (0.25, "250ms"), (0.0001, "1ms")])
def test_a_wait_is_told_in_whole_seconds_if_it_is_that_long(left: float, told: str) -> None:
    found = not_due(decide(service(), HOURLY, ran(NOON), check(NOON + HOUR - left)))
    assert found.reason == f"runs in {told}"
