"""Slots of intervals and triggers, against brute force."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger as TheirCronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raptor.duration import LONGEST_S
from raptor.errors import BadInput
from raptor.rows import Scheduled
from raptor.service import Anchor, Service
from raptor.timing import Cron, Every, Timing, at, check_name, has_timing, parse_schedule, timing_of
from raptor.trigger import Calendar, CronTrigger, adapt

TEN = datetime(2026, 1, 1, 10, tzinfo=UTC).timestamp()
HOUR = 3600.0

MOMENTS = st.integers(1_000_000_000_000_000, 2_500_000_000_000_000).map(lambda us: us / 1_000_000)
LENGTHS = st.sampled_from([0.001, 0.1, 0.25, 1 / 3, 1.0, 7.7, 60.0, 3600.0, 86400.0]) | st.integers(
    1_000, 10_000_000_000
).map(lambda us: us / 1_000_000)
ANCHORS: list[Anchor] = ["slot", "end", "grid"]


def us(s: float) -> int:
    return round(s * 1_000_000)


def service(**options: Any) -> Service:
    return Service(name="report", **options)


def of(asked: Service, **given: Any) -> Timing:
    return timing_of(asked, **{"every_s": None, "cron": None, "interval_s": None, **given})


# Intervals


@pytest.mark.spec("004-15")
def test_a_service_that_never_ran_is_due_at_once() -> None:
    for anchor in ANCHORS:
        assert Every(HOUR, anchor).first(TEN + 0.1234567) == TEN + 0.1234567


@pytest.mark.spec("X4-10")
def test_a_service_of_the_ten_o_clock_check_is_due_at_eleven_although_it_took_two_seconds() -> None:
    assert Every(HOUR).after(slot=TEN, end=TEN + 2, origin=TEN) == TEN + HOUR
    assert Every(HOUR, "grid").after(slot=TEN, end=TEN + 2, origin=TEN) == TEN + HOUR
    assert Every(HOUR, "end").after(slot=TEN, end=TEN + 2, origin=TEN) == TEN + 2 + HOUR


@pytest.mark.spec("X4-9")
def test_a_daily_service_comes_with_the_twenty_fifth_run_of_an_hourly_one() -> None:
    hourly, slots = Every(HOUR), [TEN]
    while len(slots) < 25:
        slots.append(hourly.after(slot=slots[-1], end=slots[-1] + 2, origin=TEN))
    assert slots[-1] == Every(86400.0).after(slot=TEN, end=TEN + 30, origin=TEN) == TEN + 86400


@pytest.mark.spec("X4-7")
def test_a_tenth_of_a_second_does_not_drift_in_a_day() -> None:
    tenth, slot = Every(0.1), TEN
    for _ in range(864_000):
        slot = tenth.after(slot=slot, end=slot, origin=TEN)
    assert slot == TEN + 86400


@pytest.mark.spec("X4-7")
def test_a_year_of_tenths_of_a_second_is_counted_at_once() -> None:
    year = 365 * 86400
    for anchor in ("slot", "grid"):
        assert Every(0.1, anchor).latest(TEN, TEN + year) == (TEN + year, year * 10 + 1)
        assert Every(0.1, anchor).latest(TEN, TEN + year - 0.000001) == (TEN + year - 0.1, year * 10)


def test_a_slot_is_not_passed_by_what_ends_a_hair_before_it() -> None:
    end = math.nextafter(TEN + 60, 0)
    assert Every(60.0, "grid").after(slot=TEN, end=end, origin=TEN) == TEN + 60
    assert Every(60.0).latest(TEN, end) == (TEN, 1)


@pytest.mark.parametrize("early", [0.25, 5.0, 500.0])
def test_a_grid_that_has_not_begun_begins_with_its_first_slot(early: float) -> None:
    assert Every(60.0, "grid").after(slot=TEN, end=TEN - early, origin=TEN) == TEN


@settings(deadline=None)
@given(MOMENTS, LENGTHS, st.floats(0, 1e6), st.sampled_from(ANCHORS))
def test_the_next_slot_is_never_early(slot: float, every: float, took: float, anchor: Anchor) -> None:
    end = slot + took
    following = Every(every, anchor).after(slot=slot, end=end, origin=slot)
    assert following > slot
    least = {"slot": slot + every, "end": end + every, "grid": end}[anchor]
    assert following >= least - 2e-6  # the length and the end are each rounded to a microsecond
    if anchor == "grid":
        assert following > end
    else:
        assert following <= least + 2e-6


@settings(deadline=None)
@given(MOMENTS, LENGTHS, st.integers(0, 300), st.floats(0, 1))
def test_the_grid_is_that_of_a_loop(origin: float, every: float, steps: int, part: float) -> None:
    end = origin + every * (steps + part)
    expected, step = us(origin), us(every)
    while expected / 1_000_000 <= end:
        expected += step
    assert Every(every, "grid").after(slot=origin, end=end, origin=origin) == expected / 1_000_000


@settings(deadline=None)
@given(MOMENTS, LENGTHS, st.integers(0, 300), st.floats(0, 1), st.sampled_from(["slot", "grid"]))
def test_the_latest_slot_is_that_of_a_loop(
    planned: float, every: float, steps: int, part: float, anchor: Anchor
) -> None:
    until = planned + every * (steps + part)
    slots = [planned]
    while (following := (us(slots[-1]) + us(every)) / 1_000_000) <= until:
        slots.append(following)
    assert Every(every, anchor).latest(planned, until) == (slots[-1], len(slots))


@settings(deadline=None)
@given(MOMENTS, LENGTHS, st.integers(1, 50), st.sampled_from(ANCHORS))
def test_latest_ends_on_the_slots_that_after_plans(planned: float, every: float, runs: int, anchor: Anchor) -> None:
    timing, slot = Every(every, anchor), planned
    for _ in range(runs):
        slot = timing.after(slot=slot, end=slot, origin=planned)
    assert timing.latest(planned, slot) == ((planned, 1) if anchor == "end" else (slot, runs + 1))
    assert timing.latest(slot, planned) == (slot, 0)


@settings(deadline=None)
@given(st.floats(1e9, 2.5e9), LENGTHS)
def test_a_first_slot_between_two_microseconds_is_its_own_latest(now: float, every: float) -> None:
    assert Every(every).latest(Every(every).first(now), now) == (now, 1)


@settings(deadline=None)
@given(MOMENTS, LENGTHS)
def test_a_preview_is_what_will_be(now: float, every: float) -> None:
    timing, expected = Every(every), [now]
    while len(expected) < 5:
        expected.append(timing.after(slot=expected[-1], end=expected[-1], origin=now))
    assert timing.preview(now, 5) == expected


# Triggers


def walk(timing: Timing, now: float, until: float) -> list[float]:
    slots = [timing.first(now)]
    while slots[-1] <= until:
        slots.append(timing.after(slot=slots[-1], end=slots[-1], origin=slots[0]))
    return slots[:-1]


def test_at_comes_once_and_is_due_at_once_when_past() -> None:
    timing = at(TEN)
    assert timing.every_s is None
    assert timing.first(TEN - 5) == timing.first(TEN + 5) == TEN
    assert timing.after(slot=TEN, end=TEN + 1, origin=TEN) == math.inf
    assert timing.latest(TEN, TEN + 1e6) == (TEN, 1)
    assert timing.preview(TEN - 5, 3) == [TEN]
    assert at(datetime.fromtimestamp(TEN, ZoneInfo("Europe/Sofia"))).first(0) == TEN
    with pytest.raises(BadInput, match="no zone"):
        at(datetime(2026, 1, 1))


def test_a_calendar_interval_that_began_long_ago_begins_now() -> None:
    trigger = CalendarIntervalTrigger(months=1, hour=9, start_date=date(2020, 1, 31), timezone="UTC")
    found = [datetime.fromtimestamp(at, UTC) for at in adapt(trigger).preview(TEN, 3)]
    assert [(at.month, at.day, at.hour) for at in found] == [(1, 31, 9), (3, 31, 9), (5, 31, 9)]


def test_an_interval_trigger_keeps_its_own_grid() -> None:
    start = datetime.fromtimestamp(TEN, UTC)
    timing = adapt(IntervalTrigger(seconds=0.1, start_date=start))
    assert timing.first(TEN + 86400.05) == TEN + 86400.1
    assert timing.after(slot=TEN + 0.1, end=TEN + 0.15, origin=TEN) == TEN + 0.2
    assert timing.latest(TEN, TEN + 60) == (TEN + 60, 601)


def test_a_trigger_that_ends_is_never_due_again() -> None:
    end = datetime.fromtimestamp(TEN + 10, UTC)
    timing = adapt(IntervalTrigger(seconds=5, start_date=end - timedelta(seconds=10), end_date=end))
    assert walk(timing, TEN, TEN + 1e6) == [TEN, TEN + 5, TEN + 10]
    assert timing.first(TEN + 11) == math.inf
    assert timing.preview(TEN + 6, 9) == [TEN + 10]


def test_either_of_two_triggers_each_keeps_its_own_times() -> None:
    start = datetime.fromtimestamp(TEN, UTC)
    dates = [DateTrigger(start + timedelta(hours=h)) for h in (2, 5)]
    every = IntervalTrigger(hours=3, start_date=start)
    weekly = CalendarIntervalTrigger(days=2, hour=11, start_date=date(2026, 1, 1), timezone="UTC")
    timing = adapt(OrTrigger([*dates, every, weekly, CronTrigger("0 12 * * *", "UTC")]))
    hours = [(at - TEN) / HOUR for at in walk(timing, TEN, TEN + 50 * HOUR)]
    expected = {2, 5} | set(range(0, 51, 3)) | {1, 49} | {2, 26, 50}
    assert hours == sorted(expected)
    assert timing.latest(TEN, TEN + 50 * HOUR) == (TEN + 50 * HOUR, len(expected))


def test_both_of_two_triggers_are_looked_for_within_bounds() -> None:
    timing = adapt(AndTrigger([CronTrigger("0 0 13 * *", "UTC"), CronTrigger("0 0 * * 5", "UTC")]))
    found = [datetime.fromtimestamp(at, UTC).date().isoformat() for at in timing.preview(TEN, 3)]
    assert found == ["2026-02-13", "2026-03-13", "2026-11-13"]
    never = adapt(AndTrigger([CronTrigger("0 9 * * *", "UTC"), CronTrigger("0 10 * * *", "UTC")]))
    assert never.first(TEN) == math.inf
    yearly = [CalendarIntervalTrigger(years=1, hour=h, start_date=date(2026, 1, 1), timezone="UTC") for h in (1, 2)]
    assert adapt(AndTrigger(yearly)).first(TEN) == math.inf


class Stuck:
    """A trigger that gives the same time for ever."""

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        return datetime.fromtimestamp(TEN, UTC)


def test_a_trigger_that_stands_still_has_ended() -> None:
    timing = adapt(Stuck())
    assert timing.first(TEN) == TEN
    assert timing.after(slot=TEN, end=TEN, origin=TEN) == math.inf


def test_a_trigger_that_cannot_work_is_refused() -> None:
    every = IntervalTrigger(hours=1, start_date=datetime.fromtimestamp(TEN, UTC))
    for trigger, problem in [
        (AndTrigger([CronTrigger("@daily", "UTC"), OrTrigger([every])]), "hardly ever meets"),
        (OrTrigger([every], jitter=5), "give jitter to the service"),
        (IntervalTrigger(hours=1, start_date=datetime.fromtimestamp(TEN, UTC), jitter=5), "give jitter"),
        ("0 9 * * *", "not an APScheduler trigger"),
    ]:
        with pytest.raises(BadInput, match=problem):
            of(service(trigger=trigger))


def test_cron_as_a_trigger_keeps_apschedulers_contract() -> None:
    trigger = CronTrigger("30 2 * * *", "America/New_York")
    now = datetime(2026, 3, 8, 0, 0, tzinfo=ZoneInfo("America/New_York"))
    first = trigger.get_next_fire_time(None, now)
    assert first is not None
    assert first.isoformat() == "2026-03-08T03:00:00-04:00"
    following = trigger.get_next_fire_time(first, now)
    assert following is not None
    assert following.isoformat() == "2026-03-09T02:30:00-04:00"
    assert trigger.get_next_fire_time(None, first) == first


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_latest_of_a_trigger_is_that_of_a_walk(seed: int) -> None:
    rng = random.Random(seed)
    start = datetime.fromtimestamp(TEN, UTC)
    timing = adapt(
        rng.choice(
            [
                IntervalTrigger(seconds=rng.choice([7, 0.3, 3600]), start_date=start),
                CalendarIntervalTrigger(days=rng.randint(1, 9), start_date=date(2025, 12, 1), timezone="Europe/Sofia"),
                TheirCronTrigger(hour="*/5", timezone="UTC"),
                OrTrigger([CronTrigger("*/50 * * * *", "UTC"), IntervalTrigger(hours=2, start_date=start)]),
            ]
        )
    )
    planned = timing.first(TEN + rng.random() * 1e5)
    until = planned + rng.random() * rng.choice([10, 100])
    slots = list(takewhile(lambda at: at <= until, timing.preview(planned, 500)))
    assume(len(slots) < 500)
    assert timing.latest(planned, until) == (slots[-1], len(slots))
    assert timing.latest(planned, planned - 1) == (planned, 0)


# Which timing holds


def test_schedule_is_over_the_services_own_and_that_over_the_schedulers() -> None:
    plain, daily = service(), service(every_s=86400.0, anchor="grid")
    nightly = service(cron="30 2 * * *", timezone="Europe/Sofia")
    assert of(plain, interval_s=HOUR) == Every(HOUR)
    assert of(daily, interval_s=HOUR) == Every(86400.0, "grid")
    assert of(daily, interval_s=HOUR, every_s=60.0) == Every(60.0, "grid")
    assert of(nightly, interval_s=HOUR) == Cron("30 2 * * *", ZoneInfo("Europe/Sofia"))
    assert of(nightly, every_s=60.0) == Every(60.0)
    assert of(daily, cron="@daily").every_s is None
    again = of(nightly, cron="0 4 * * *")
    assert again == Cron("0 4 * * *", ZoneInfo("Europe/Sofia"))  # its own zone still holds


def test_a_trigger_of_the_service_is_taken() -> None:
    trigger = CalendarIntervalTrigger(days=1, start_date=date(2026, 1, 1), timezone="Europe/Sofia")
    timing = of(service(trigger=trigger), interval_s=HOUR)
    assert timing == Calendar(trigger)
    assert isinstance(timing, Calendar)
    assert timing.zone == "Europe/Sofia"
    assert of(service(trigger=CronTrigger("@daily", "UTC"))) == Cron("0 0 * * *", ZoneInfo("UTC"))


def test_no_timing_and_two_timings_are_refused() -> None:
    with pytest.raises(BadInput, match="report=24h in schedule"):
        of(service())
    with pytest.raises(BadInput, match="give one of them"):
        of(service(), every_s=60.0, cron="@daily")
    with pytest.raises(BadInput, match="give one of every, cron and trigger"):
        of(service(every_s=60.0, cron="@daily"))
    for wrong in (0.0, -1.0, math.inf, math.nan, 1e-9):
        with pytest.raises(BadInput, match="between 1ms and 100 years"):
            of(service(), interval_s=wrong)


@pytest.mark.parametrize("shortest_or_longest", [0.001, 0.5, LONGEST_S])
def test_the_shortest_and_the_longest_interval_are_taken(shortest_or_longest: float) -> None:
    assert of(service(), interval_s=shortest_or_longest) == Every(shortest_or_longest)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (service(), False),
        (service(every_s=60.0), True),
        (service(cron="@daily"), True),
        (service(trigger=CronTrigger("@daily", "UTC")), True),
    ],
)
def test_a_service_says_itself_when_it_runs_or_not(asked: Service, says: bool) -> None:
    assert has_timing(asked) is says


# The command line's form


@pytest.mark.spec("X4-7")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("report", Scheduled(name="report")),
        ("report=24h", Scheduled(name="report", every_s=86400.0)),
        ("report=500ms", Scheduled(name="report", every_s=0.5)),
        ("report=cron 30 2 * * *", Scheduled(name="report", cron="30 2 * * *")),
        ("report=cron  15  30 2 * * *", Scheduled(name="report", cron="15 30 2 * * *")),
        ("report=cron @daily", Scheduled(name="report", cron="0 0 * * *")),
        ("report=@hourly", Scheduled(name="report", cron="0 * * * *")),
    ],
)
def test_an_entry_of_the_list_is_read(text: str, expected: Scheduled) -> None:
    assert parse_schedule(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("report=", "write 500ms, 90s"),
        ("report=60", "did you mean 60s or 60ms"),
        ("report=30 2 * * *", "report='cron 30 2 "),
        ("report=cron", "write 5 fields"),
        ("report=cron 0 0 30 2 *", "bad day-of-month"),
        ("=24h", "a name has 1 to 100"),
        ("", "a name has 1 to 100"),
        ("a/b=24h", "a name has 1 to 100"),
    ],
)
def test_a_bad_entry_is_refused_with_what_is_accepted(text: str, problem: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_schedule(text)
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["a", "_a", "mobile_de", "daily-report.v2", "9lives", "x" * 100])
def test_a_name_is_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "a\0",
        "\x1b[31mred",
        "[red]x",
        "<b>",
        "é",
        "x" * 101,
    ],
)
def test_a_name_with_a_path_markup_or_escape_codes_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="letters a-z") as refused:
        check_name(name)
    assert "\x1b" not in str(refused.value)
