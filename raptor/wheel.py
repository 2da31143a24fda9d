"""A hierarchical timing wheel: which keys are due, and when to look next. It reads no clock and starts nothing.

Slots decide only when an entry is looked at. Whether it is due is decided by its time itself, so that neither the
length of a tick nor rounding makes anything early or late.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf, prod
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K")
Entry: TypeAlias = tuple[float, int, K]  # due, the how many-th that was added, key
Slot: TypeAlias = dict[K, Entry[K]]

STALE = 64  # so many cancelled entries may wait in the heap before they are worth a sweep


class Level(Generic[K]):
    """A ring of slots, each `width` ticks wide, with a bit for each that may hold something.

    It holds the ticks before `end`, at which the level above moves on. The top level has no end: what is rounds away
    shares a slot with what is near, and stays there whenever the slot comes. Its tick says how many; none is counted.
    """

    def __init__(self, width: int, size: int) -> None:
        self.width = width
        self.size = size
        self.end: float = inf
        self.bits = 0
        self.slots: list[Slot[K]] = [{} for _ in range(size)]

    def put(self, tick: int, entry: Entry[K]) -> Slot[K]:
        index = tick // self.width % self.size
        slot = self.slots[index]
        if not slot:
            self.bits |= 1 << index
        slot[entry[2]] = entry
        return slot

    def occupied(self, tick: int, count: int) -> Iterator[int]:
        """The slots that hold something, in order, among the `count` that follow the one of the tick."""
        first = (tick // self.width + 1) % self.size
        ring = (self.bits >> first | self.bits << self.size - first) & (1 << min(count, self.size)) - 1
        while ring:
            low = ring & -ring
            ring ^= low
            index = (low.bit_length() - 1 + first) % self.size
            if self.slots[index]:
                yield index
            else:  # emptied by cancelling
                self.bits &= ~(1 << index)

    def take(self, since: int, tick: int) -> list[Slot[K]]:
        """Empty the slots that lie after `since`, up to the one of the tick."""
        taken: list[Slot[K]] = []
        for index in self.occupied(since, tick // self.width - since // self.width):
            taken.append(self.slots[index])
            self.slots[index] = {}
            self.bits &= ~(1 << index)
        return taken


class Wheel(Generic[K]):
    """Keys and the times at which they are due.

    A level holds what lies in the current slot of the level above it; when that one moves on, its next slot is dealt
    out to the levels below. So each level is later than the one below, and an entry moves once a level, at most.
    What lies in the current tick, or behind it after the clock was set back, is kept in a heap.
    """

    def __init__(self, now: float, *, tick_s: float = 0.001, sizes: tuple[int, ...] = (256, 64, 64, 64)) -> None:
        assert min(tick_s, *sizes) > 0, "a wheel needs a tick and slots"
        self._tick_s = tick_s
        self._levels: list[Level[K]] = [Level(prod(sizes[:depth]), size) for depth, size in enumerate(sizes)]
        self._homes: dict[K, Slot[K]] = {}
        self._current: Slot[K] = {}
        self._heap: list[Entry[K]] = []  # what is in `_current`, and cancelled ones that were
        self._added = 0
        self._bound: float | None = None  # nothing is due before it; None when that is not known
        self._tick = int(now / tick_s)
        self._set_ends()

    def __len__(self) -> int:
        return len(self._homes)

    def __contains__(self, key: object) -> bool:
        return key in self._homes

    def add(self, key: K, due: float) -> None:
        """Hold a key until it is due, in O(1). One that is held already moves, behind others of the same time."""
        tick = int(due / self._tick_s)  # before anything changes: it refuses what is no time
        if key in self._homes:
            self.cancel(key)
        self._added += 1
        self._place(tick, (due, self._added, key))
        if self._bound is not None and due < self._bound:
            self._bound = due

    def cancel(self, key: K) -> bool:
        """Forget a key, in O(1); False if it is not held."""
        home = self._homes.pop(key, None)
        if home is None:
            return False
        del home[key]
        return True

    def advance(self, now: float) -> list[K]:
        """Take out every key that is due, the earliest first, those of the same time in the order of adding.

        O(1) before the time of `next()`. From it on O(entries in the slots passed), however far the time jumps, and a
        sort of what is due. A time before the last one is just a time at which less is due.
        """
        bound = self.next()
        if bound is None or now < bound:
            return []
        self._bound = None
        due: list[Entry[K]] = []
        tick = int(now / self._tick_s)
        if tick > self._tick:
            for entry in self._turn(tick):
                if entry[0] <= now:
                    due.append(entry)
                else:
                    self._place(int(entry[0] / self._tick_s), entry)
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if self._current.get(entry[2]) is entry:
                del self._current[entry[2]]
                due.append(entry)
        due.sort()
        for entry in due:
            del self._homes[entry[2]]
        return [entry[2] for entry in due]

    def next(self) -> float | None:
        """When to advance next: the earliest due time, or None if nothing is held.

        Where the earliest was cancelled or moved its time stands, which costs one advance for nothing. O(1) until
        that time is reached, then O(entries of the next slot), and O(all) if the next is more than a ring away.
        """
        if not self._homes:
            self._bound = None
        elif self._bound is None:
            self._bound = self._earliest()
        return self._bound

    def _place(self, tick: int, entry: Entry[K]) -> None:
        if tick > self._tick:
            for level in self._levels:
                if tick < level.end:
                    self._homes[entry[2]] = level.put(tick, entry)
                    return
        self._current[entry[2]] = entry
        self._homes[entry[2]] = self._current
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._current) + STALE:
            self._heap = list(self._current.values())
            heapify(self._heap)

    def _turn(self, tick: int) -> list[Entry[K]]:
        """Go to a tick and give what was in the slots passed or reached on the way, on every level."""
        taken: list[Slot[K]] = []
        for level in self._levels:
            if tick // level.width == self._tick // level.width:
                break  # nor do those above move
            taken += level.take(self._tick, tick)
        self._tick = tick
        if tick >= self._levels[0].end:
            self._set_ends()
        return list(chain.from_iterable(slot.values() for slot in taken))

    def _set_ends(self) -> None:
        for level in self._levels[:-1]:
            span = level.width * level.size
            level.end = (self._tick // span + 1) * span

    def _earliest(self) -> float:
        if self._heap:  # a cancelled one too: it costs a look at most
            return self._heap[0][0]
        earliest = inf
        for level in self._levels:
            ring_end = (self._tick // level.width + level.size + 1) * level.width
            for index in level.occupied(self._tick, level.size):
                earliest = min(earliest, min(level.slots[index].values())[0])
                if int(earliest / self._tick_s) < ring_end:
                    return earliest
        return earliest
