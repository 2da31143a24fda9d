"""The timing wheel: each key in its order, at the first look at or after its time, and never before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan, nextafter, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raptor.wheel import STALE, Level, Wheel

START = 1_700_000_000.37
SHAPES = ((256, 64, 64, 64), (3600,), (3600, 60, 24), (1,), (2, 2), (4, 1, 3), (8, 8), (1, 1, 1))
TICKS = (0.001, 0.1, 1.0, 3.7, 1 / 3)


def one_level(now: float = START) -> Wheel[str]:
    """3600 slots of a second each, and rounds."""
    return Wheel(now, tick_s=1.0, sizes=(3600,))


def before(at: float) -> float:
    return nextafter(at, -inf)


def held(level: Level[str]) -> dict[int, set[str]]:
    return {index: set(slot) for index, slot in enumerate(level.slots) if slot}


@pytest.mark.spec("001-16", "001-17", "001-18")
@pytest.mark.parametrize("delay", [1, 59, 3599])
def test_a_delay_lies_that_many_slots_of_a_second_on_in_a_ring_of_3600(delay: int) -> None:
    wheel = one_level()
    wheel.add("a", START + delay)
    (ring,) = wheel._levels
    assert held(ring) == {(int(START) + delay) % 3600: {"a"}}


@pytest.mark.spec("001-19", "001-20")
def test_an_entry_that_is_rounds_away_stays_in_its_slot_until_its_own_round() -> None:
    wheel = one_level()
    for key, delay in (("now", 5), ("two rounds on", 2 * 3600 + 5)):
        wheel.add(key, START + delay)
    (ring,) = wheel._levels
    slot = (int(START) + 5) % 3600
    assert held(ring) == {slot: {"now", "two rounds on"}}
    assert wheel.advance(START + 5) == ["now"]
    assert wheel.advance(START + 3600 + 5) == []
    assert held(ring) == {slot: {"two rounds on"}}
    assert wheel.advance(START + 2 * 3600 + 5) == ["two rounds on"]


@pytest.mark.spec("001-23", "R1-06")
@pytest.mark.parametrize("delay", [0, 3600, 7200, 57600])
def test_a_delay_of_whole_rounds_is_neither_a_round_late_nor_early(delay: int) -> None:
    wheel = one_level()
    wheel.add("a", START + delay)
    for second in range(delay):
        assert wheel.advance(START + second) == []
    assert wheel.advance(before(START + delay)) == []
    assert wheel.advance(START + delay) == ["a"]


@pytest.mark.spec("R1-06")
def test_part_of_a_second_is_not_cut_off() -> None:
    wheel = one_level(100.0)
    wheel.add("a", 110.9)
    assert wheel.advance(110.0) == []
    assert wheel.advance(before(110.9)) == []
    assert wheel.next() == 110.9
    assert wheel.advance(110.9) == ["a"]


@pytest.mark.spec("R1-06")
def test_what_is_overdue_when_it_is_added_comes_at_the_next_look() -> None:
    wheel = one_level()
    wheel.add("a", START - 7200)
    assert wheel.next() == START - 7200
    assert wheel.advance(START) == ["a"]


@pytest.mark.spec("001-33")
def test_an_entry_moves_down_a_level_when_the_slot_it_lies_in_is_reached() -> None:
    wheel: Wheel[str] = Wheel(0.0, tick_s=1.0, sizes=(3600, 60, 24))
    hour, ring = 3600, 3600 * 60
    due = 2 * ring + 7 * hour + 11.5
    wheel.add("a", due)
    assert [held(level) for level in wheel._levels] == [{}, {}, {2: {"a"}}]
    for reached, below in ((2 * ring, [{}, {7: {"a"}}, {}]), (2 * ring + 7 * hour, [{11: {"a"}}, {}, {}])):
        wheel.add("there", reached)
        assert wheel.advance(reached) == ["there"]
        assert [held(level) for level in wheel._levels] == below
    assert wheel.advance(before(due)) == []
    assert wheel.advance(due) == ["a"]


@pytest.mark.spec("001-33")
@pytest.mark.parametrize("edge", [8, 16, 64])
def test_the_earliest_is_found_where_two_slots_of_an_upper_level_meet(edge: int) -> None:
    wheel: Wheel[str] = Wheel(0.0, tick_s=1.0, sizes=(4, 4, 4))
    wheel.add("early", edge + 0.2)
    wheel.add("just before", edge - 1.0)
    assert wheel.advance(edge - 1.0) == ["just before"]
    wheel.add("late", edge + 0.5)
    assert wheel.next() == edge + 0.2
    assert wheel.advance(edge + 0.5) == ["early", "late"]


@pytest.mark.spec("001-61")
def test_all_of_the_same_time_come_together_in_the_order_of_adding() -> None:
    wheel: Wheel[int] = Wheel(START)
    for key in range(10_000):
        wheel.add(key, START + 60)
    wheel.add(-1, before(START + 60))
    wheel.add(-2, nextafter(START + 60, inf))
    assert wheel.advance(START + 60) == [-1, *range(10_000)]
    assert wheel.advance(START + 61) == [-2]


@pytest.mark.spec("001-66")
def test_a_wheel_for_each_priority_gives_the_urgent_first() -> None:
    urgent, rest = one_level(), one_level()
    rest.add("rest", START + 1)
    urgent.add("urgent", START + 2)
    assert [key for wheel in (urgent, rest) for key in wheel.advance(START + 2)] == ["urgent", "rest"]


def test_a_key_that_is_added_again_moves_behind_others_of_its_time() -> None:
    wheel = one_level()
    for key in "abca":
        wheel.add(key, START + 1)
    assert len(wheel) == 3
    assert wheel.advance(START + 1) == ["b", "c", "a"]
    assert "a" not in wheel


def test_a_time_that_is_no_number_is_refused_and_changes_nothing() -> None:
    wheel = one_level()
    wheel.add("a", START + 1)
    for due in (nan, inf, -inf):
        with pytest.raises((ValueError, OverflowError)):
            wheel.add("a", due)
    assert wheel.advance(START + 1) == ["a"]


def test_a_wheel_without_a_tick_or_without_slots_is_refused() -> None:
    for tick_s, sizes in ((0.0, (8,)), (1.0, (8, 0)), (-1.0, (8,))):
        with pytest.raises(AssertionError):
            Wheel[str](START, tick_s=tick_s, sizes=sizes)


def test_a_clock_that_was_set_back_makes_nothing_early_and_loses_nothing() -> None:
    wheel: Wheel[str] = Wheel(START)
    wheel.add("first", START + 100)
    assert wheel.advance(START + 100) == ["first"]
    wheel.add("old", START + 200)
    assert wheel.advance(START) == []
    wheel.add("new", START + 50)
    assert wheel.next() == START + 50
    assert wheel.advance(before(START + 50)) == []
    assert wheel.advance(START + 50) == ["new"]
    assert wheel.advance(START + 150) == []
    assert wheel.advance(START + 200) == ["old"]


def test_a_leap_of_ages_takes_no_step_for_each_tick() -> None:
    wheel: Wheel[int] = Wheel(START)
    for key in range(20):
        wheel.add(key, START + 3.0**key)
    assert wheel.advance(START + 1e12) == list(range(20))  # 10 to the 15th ticks: stepping would never end


class Counted:
    """A key that counts how often any of them is looked up."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return id(self)


def filled(count: int) -> Wheel[Counted]:
    wheel: Wheel[Counted] = Wheel(START)
    for number in range(count):
        wheel.add(Counted(), START + 10 + number * 0.01)
    return wheel


def looks(step: Callable[[], object]) -> int:
    before = Counted.looks
    step()
    return Counted.looks - before


@pytest.mark.spec("001-21")
def test_adding_moving_and_cancelling_cost_the_same_beside_few_and_beside_many() -> None:
    def costs(wheel: Wheel[Counted]) -> list[int]:
        key = Counted()
        steps = (partial(wheel.add, key, START + 5), partial(wheel.add, key, START + 60), partial(wheel.cancel, key))
        return [looks(step) for step in steps]

    assert costs(filled(10)) == costs(filled(10_000))


@pytest.mark.spec("001-22")
@pytest.mark.parametrize("count", [10, 10_000])
def test_an_entry_costs_a_move_for_each_level_however_many_there_are(count: int) -> None:
    wheel = filled(count)

    def drain() -> None:
        while (at := wheel.next()) is not None:
            wheel.advance(at)

    assert looks(drain) <= count * 2 * 5  # an entry in a slot, and where it is: on four levels and in the heap
    assert not wheel


def test_what_was_cancelled_leaves_nothing_behind() -> None:
    wheel: Wheel[str] = Wheel(START)
    for _ in range(1000):
        for delay in (0.0, 1.0, 3600.0, 1e7):
            wheel.add("a", START + delay)
        assert wheel.cancel("a")
    assert not wheel.cancel("a")
    assert wheel.next() is None
    assert len(wheel._heap) <= STALE
    assert not any(held(level) for level in wheel._levels)


def test_a_time_that_was_cancelled_costs_one_look_for_nothing_at_most() -> None:
    wheel: Wheel[str] = Wheel(START)
    wheel.add("first", START + 1)
    wheel.add("second", START + 2)
    assert wheel.next() == START + 1
    wheel.cancel("first")
    assert wheel.advance(START + 1) == []
    assert wheel.next() == START + 2


shapes = st.tuples(st.sampled_from(TICKS), st.sampled_from(SHAPES), st.sampled_from((0.0, START, -50.5)))
delays = st.tuples(
    st.integers(0, 4),  # so many levels
    st.integers(-2, 5),  # so often their span
    st.integers(-2, 2),  # and so many ticks
    st.sampled_from((0.0, 0.25, 0.999)),  # and that part of one
    st.integers(-1, 1),  # and the next number there is, on either side
)
keys = st.integers(0, 12)


def reach(now: float, tick_s: float, sizes: tuple[int, ...], delay: tuple[int, int, int, float, int]) -> float:
    """A time near the end of a span of some level, as seen from now."""
    depth, spans, ticks, part, side = delay
    at = now + (prod(sizes[:depth]) * spans + ticks + part) * tick_s
    return nextafter(at, side * inf) if side else at


@given(shapes, st.lists(delays, min_size=1, max_size=30))
def test_whoever_sleeps_until_the_next_time_wakes_at_each_due_time_and_at_no_other(
    shape: tuple[float, tuple[int, ...], float], chosen: list[tuple[int, int, int, float, int]]
) -> None:
    tick_s, sizes, now = shape
    wheel: Wheel[int] = Wheel(now, tick_s=tick_s, sizes=sizes)
    dues = [reach(now, tick_s, sizes, delay) for delay in chosen]
    for key, due in enumerate(dues):
        wheel.add(key, due)
    woken: list[float] = []
    fired: list[int] = []
    while (at := wheel.next()) is not None:
        woken.append(at)
        fired += wheel.advance(at)
    assert woken == sorted(set(dues))
    assert fired == sorted(range(len(dues)), key=lambda key: dues[key])


class WheelAndList(RuleBasedStateMachine):
    """The wheel does what a list that is searched from end to end does."""

    @initialize(shape=shapes)
    def start(self, shape: tuple[float, tuple[int, ...], float]) -> None:
        self.tick_s, self.sizes, self.now = shape
        self.wheel: Wheel[int] = Wheel(self.now, tick_s=self.tick_s, sizes=self.sizes)
        self.dues: dict[int, float] = {}  # in the order of adding
        self.spent = 0  # looks that found nothing at the time they were told
        self.dropped = 0  # cancelled or moved

    @rule(key=keys, delay=delays)
    def add(self, key: int, delay: tuple[int, int, int, float, int]) -> None:
        due = reach(self.now, self.tick_s, self.sizes, delay)
        self.dropped += self.dues.pop(key, None) is not None
        self.dues[key] = due
        self.wheel.add(key, due)

    @rule(key=keys, other=keys)
    def add_at_the_time_of_another(self, key: int, other: int) -> None:
        due = self.dues.get(other, self.now)
        self.dropped += self.dues.pop(key, None) is not None
        self.dues[key] = due
        self.wheel.add(key, due)

    @rule(key=keys)
    def cancel(self, key: int) -> None:
        was_held = self.dues.pop(key, None) is not None
        self.dropped += was_held
        assert self.wheel.cancel(key) is was_held

    @rule(delay=delays)
    def advance(self, delay: tuple[int, int, int, float, int]) -> None:
        self._look(reach(self.now, self.tick_s, self.sizes, delay))

    @rule(key=keys, side=st.integers(-1, 1))
    def advance_to_about_the_time_of_one(self, key: int, side: int) -> None:
        at = self.dues.get(key, self.now)
        self._look(nextafter(at, side * inf) if side else at)

    @rule(leap_s=st.sampled_from((-1e9, 1e6, 1e9)))
    def leap(self, leap_s: float) -> None:
        self._look(self.now + leap_s)

    @rule()
    def sleep(self) -> None:
        at = self.wheel.next()
        if at is not None:
            self.spent += not self._look(at)
            assert self.spent <= self.dropped

    def _look(self, now: float) -> list[int]:
        expected = sorted((key for key, due in self.dues.items() if due <= now), key=lambda key: self.dues[key])
        for key in expected:
            del self.dues[key]
        found = self.wheel.advance(now)
        assert found == expected
        self.now = now
        at = self.wheel.next()
        assert at is None or at > now
        return found

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.wheel) == len(self.dues)
        assert all((key in self.wheel) == (key in self.dues) for key in range(13))

    @invariant()
    def is_told_to_look_in_time(self) -> None:
        at = self.wheel.next()
        assert (at is None) == (not self.dues)
        assert at is None or at <= min(self.dues.values())


TestWheelAndList = WheelAndList.TestCase


def test_a_sweep_of_cancelled_entries_keeps_the_earliest_first() -> None:
    wheel: Wheel[int] = Wheel(0.0, tick_s=1000.0, sizes=(4,))
    for key in range(200):
        wheel.add(key, (200 - key) / 1000)
    for key in range(3, 200):
        wheel.cancel(key)
    wheel.add(200, 0.5)  # so many are cancelled that they are swept out now
    assert len(wheel._heap) == 4
    assert wheel.advance(0.1985) == [2]
    assert wheel.advance(1.0) == [1, 0, 200]


@pytest.mark.parametrize("tick_s", TICKS)
def test_what_is_rounds_away_in_the_next_slot_does_not_hide_what_is_near(tick_s: float) -> None:
    wheel: Wheel[str] = Wheel(0.0, tick_s=tick_s, sizes=(4,))
    wheel.add("far", 5.5 * tick_s)
    wheel.add("near", 3.5 * tick_s)
    assert wheel.next() == 3.5 * tick_s


def test_a_slot_that_was_emptied_by_cancelling_does_not_take_its_neighbour_with_it() -> None:
    wheel: Wheel[str] = Wheel(0.0, tick_s=1.0, sizes=(8,))
    for key, due in (("gone", 1.5), ("stays", 2.5)):
        wheel.add(key, due)
    wheel.cancel("gone")
    assert wheel.advance(1.6) == []
    assert wheel.advance(2.6) == ["stays"]


def shape(wheel: Wheel[str]) -> list[tuple[int, int]]:
    return [(level.width, level.size) for level in wheel._levels]


def test_a_wheel_as_it_comes_has_ticks_of_a_millisecond_and_four_levels() -> None:
    wheel: Wheel[str] = Wheel(0.0)
    assert shape(wheel) == [(1, 256), (256, 64), (256 * 64, 64), (256 * 64 * 64, 64)]
    wheel.add("a", 0.2)
    assert held(wheel._levels[0]) == {200: {"a"}}


@pytest.mark.parametrize("tick_s", [0.5, 2.0])
def test_a_wheel_begins_at_the_tick_of_its_time(tick_s: float) -> None:
    wheel: Wheel[str] = Wheel(1000.0, tick_s=tick_s, sizes=(8,))
    wheel.add("a", 1000.0 + 3 * tick_s)
    assert held(wheel._levels[0]) == {(int(1000 / tick_s) + 3) % 8: {"a"}}
    wheel.add("b", 1000.0 + tick_s / 2)  # in the tick that it is: none to wait for
    assert set(wheel._current) == {"b"}


def bits(level: Level[str]) -> set[int]:
    return {index for index in range(level.bits.bit_length()) if level.bits >> index & 1}


def test_a_level_looks_at_no_slot_in_vain_a_second_time() -> None:
    level: Level[str] = Level(1, 8)
    assert bits(level) == set()
    slots = {key: level.put(tick, (float(tick), 0, key)) for key, tick in (("a", 2), ("b", 4), ("c", 5))}
    del slots["b"]["b"]
    assert bits(level) == {2, 4, 5}
    assert list(level.occupied(0, 8)) == [2, 5]
    assert bits(level) == {2, 5}
    assert [set(slot) for slot in level.take(0, 3)] == [{"a"}]
    assert bits(level) == {5}


class Seen(dict[str, tuple[float, int, str]]):
    """A slot that notes that its entries are read."""

    def __init__(self, level: Level[str], index: int, seen: list[tuple[int, int]]) -> None:
        super().__init__(level.slots[index])
        self._note = partial(seen.append, (level.width, index))

    def values(self):  # type: ignore[no-untyped-def,override]
        self._note()
        return super().values()


def seen_for_the_earliest(wheel: Wheel[str]) -> list[tuple[int, int]]:
    """The slots that a search for the earliest reads, by the width of their level and their number."""
    seen: list[tuple[int, int]] = []
    for level in wheel._levels:
        level.slots = [Seen(level, index, seen) for index in range(level.size)]
    wheel.next()
    return seen


def test_the_earliest_is_found_in_one_slot_where_it_is_less_than_a_ring_away() -> None:
    wheel: Wheel[str] = Wheel(100.0, tick_s=1.0, sizes=(8,))
    wheel.add("a", 107.5)
    wheel.add("b", 108.5)
    assert seen_for_the_earliest(wheel) == [(1, 107 % 8)]
    wheel = Wheel(100.0, tick_s=1.0, sizes=(8,))
    wheel.add("b", 108.5)  # a whole ring on, in the slot that is the last to come
    wheel.add("c", 109.5)
    assert seen_for_the_earliest(wheel) == [(1, 109 % 8), (1, 108 % 8)]


def test_what_is_rounds_away_on_an_upper_level_does_not_hide_what_is_near() -> None:
    wheel: Wheel[str] = Wheel(100.0, tick_s=1.0, sizes=(2, 4))
    wheel.add("far", 103.5 + 8)
    wheel.add("near", 105.5)
    assert wheel.next() == 105.5


def test_slots_that_are_not_reached_are_not_touched() -> None:
    wheel: Wheel[Counted] = Wheel(0.0, tick_s=1.0, sizes=(8,))
    due, later = Counted(), Counted()
    wheel.add(due, 1.5)
    wheel.add(later, 2.5)
    slot = wheel._homes[later]
    assert wheel.advance(1.6) == [due]
    assert wheel._homes[later] is slot
    assert wheel._levels[0].slots[2] is slot


def test_cancelled_entries_wait_until_they_are_as_many_as_the_others_and_some() -> None:
    wheel: Wheel[int] = Wheel(0.0, tick_s=1000.0, sizes=(4,))
    for key in range(10 + STALE):
        wheel.add(key, key / 1000)
    for key in range(10, 10 + STALE):
        wheel.cancel(key)
    for more in range(10):  # one that moves leaves its old entry behind
        wheel.add(0, more / 1000)
        assert len(wheel._heap) == 2 * 10 + STALE - 9 + more
    wheel.add(0, 0.5)
    assert len(wheel._heap) == 10


def test_what_was_given_does_not_come_back_with_a_sweep() -> None:
    wheel: Wheel[int] = Wheel(0.0, tick_s=1000.0, sizes=(4,))
    for key in range(100):
        wheel.add(key, key / 1000)
    assert wheel.advance(0.05) == list(range(51))
    for _ in range(2 * STALE + 200):
        wheel.add(1000, 0.9)
    assert wheel.advance(1.0) == [*range(51, 100), 1000]
    assert len(wheel) == len(wheel._current) == len(wheel._heap) == 0
