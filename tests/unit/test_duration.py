"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.errors import BadInput
from raptor.timing import seconds, show_seconds

YEARS_100 = 36525 * 86400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        (" 24h ", 86400.0),
        ("500ms", 0.5),
        ("0.1s", 0.1),
        ("1d", 86400.0),
        ("2w", 1209600.0),
        ("1.5h", 5400.0),
        ("1w2d3h4m5s6ms", 788645.006),
        ("PT1H30M", 5400.0),
        ("P1D", 86400.0),
        ("P1DT12H", 129600.0),
        ("P2W", 1209600.0),
        ("PT0.25S", 0.25),
        ("pt90s", 90.0),
        (timedelta(hours=1, microseconds=7), 3600.000007),
    ],
)
@pytest.mark.spec("X4-7")
def test_a_duration_is_read(text: str | timedelta, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("number", ["90", 90, "1.5", 1.5, "+3", ".5"])
def test_a_bare_number_is_refused_with_a_hint(number: Any) -> None:
    with pytest.raises(BadInput, match=rf"did you mean {str(number).replace('+', '.')}s or"):
        seconds(number)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("0s", "more than zero"),
        ("PT0S", "more than zero"),
        (timedelta(0), "more than zero"),
        (timedelta(seconds=-1), "more than zero"),
        ("-5s", "no sign"),
        ("-PT5S", "no sign"),
        ("0.1ms", "shorter than 1ms"),
        ("5x", "unknown unit 'x'"),
        ("5M", "unknown unit 'M'"),
        ("5 minutes", "the units are w, d, h, m, s and ms"),
        ("1h1h", "there twice"),
        ("1.5h30m", "decimals"),
        ("PT1.5H30M", "decimals"),
        ("1h30", "not a duration"),
        ("h", "not a duration"),
        ("soon", "not a duration"),
        ("1e3s", "unknown unit 'e'"),
        ("١s", "not a duration"),
        ("1s\x1b[31m", "not a duration"),
        ("101w 40000d", "longer than 100 years"),
        ("9" * 60 + "s", "longer than 100 years"),
        ("9" * 5000 + "s", "too long"),
        ("P1M", "no fixed length"),
        ("P1Y", "no fixed length"),
        ("P", "not an ISO"),
        ("PT", "not an ISO"),
        ("P1DT", "not an ISO"),
        ("P1D2W", "not an ISO"),
        (None, "not a duration"),
        (True, "not a duration"),
    ],
)
def test_a_bad_duration_is_refused_with_what_is_accepted(text: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as refused:
        seconds(text)
    assert "write 500ms, 90s, 1h30m" in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize(
    ("s", "text"),
    [
        (3600, "1h"),
        (43200, "12h"),
        (86400, "24h"),
        (5400, "1h30m"),
        (129600, "36h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (90, "1m30s"),
        (0.5, "500ms"),
        (0.0015, "1.5ms"),
        (1.5, "1.5s"),
        (0, "0s"),
        (-90, "-1m30s"),
        (float("inf"), "never"),
    ],
)
def test_a_duration_is_shown(s: float, text: str) -> None:
    assert show_seconds(s) == text


@settings(deadline=None)
@given(st.integers(1_000, YEARS_100 * 1_000_000))
def test_what_is_shown_is_read_back(us: int) -> None:
    assert seconds(show_seconds(us / 1_000_000)) == us / 1_000_000


@settings(deadline=None)
@given(st.timedeltas(timedelta(milliseconds=1), timedelta(days=36525)))
def test_a_timedelta_keeps_its_length(length: timedelta) -> None:
    assert seconds(length) == length.total_seconds()


@settings(deadline=None)
@given(st.text(max_size=20) | st.text("0123456789.PTWDHMSwdhms +-", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = seconds(text)
    except BadInput:
        return
    assert 0.001 <= read <= YEARS_100
