"""The matching of due times to runs is the best there is, compared with augmenting paths."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.testing.checker.matching import Window, match

INSTANCES = 2000


def best(windows: list[Window], points: list[float]) -> int:
    """The size of a largest matching, by augmenting paths."""
    of_window: dict[int, int] = {}

    def place(point: int, tried: set[int]) -> bool:
        for number, window in enumerate(windows):
            if window.since <= points[point] <= window.until and number not in tried:
                tried.add(number)
                if number not in of_window or place(of_window[number], tried):
                    of_window[number] = point
                    return True
        return False

    return sum(place(point, set()) for point in range(len(points)))


def check(windows: list[Window], points: list[float]) -> None:
    found = match(windows, points)
    assert len(found.of_point) == best(windows, points)
    assert len(set(found.of_point.values())) == len(found.of_point)
    for point, window in found.of_point.items():
        assert windows[window].since <= points[point] <= windows[window].until
    assert sorted([*found.of_point.values(), *found.unmet]) == list(range(len(windows)))
    assert sorted([*found.of_point, *found.spare]) == list(range(len(points)))


TIMES = st.integers(0, 20).map(float)


@given(st.lists(st.tuples(TIMES, st.integers(0, 8)), max_size=8), st.lists(TIMES, max_size=8))
@settings(max_examples=300, deadline=None)
def test_as_many_windows_as_possible_have_a_point(pairs: list[tuple[float, int]], points: list[float]) -> None:
    check([Window(since, since + length) for since, length in pairs], points)


def test_so_it_is_on_thousands_of_random_instances() -> None:
    rng = random.Random(4)
    for _ in range(INSTANCES):
        check(*windows_and_points(rng))


def windows_and_points(rng: random.Random) -> tuple[list[Window], list[float]]:
    span = rng.choice([3.0, 10.0, 40.0])
    windows = [
        Window(since := rng.uniform(0, span), since + rng.choice([0.0, rng.uniform(0, span / 2)]))
        for _ in range(rng.randrange(12))
    ]
    edges = [window.since for window in windows]
    return windows, [rng.choice([rng.uniform(0, span), *edges]) for _ in range(rng.randrange(12))]
