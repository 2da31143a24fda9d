"""What must not be after a cut, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.powercut.records import Told


def told(*marks: tuple[str, int, Any], before: dict[str, Any] | None = None) -> Told:
    lines = [f"{kind} {number} {json.dumps(rest)}\n" for kind, number, rest in marks]
    return Told(before or {}).hear_all("".join(lines))


ONE = ("begin", 1, [["task/a", 1]])
TWO = ("begin", 2, [["task/a", 2]])
PAIR = ("begin", 1, [["task/a", 1], ["task/b", 1]])
CYCLE = ("begin", 1, [["service_timing/s", 1], ["scheduler_state/s", 1]])


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (told(ONE), {}),
        (told(ONE), {"task/a": 1}),
        (told(ONE, ("done", 1, 7)), {"task/a": 1}),
        (told(ONE, ("done", 1, 7), TWO), {"task/a": 1}),
        (told(ONE, ("done", 1, 7), TWO), {"task/a": 2}),
        (told(ONE, ("done", 1, 7), ("begin", 2, [["task/a", None]]), ("done", 2, 7)), {}),
        (told(before={"task/a": 1}), {"task/a": 1}),
        (told(PAIR), {"task/a": 1, "task/b": 1}),
        (told(CYCLE), {"service_timing/s": 1}),
        (told(PAIR, TWO, ("begin", 3, [["task/a", 3]])), {"task/a": 3, "task/b": 1}),
    ],
)
def test_what_may_be(said: Told, found: dict[str, Any]) -> None:
    assert said.wrong(found) == []


@pytest.mark.parametrize(
    ("said", "found", "problem"),
    [
        (told(ONE, ("done", 1, 7)), {}, "acknowledged"),
        (told(ONE, ("done", 1, 7), TWO, ("done", 2, 7)), {"task/a": 1}, "acknowledged"),
        (told(ONE), {"task/a": 3}, "acknowledged"),
        (told(before={"task/a": 1}), {}, "acknowledged"),
        (told(ONE, ("done", 1, 7), ("begin", 2, [["task/a", None]]), ("done", 2, 7)), {"task/a": 1}, "acknowledged"),
        (told(), {"task/a": 1}, "nobody wrote it"),
        (told(PAIR), {"task/a": 1}, "half of a commit"),
        (told(CYCLE), {"scheduler_state/s": 1}, "without the one before it"),
    ],
)
def test_what_must_not_be(said: Told, found: dict[str, Any], problem: str) -> None:
    assert any(problem in line for line in said.wrong(found))


def test_a_mark_that_was_cut_off_was_never_made() -> None:
    assert Told({}).hear_all('begin 1 [["task/a", 1]]\ndone 1').acknowledged == 0
