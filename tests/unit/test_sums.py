"""Checksums of a task's row: what they tell apart, and what they do not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from math import inf, nextafter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.state.sums import ASKED, FATE, TICKS, asked, fate, moment, plain

NOW = 1_763_433_600.25
PUT: dict[str, Any] = dict.fromkeys(ASKED) | {
    "id": 7, "queue": "default", "service": "work", "data": "{}", "priority": 5, "due": NOW + 1, "created": NOW,
    "max_attempts": 3,
}  # fmt: skip
FRESH: dict[str, Any] = dict.fromkeys(FATE) | {
    "state": "ready", "attempts": 0, "reason": "", "deaths": 0, "suspect": 0, "fence": 0, "unwanted": 0,
}  # fmt: skip
SUMS = [
    280821380, 276627076, 3117709308, 3546459387, 3842002633, -491269891, 4442778317, 0,
    619073667, 1784656994, 2055627036,
]  # fmt: skip
COUNTS = ("priority", "max_attempts", "parent", "attempts", "deaths", "suspect", "fence", "unwanted")
TEXTS = ("queue", "service", "data", "key", "timing", "state", "output", "error", "reason", "history", "owner")


def of_asked(**changes: Any) -> int | None:
    return asked(*(PUT | changes).values())


def of_fate(**changes: Any) -> int | None:
    return fate(*(FRESH | changes).values())


def test_a_task_that_nothing_has_become_of_has_the_fate_0() -> None:
    assert of_fate() == 0


def test_a_plain_task_has_the_same_sum_as_by_all_of_its_columns() -> None:
    wait = moment(NOW + 1) - moment(NOW)
    assert plain(7, "default", "work", "{}", 5, 3, wait) == of_asked()
    assert plain(7, "default", "work", b"\x80", 5, None, wait) == of_asked(data=b"\x80", max_attempts=None)


@pytest.mark.parametrize("name", [*ASKED, *FATE])
def test_any_other_value_of_any_column_has_another_sum(name: str) -> None:
    """A bit of a number flipped, wherever it is, and a text with another character, or none."""
    of = of_asked if name in ASKED else of_fate
    start = (PUT if name in ASKED else FRESH)[name]
    if name in TEXTS:
        values: list[Any] = [*{start, "", "x", "y", "xx", "\0", f"{start} "}]
    elif name in COUNTS or name == "id":
        values = [(start or 0) ^ 1 << bit for bit in range(62)] + [-1, start or 0]
    else:
        values = [
            start or 0.0,
            *((start or NOW) * 2.0**power for power in (-3, -1, 1, 3)),
            nextafter(start or NOW, inf),
        ]
        values += [0.5, nextafter(0.5, inf), 1e300]
    sums = [of(**{name: value}) for value in values]
    assert len(set(sums)) == len(values)


def test_bytes_are_told_from_a_text_of_the_same_bytes() -> None:
    assert of_asked(data=b"{}") != of_asked()
    assert of_fate(reason=b"") != of_fate()


def test_a_value_of_another_kind_has_no_sum_or_another() -> None:
    for name, value in ((name, value) for name in ASKED for value in (None, "x", b"x", 2.5) if value != PUT[name]):
        assert of_asked(**{name: value}) != of_asked(), (name, value)
    for name, value in ((name, value) for name in FATE for value in (None, "x", b"x", 2.5) if value != FRESH[name]):
        assert of_fate(**{name: value}) != of_fate(), (name, value)


def test_an_integer_and_the_float_that_the_file_gives_back_are_the_same() -> None:
    assert of_asked(due=5, key_until=7) == of_asked(due=5.0, key_until=7.0)
    assert of_fate(started=5, suspect=True) == of_fate(started=5.0, suspect=1)


def test_what_no_file_takes_has_no_sum() -> None:
    assert of_asked(key="\ud800") is None
    assert of_fate(output="\ud800") is None


@given(st.floats(2.0**30, 2.0**31))
def test_sqlite_counts_a_time_of_these_years_as_we_do(at: float) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        (found,) = connection.execute(f"SELECT CAST(? * {TICKS} AS INTEGER)", (at,)).fetchone()
    assert found == moment(at)
    assert found / TICKS == at


def test_the_sums_are_those_that_files_have() -> None:
    """Whoever changes one of them makes all that was ever stored look damaged."""
    rare = {"key": "k", "key_until": 9, "parent": 1, "active_s": 2.5, "timeout_s": 3, "timing": "{}"}
    later = {"previous": NOW, "started": NOW, "ended": NOW + 1, "output": "7", "history": "[]"}
    found = [
        of_asked(), of_asked(due=NOW), of_asked(priority=0, max_attempts=None),
        of_asked(priority=9, max_attempts=2**40), of_asked(data=b"\x80\xff", due=NOW - 1),
        of_asked(due=5.5, created=2.0**31 + 1), of_asked(**rare), of_fate(), of_asked(queue="\udcff", data=b""),
        of_fate(state="taken", started=NOW, fence=1, owner="a" * 32, lease=NOW + 60),
        of_fate(state="done", attempts=2, fence=3, **later),
    ]  # fmt: skip
    assert found == SUMS


def test_the_first_and_the_last_time_that_are_whole_numbers() -> None:
    assert [moment(2.0**30), moment(2.0**31)] == [2**52, 2**53]
    assert max(moment(nextafter(2.0**30, 0)), moment(nextafter(2.0**31, inf)), moment(0.0)) < 2**32


def test_a_number_that_is_too_large_for_the_beginning_of_a_sum_is_told_from_its_rest() -> None:
    assert len({of_asked(priority=number, max_attempts=None) for number in (0, 2**32, 2**33, -1, 2**32 - 1)}) == 5
