"""Which runs were for which due times: the largest matching of points to windows. Pure.

Windows are intervals of one line, so that the greedy choice is the best there is: each point takes the window that is
open then and closes first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Window(NamedTuple):
    """Some point must lie in it, both ends included."""

    since: float
    until: float


class Matching(NamedTuple):
    of_point: dict[int, int]  # the place of a point -> the place of its window
    unmet: list[int]  # windows without a point
    spare: list[int]  # points without a window


def match(windows: Sequence[Window], points: Sequence[float]) -> Matching:
    """As many windows as can be have a point of their own."""
    arriving = sorted(range(len(windows)), key=lambda place: windows[place].since)
    open_now: list[tuple[float, int]] = []
    of_point: dict[int, int] = {}
    unmet: list[int] = []
    spare: list[int] = []
    next_one = 0
    for place in sorted(range(len(points)), key=lambda place: points[place]):
        at = points[place]
        while next_one < len(arriving) and windows[arriving[next_one]].since <= at:
            heapq.heappush(open_now, (windows[arriving[next_one]].until, arriving[next_one]))
            next_one += 1
        while open_now and open_now[0][0] < at:
            unmet.append(heapq.heappop(open_now)[1])
        if open_now:
            of_point[place] = heapq.heappop(open_now)[1]
        else:
            spare.append(place)
    return Matching(of_point, sorted([*unmet, *(place for _, place in open_now), *arriving[next_one:]]), spare)
