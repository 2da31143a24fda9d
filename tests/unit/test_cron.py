"""Cron, against an independent scan of every minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raptor.cron import Cron, _zones, check_cron, check_zone, explain, normal_cron, parse_cron, system_zone
from raptor.errors import BadInput

ZONES = ["Europe/Sofia", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu", "UTC"]


def when(text: str, zone: str = "UTC", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def shown(at: float, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S%z")


def upcoming(cron: Cron, start: float, n: int) -> list[str]:
    return [shown(at, cron.zone) for at in cron.preview(start, n)]


def field(text: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if body == "*" else body).partition("-")
        end = int(last) if last else high if step else int(first)
        values.update(range(int(first), end + 1, int(step or 1)))
    return values


def scan(expression: str, zone: str, start: datetime, end: datetime) -> Iterator[float]:
    """The fire times by looking at the clock on the wall every minute; five fields of numbers."""
    minute, hour, day, month, weekday = expression.split()
    allowed = field(minute, 0, 59), field(hour, 0, 23), field(day, 1, 31), field(month, 1, 12)
    weekdays = {n % 7 for n in field(weekday, 0, 7)}
    real = hour.startswith("*")

    def fits(wall: datetime) -> bool:
        dom, dow = wall.day in allowed[2], wall.isoweekday() % 7 in weekdays
        on_day = (dom and dow) if day.startswith("*") or weekday.startswith("*") else (dom or dow)
        return on_day and wall.minute in allowed[0] and wall.hour in allowed[1] and wall.month in allowed[3]

    tz, minute_long = ZoneInfo(zone), timedelta(minutes=1)
    furthest = max((start - n * minute_long).astimezone(tz).replace(tzinfo=None, fold=0) for n in range(1, 181))
    while start < end:
        wall = start.astimezone(tz).replace(tzinfo=None, fold=0)
        if real:
            fires = fits(wall)
        else:
            fires, shown_now = False, furthest
            while shown_now < wall:
                shown_now += minute_long
                fires = fires or fits(shown_now)
            furthest = max(furthest, wall)
        if fires:
            yield start.timestamp()
        start += minute_long


@pytest.mark.spec("001-30", "001-32")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 2 * * *", ["2026-01-02 02:00", "2026-01-03 02:00"]),
        ("*/15 * * * *", ["2026-01-01 12:15", "2026-01-01 12:30"]),
        ("0 9 * * 1", ["2026-01-05 09:00", "2026-01-12 09:00"]),  # 5 January is a Monday
        ("0 9 * * MON-TUE", ["2026-01-05 09:00", "2026-01-06 09:00"]),
        ("0 0 13 * 5", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00", "2026-01-16 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00"]),
        ("0 0 * * 1#1", ["2026-01-05 00:00", "2026-02-02 00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00"]),
        ("@hourly", ["2026-01-01 13:00", "2026-01-01 14:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@midnight", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("@Annually", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_an_expression_gives_its_times(expression: str, expected: list[str]) -> None:
    found = upcoming(parse_cron(expression, "UTC"), when("2026-01-01 12:00:30"), len(expected))
    assert found == [f"{at}:00+0000" for at in expected]


@pytest.mark.spec("001-31")
def test_six_fields_begin_with_seconds() -> None:
    cron = parse_cron("15,45 30 2 * * *", "UTC")
    found = upcoming(cron, when("2026-01-01"), 3)
    assert found == ["2026-01-01 02:30:15+0000", "2026-01-01 02:30:45+0000", "2026-01-02 02:30:15+0000"]


@pytest.mark.spec("001-29")
def test_the_first_may_be_now_and_the_next_is_later_than_its_slot() -> None:
    cron = parse_cron("0 10 * * *", "UTC")
    ten = when("2026-01-01 10:00:00")
    assert cron.first(ten) == ten
    assert cron.first(ten + 0.001) == ten + 86400
    assert cron.first(ten - 0.001) == ten
    assert cron.after(slot=ten, end=ten + 2, origin=ten) == ten + 86400
    assert cron.after(slot=ten, end=ten + 200_000, origin=ten) == ten + 86400  # late, and still planned then


@pytest.mark.parametrize(
    ("zone", "expression", "start", "expected"),
    [
        # 03:00 becomes 04:00: 03:30 does not exist.
        ("Europe/Sofia", "30 3 * * *", "2026-03-28 12:00", ["2026-03-29 04:00:00+0300", "2026-03-30 03:30:00+0300"]),
        ("Europe/Sofia", "15 30 3 * * *", "2026-03-28 12:00", ["2026-03-29 04:00:00+0300", "2026-03-30 03:30:15+0300"]),
        ("Europe/Sofia", "0,30 3 * * *", "2026-03-28 12:00", ["2026-03-29 04:00:00+0300", "2026-03-30 03:00:00+0300"]),
        # 04:00 becomes 03:00: 03:30 is there twice.
        ("Europe/Sofia", "30 3 * * *", "2026-10-24 12:00", ["2026-10-25 03:30:00+0300", "2026-10-26 03:30:00+0200"]),
        ("Europe/Sofia", "0 30 3 * * *", "2026-10-24 12:00", ["2026-10-25 03:30:00+0300", "2026-10-26 03:30:00+0200"]),
        ("America/New_York", "30 2 8 3 *", "2026-03-01", ["2026-03-08 03:00:00-0400", "2027-03-08 02:30:00-0500"]),
        ("America/New_York", "30 1 1 11 *", "2026-10-01", ["2026-11-01 01:30:00-0400", "2027-11-01 01:30:00-0400"]),
        # Half an hour: 02:00 becomes 02:30 in October, 02:00 becomes 01:30 in April.
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00", ["2026-10-04 02:30:00+1100"]),
        ("Australia/Lord_Howe", "*/15 3 * * *", "2026-10-03 12:00", ["2026-10-04 03:00:00+1100"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 12:00", ["2026-04-05 01:45:00+1100"]),
        # Midnight does not exist, and once a whole day did not.
        ("Africa/Cairo", "0 0 * * *", "2026-04-23 12:00", ["2026-04-24 01:00:00+0300", "2026-04-25 00:00:00+0300"]),
        ("Pacific/Apia", "0 9 * * *", "2011-12-29 12:00", ["2011-12-31 00:00:00+1400", "2011-12-31 09:00:00+1400"]),
    ],
)
def test_a_time_on_the_wall_runs_once_although_the_clock_changes(
    zone: str, expression: str, start: str, expected: list[str]
) -> None:
    assert upcoming(parse_cron(expression, zone), when(start, zone), len(expected)) == expected


def test_an_hourly_service_follows_real_time_when_the_clock_changes() -> None:
    cron = parse_cron("30 * * * *", "America/New_York")
    for day in ("2026-03-08", "2026-11-01"):
        start = when(f"{day} 00:00", "America/New_York")
        assert [at - start for at in cron.preview(start, 6)] == [1800 + 3600 * n for n in range(6)]


def test_in_the_second_pass_of_a_fold_nothing_comes_again() -> None:
    cron = parse_cron("30 1 * * *", "America/New_York")
    second_pass = when("2026-11-01 01:10", "America/New_York", fold=1)
    assert shown(cron.first(second_pass), cron.zone) == "2026-11-02 01:30:00-0500"
    assert shown(cron.last(second_pass), cron.zone) == "2026-11-01 01:30:00-0400"


EXPRESSIONS = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["0", "30", "15,45", "*/20", "*", "59", "5-50/15"]),
        st.sampled_from(["*", "*/2", "0", "1", "2", "3", "1-3", "0-23", "23", "0,12", "*/5"]),
        st.sampled_from(["*", "*", "1", "29", "*/2", "10-20"]),
        st.sampled_from(["*", "*", "3-4", "10,11"]),
        st.sampled_from(["*", "*", "0", "7", "1-5", "*/3"]),
    ),
)
CHANGES = [
    datetime(2026, 3, 29),
    datetime(2026, 10, 25),
    datetime(2026, 3, 8),
    datetime(2026, 11, 1),
    datetime(2026, 4, 4, 12),
    datetime(2026, 10, 3, 12),
    datetime(2026, 4, 24),
    datetime(2026, 10, 29, 12),
    datetime(2024, 2, 29),
]


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), st.sampled_from(CHANGES), st.integers(-1000, 600))
@example("*/15 3 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3, 12), 0)
@example("0,30 2 * * *", "America/New_York", datetime(2026, 3, 8), 0)
@example("15,45 1-3 * * *", "America/New_York", datetime(2026, 11, 1), 370)
def test_the_times_are_those_of_a_scan_minute_by_minute(
    expression: str, zone: str, change: datetime, minutes: int
) -> None:
    start = change.replace(tzinfo=UTC) + timedelta(minutes=minutes)
    end = start + timedelta(hours=40)
    cron = parse_cron(expression, zone)
    found = list(cron.times(start.timestamp() - 1, end.timestamp() - 1))
    assert [shown(at, zone) for at in found] == [shown(at, zone) for at in scan(expression, zone, start, end)]
    # Backwards, from any of them and from just before.
    for earlier, later in pairwise(found):
        assert cron.last(later) == later
        assert cron.last(later - 0.5) == earlier
    if found:
        assert cron.latest(found[0], end.timestamp() - 1) == (found[-1], len(found))


@settings(max_examples=100, deadline=None)
@given(EXPRESSIONS, st.sampled_from(ZONES), st.floats(1.5e9, 2.1e9))
def test_times_rise_and_are_found_again_from_behind(expression: str, zone: str, now: float) -> None:
    cron = parse_cron(expression, zone)
    times = list(islice(cron.times(now), 5))
    assert all(a < b for a, b in zip([now, *times], times, strict=False))
    for slot, following in pairwise(times):
        assert cron.after(slot=slot, end=slot, origin=slot) == following
        assert cron.last(following - 0.25) == slot
    assert now <= cron.first(now) <= times[0]
    assert cron.first(times[0]) == times[0]


def test_many_slots_are_counted_up_to_a_limit_and_the_last_is_exact() -> None:
    cron = parse_cron("* * * * * *", "UTC")
    start = when("2026-01-01")
    assert cron.latest(start, start + 99_998.5) == (start + 99_998, 99_999)
    assert cron.latest(start, start + 365 * 86400) == (start + 365 * 86400, 100_000)


def test_a_planned_time_that_is_no_time_of_the_expression_still_counts() -> None:
    cron = parse_cron("0 10 * * *", "UTC")
    odd = when("2026-01-01 10:30")
    assert cron.latest(odd, odd + 60) == (odd, 1)
    assert cron.latest(odd, odd + 86400) == (odd - 1800 + 86400, 2)
    assert cron.latest(odd, odd - 1) == (odd, 0)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("", "wrong number of fields"),
        ("* * * *", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("61 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 0 * *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("a b c d e", "bad minute"),
        ("-5 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 31 4,6 *", "bad day-of-month"),
        ("0 0 LW * */6", "no such date ever comes"),
        ("@reboot", "no such name"),
        ("@", "no such name"),
        ("9" * 5000 + " * * * *", "too long"),
    ],
)
def test_a_bad_expression_is_refused_with_what_is_accepted(expression: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as refused:
        parse_cron(expression, "UTC")
    assert "write 5 fields (minute hour day month weekday)" in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_rare_date_is_not_an_impossible_one() -> None:
    cron = parse_cron("0 0 * 2 1#5", "UTC")  # a 29 February that is a Monday
    assert upcoming(cron, when("2026-01-01"), 1) == ["2044-02-29 00:00:00+0000"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Sofi", "Europe/Sofia"),
        ("europe/sofia", "Europe/Sofia"),
        ("Sofia", "Europe/Sofia"),
        ("New York", "America/New_York"),
        ("America", "America/"),
        ("", "a name such as Europe/Sofia"),
        ("../../etc/passwd", "no such zone"),
        ("/etc/localtime", "no such zone"),
        ("x\0y", "no such zone"),
        ("q" * 500, "a name such as Europe/Sofia"),
    ],
)
def test_an_unknown_zone_is_refused_with_close_names(name: str, hint: str) -> None:
    with pytest.raises(BadInput, match=hint):
        parse_cron("@daily", name)


def test_three_close_names_are_enough() -> None:
    with pytest.raises(BadInput, match=r"did you mean \S+ or \S+ or \S+\?"):
        parse_cron("@daily", "Etc/GMT+99")


def test_without_a_zone_the_systems_is_used_and_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    import tzlocal.unix

    assert parse_cron("@daily").zone == str(system_zone())
    monkeypatch.setattr(tzlocal.unix, "_cache_tz", None)
    monkeypatch.setenv("TZ", "Europe/Sofia")
    assert parse_cron("@daily").zone == "Europe/Sofia"
    monkeypatch.setattr(tzlocal.unix, "_cache_tz", None)
    monkeypatch.setenv("TZ", "XYZ-3")
    with pytest.raises(BadInput, match="set TZ to a name such as"):
        parse_cron("@daily")


def test_an_expression_is_explained() -> None:
    assert explain("30 2 * * *") == "At 02:30 every day"
    assert explain("@hourly") == explain("0 * * * *")
    with pytest.raises(BadInput):
        explain("nonsense")


@settings(deadline=None)
@given(st.text(max_size=30) | st.text("0123456789*/,-LW#@ ", max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        cron = parse_cron(text, "Europe/Sofia")
    except BadInput:
        return
    now = when("2026-01-01")
    assert now <= cron.first(now) < math.inf
    assert cron.last(now) <= now
    assert explain(text)


def test_a_time_that_is_asked_for_exactly_is_among_the_answers() -> None:
    cron = parse_cron("0 10 * * *", "UTC")
    ten, day = when("2026-01-01 10:00"), 86400.0
    assert cron.preview(ten, 2) == [ten, ten + day]
    assert cron.preview(ten + 1, 1) == [ten + day]
    assert list(cron.times(ten - 1, ten)) == [ten]
    assert list(cron.times(ten, ten + day)) == [ten + day]
    assert cron.latest(ten, ten) == (ten, 1)


def test_an_expression_of_two_hundred_characters_is_the_longest() -> None:
    assert normal_cron("* * * * *".ljust(200)) == "* * * * *"
    with pytest.raises(BadInput, match="too long") as refused:
        normal_cron("* * * * *".ljust(201))
    assert f"{'* * * * *'.ljust(40)}..." in str(refused.value)
    wrong = "x".ljust(200)
    with pytest.raises(BadInput) as shown_whole:
        normal_cron(wrong)
    assert wrong in str(shown_whole.value)


@pytest.mark.parametrize("check", [check_cron, check_zone])
@pytest.mark.parametrize("value", [5, None, b"UTC", "nonsense"])
def test_whatever_is_neither_is_refused(check: Callable[[object], None], value: object) -> None:
    with pytest.raises(BadInput):
        check(value)


def test_what_is_right_is_not_refused() -> None:
    check_cron("@daily")
    check_zone("Europe/Sofia")


def test_a_zone_is_known_by_its_city_too() -> None:
    names = _zones()
    assert names["sofia"] == names["europe/sofia"] == "Europe/Sofia"
    assert names["buenos_aires"] in ("America/Argentina/Buenos_Aires", "America/Buenos_Aires")
    assert names["cet"] == "CET"


def test_a_machine_without_the_name_of_a_zone_is_read_from_its_rules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tzlocal

    rules = tmp_path / "localtime"
    asked: list[str] = []

    def placed(path: str) -> Path:
        asked.append(path)
        return rules

    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(tzlocal, "get_localzone_name", lambda: None)
    monkeypatch.setattr("raptor.cron.Path", placed)
    assert system_zone() == ZoneInfo("UTC")
    sofia = next(path for base in TZPATH if (path := Path(base) / "Europe/Sofia").exists())
    rules.write_bytes(sofia.read_bytes())
    summer = datetime(2026, 7, 1, tzinfo=system_zone())
    assert summer.utcoffset() == timedelta(hours=3)
    assert Cron("0 0 * * *", system_zone()).zone == "local"
    assert set(asked) == {"/etc/localtime"}
