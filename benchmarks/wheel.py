"""Timers of the timing wheel, added and fired, beside a bare heap of tuples, which can neither cancel nor move one.

In processor time: times are handed in, so nothing is waited for.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from time import thread_time

from benchmarks.report import HEAP, RAPTOR, Figures, Result, Target, Value, spec
from benchmarks.rounds import Turn, fast, interleave, ratio
from raptor.wheel import Wheel

START = 1_700_000_000.0
HORIZON_S = 60.0
STEP_S = 0.01  # from one look to the next
FEW, MANY = 1_000, 100_000
MOST = 3.0  # times the heap's time: its loops are in C, the wheel's are not

Seconds = tuple[float, float]
"""For a timer: to add it, to fire it."""

Found = dict[str, list[Seconds]]


class Heap:
    """The least that fires timers in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[float, int, int]] = []
        self.added = 0

    def add(self, key: int, due: float) -> None:
        self.added += 1
        heappush(self.entries, (due, self.added, key))

    def advance(self, now: float) -> list[int]:
        due: list[int] = []
        while self.entries and self.entries[0][0] <= now:
            due.append(heappop(self.entries)[2])
        return due

    def next(self) -> float | None:
        return self.entries[0][0] if self.entries else None


Timers = Wheel[int] | Heap


def by_step(timers: Timers) -> int:
    """Look every 10 ms; -> how many were fired."""
    steps = range(1, int(HORIZON_S / STEP_S) + 1)
    return sum(len(timers.advance(START + step * STEP_S)) for step in steps)


def by_next(timers: Timers) -> int:
    """Look at each time at which one is due."""
    fired = 0
    while (at := timers.next()) is not None:
        fired += len(timers.advance(at))
    return fired


async def turn(make: Callable[[], Timers], fire: Callable[[Timers], int], dues: list[float]) -> Seconds:
    timers = make()
    started = thread_time()
    for key, due in enumerate(dues):
        timers.add(key, due)
    added = thread_time()
    fired = fire(timers)
    ended = thread_time()
    assert fired == len(dues), "one was not fired"
    return (added - started) / len(dues), (ended - added) / len(dues)


def measure(quick: bool) -> Result:
    chance = random.Random(1)
    turns: dict[str, Turn[Seconds]] = {}
    for count in (FEW, MANY):
        dues = [START + chance.random() * HORIZON_S for _ in range(count)]
        for fire in (by_step, by_next):
            turns[title(RAPTOR, fire, count)] = partial(turn, partial(Wheel[int], START), fire, dues)
            turns[title(HEAP, fire, count)] = partial(turn, Heap, fire, dues)
    found = asyncio.run(interleave(turns, 2 if quick else 10))
    return Result(targets=[*against_the_heap(found), *growth(found)], figures=list(figures(found)))


def title(who: str, fire: Callable[[Timers], int], count: int) -> str:
    return f"{who}, {fire.__name__}, {count}"


def against_the_heap(found: Found) -> Iterator[Target]:
    """Adding and firing together."""
    line = spec("001-15")
    for fire, looks in ((by_step, "a look every 10 ms"), (by_next, "a look at each due time")):
        ours, heap = ([sum(times) for times in found[title(who, fire, MANY)]] for who in (RAPTOR, HEAP))
        times = ratio(ours, heap)
        what = f"wheel, {MANY:,} timers, {looks}, time / heapq"
        yield Target(
            subject="wheel", what=what, value=times.fast, middle=times.middle, unit="x", at_most=MOST, spec=line
        )


def growth(found: Found) -> Iterator[Target]:
    """What one timer costs among many, beside what it costs among few."""
    for part, (doing, line) in enumerate((("add", spec("001-21")), ("fire", spec("001-22")))):
        many, few = ([times[part] for times in found[title(RAPTOR, by_next, count)]] for count in (MANY, FEW))
        times = ratio(many, few)
        what = f"wheel, {doing} one of {MANY:,} / of {FEW:,}, time"
        yield Target(
            subject="wheel", what=what, value=times.fast, middle=times.middle, unit="x", at_most=2.0, spec=line
        )


def figures(found: Found) -> Iterator[Figures]:
    for part, doing in enumerate(("add", "fire")):
        for count in (FEW, MANY):
            values: dict[str, Value] = {}
            for who in (RAPTOR, HEAP):
                values[who] = fast([times[part] for times in found[title(who, by_next, count)]]) * 1e6
            yield Figures(subject="wheel", what=f"{doing} one of {count:,}", unit="us", values=values)
