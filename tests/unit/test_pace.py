"""A rate: never exceeded in any span, wholly there after idle time, and in few entries."""

from __future__ import annotations

from math import nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.state.pace import GRAIN, Starts, allowance, started

rates = st.integers(1, 200)
spans = st.sampled_from([0.1, 1.0, 3.7, 60.0])
steps = st.lists(st.tuples(st.floats(0.0, 0.3), st.integers(0, 50)), max_size=60)  # (parts of a span, how many wanted)


@given(rates, spans, steps, st.lists(st.floats(0.0, 2.0), max_size=60))
def test_no_span_holds_more_starts_than_the_rate_even_if_the_clock_is_set_back(
    rate: int, per_s: float, steps: list[tuple[float, int]], setbacks: list[float]
) -> None:
    now, real = 1_700_000_000.3, 0.0
    starts: Starts = []
    done: list[tuple[float, int]] = []  # in real time
    for number, (wait, wanted) in enumerate(steps):
        real += wait * per_s
        now += wait * per_s
        if number < len(setbacks) and number % 3 == 0:
            now -= setbacks[number] * per_s
        count = min(allowance(starts, now, rate, per_s).starts, wanted)
        starts = started(starts, now, count, per_s)
        done.append((real, count))
        assert len(starts) <= GRAIN + 2
    shortest = per_s * (1 - 1e-6)  # a clock of today has no more digits
    for end, _ in done:
        assert sum(count for at, count in done if end - shortest < at <= end) <= rate


@given(rates, spans, steps)
def test_after_idle_time_as_many_as_the_rate_may_start_at_once(
    rate: int, per_s: float, steps: list[tuple[float, int]]
) -> None:
    now = 1000.0
    starts: Starts = []
    for wait, wanted in steps:
        now += wait * per_s
        starts = started(starts, now, min(allowance(starts, now, rate, per_s).starts, wanted), per_s)
    assert allowance(starts, now + per_s, rate, per_s).starts == rate


@given(rates, spans, steps)
def test_there_are_more_at_the_moment_that_is_told_and_none_before(
    rate: int, per_s: float, steps: list[tuple[float, int]]
) -> None:
    now = 1_700_000_000.3
    starts: Starts = []
    for wait, _ in steps:
        now += wait * per_s
        starts = started(starts, now, allowance(starts, now, rate, per_s).starts, per_s)
        left, more_at = allowance(starts, now, rate, per_s)
        assert left == 0
        assert more_at > now
        assert allowance(starts, nextafter(more_at, 0.0), rate, per_s).starts == 0
        assert allowance(starts, more_at, rate, per_s).starts > 0


@pytest.mark.parametrize("rate", [10, 64, 100, 1000])
def test_starts_in_a_steady_trickle_reach_the_rate(rate: int) -> None:
    """Merged starts count as the latest of them; that must not add up."""
    starts: Starts = []
    total = 0
    for number in range(10 * rate):
        now = number / rate
        count = min(allowance(starts, now, rate, 1.0).starts, 2)
        starts = started(starts, now, count, 1.0)
        total += count
    assert total >= 10 * rate * (1 - 2 / GRAIN) - rate


def test_a_clock_that_was_set_back_costs_one_span_and_no_more() -> None:
    starts = started([], 5000.0, 3, 10.0)
    assert allowance(starts, 1000.0, 3, 10.0) == (0, 1010.0)
    starts = started(starts, 1000.0, 0, 10.0)  # kept, so that the wait is counted from there
    assert allowance(starts, 1009.0, 3, 10.0) == (0, 1010.0)
    assert allowance(starts, 1010.0, 3, 10.0).starts == 3


def test_a_rate_of_nothing_is_asked_for_again_a_span_later() -> None:
    assert allowance([], 100.0, 0, 10.0) == (0, 110.0)
