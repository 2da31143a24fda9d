"""How a queue is set, as it is written."""

from __future__ import annotations

from typing import Any

import pytest

from raptor.errors import BadInput
from raptor.lines import set_line
from raptor.rows import Line

PLAIN = Line(name="mail")


@pytest.mark.spec("003-29", "003-18")
def test_the_defaults_of_a_queue() -> None:
    assert (PLAIN.lease_s, PLAIN.batch_size, PLAIN.processors, PLAIN.concurrency, PLAIN.rate, PLAIN.paused) == (
        60.0, 10, None, None, None, False
    )  # fmt: skip


@pytest.mark.spec("003-29")
@pytest.mark.parametrize(
    ("written", "field", "value"),
    [
        ({"paused": True}, "paused", True),
        ({"note": "x" * 300}, "note", "x" * 200),
        ({"processors": 4}, "processors", 4),
        ({"concurrency": 1}, "concurrency", 1),
        ({"batch_size": 100}, "batch_size", 100),
        ({"lease": "5m"}, "lease_s", 300.0),
        ({"lease": "100ms"}, "lease_s", 0.1),
        ({"max_attempts": 5}, "max_attempts", 5),
        ({"max_attempts": "unlimited"}, "max_attempts", None),
    ],
)
def test_each_setting_is_read(written: dict[str, Any], field: str, value: Any) -> None:
    made = set_line(PLAIN, written)
    assert getattr(made, field) == value
    assert made.name == "mail"


@pytest.mark.parametrize(
    ("written", "rate", "per_s"),
    [
        ("100/s", 100, 1.0),
        ("5/10min", 5, 600.0),
        ("1/0.5s", 1, 0.5),
        ("60/m", 60, 60.0),
        ("7/2h", 7, 7200.0),
        ("1/d", 1, 86400.0),
    ],
)
def test_a_rate_is_so_many_in_a_time(written: str, rate: int, per_s: float) -> None:
    made = set_line(PLAIN, {"rate": written})
    assert (made.rate, made.per_s) == (rate, per_s)


def test_none_takes_a_limit_away() -> None:
    limited = Line(name="mail", processors=1, concurrency=2, rate=3)
    free = set_line(limited, {"processors": "none", "concurrency": "none", "rate": "none"})
    assert (free.processors, free.concurrency, free.rate) == (None, None, None)


@pytest.mark.parametrize(
    "written",
    [
        {"paused": "yes"}, {"paused": 1}, {"note": 5}, {"processors": 0}, {"processors": True}, {"concurrency": -1},
        {"batch_size": "none"}, {"batch_size": 0}, {"batch_size": 2.5}, {"lease": "50ms"}, {"lease": 60},
        {"lease": "none"}, {"max_attempts": 0}, {"max_attempts": "none"}, {"rate": 5}, {"rate": "5"}, {"rate": "0/s"},
        {"rate": "-1/s"}, {"rate": "5/"}, {"rate": "5/x"}, {"rate": "5/0s"}, {"rate": "5/-1s"}, {"rate": "1.5/s"},
        {"rate": "5/nans"}, {"rate": "5/1e400s"},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(written: dict[str, Any]) -> None:
    (name,) = written
    with pytest.raises(BadInput, match=name):
        set_line(PLAIN, written)


def test_an_unknown_setting_is_refused_with_the_close_one() -> None:
    with pytest.raises(BadInput, match="processors"):
        set_line(PLAIN, {"procesors": 1})
