"""How many tasks a second were done lately."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.tally import LATELY_S, Tally
from raptor.task import Again, Dead, Done, Outcome, Result, Retry, Task, Verdict

OK = Result(outcome=Outcome.OK)

TASK = Task(service="work", due=1.0)


class Times:
    """A monotonic clock that stands where it is put."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def ended(tally: Tally, *verdicts: Verdict) -> None:
    tally.add([([(TASK, OK, verdict, True) for verdict in verdicts], 0.1)])


def test_what_was_done_counts_and_nothing_else() -> None:
    times = Times()
    tally = Tally(times)
    ended(tally, Done(), Done(), Done(), Retry(at=1.0), Again(at=1.0), Dead(reason="failed"))
    times.at += 10
    assert tally.rate() == 0.3
    assert tally.show()["done_per_s"] == 0.3
    assert tally.show()["processed"] == 6


def test_within_its_first_second_it_does_not_boast() -> None:
    times = Times()
    tally = Tally(times)
    ended(tally, Done())
    times.at += 0.001
    assert tally.rate() == 1.0


def test_after_a_minute_it_is_of_the_last_minute() -> None:
    times = Times()
    tally = Tally(times)
    for _ in range(300):
        ended(tally, *[Done()] * 5)
        times.at += 1
    assert tally.rate() == pytest.approx(5, rel=0.02)
    times.at += LATELY_S
    assert tally.rate() == 0


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 20)), max_size=200))
def test_it_is_what_a_list_of_every_end_would_say_and_stays_small(steps: list[tuple[float, int]]) -> None:
    times, ends = Times(), list[float]()
    tally = Tally(times)
    for wait, count in steps:
        times.at += wait
        ended(tally, *[Done()] * count)
        ends += [times.at] * count
        span = min(max(times.at - 1000.0, 1.0), LATELY_S)
        since = math.floor(times.at) - LATELY_S  # by whole seconds
        assert tally.rate() == pytest.approx(sum(math.floor(end) > since for end in ends) / span)
        assert len(tally._lately) <= LATELY_S
