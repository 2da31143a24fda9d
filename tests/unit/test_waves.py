"""Places in the list of what a node on PostgreSQL has taken."""

from __future__ import annotations

from raptor.state.postgres.waves import Waves


def test_a_place_is_kept_until_all_that_stands_in_it_has_ended() -> None:
    waves = Waves()
    assert waves.keep(2) == [0, 1]
    waves.give([0, 1], {0: [(7, 1), (8, 1)], 1: []})
    assert waves.keep(1) == [1]
    waves.end([(7, 1)])
    assert waves.keep(1) == [2]
    waves.end([(8, 1), (9, 1)])
    assert waves.keep(1) == [0]


def test_of_a_take_that_came_to_nothing_the_places_are_free() -> None:
    waves = Waves()
    waves.give(waves.keep(2), {})
    assert waves.keep(2) == [0, 1]


def test_what_comes_back_and_is_taken_anew_stands_in_its_last_place_alone() -> None:
    waves = Waves()
    waves.give(waves.keep(1), {0: [(7, 1)]})
    waves.give(waves.keep(1), {1: [(7, 2)]})
    assert waves.keep(1) == [0]
    waves.end([(7, 1)])  # a verdict on the first, which is refused
    assert waves.keep(1) == [2]
    waves.end([(7, 2)])
    assert waves.keep(1) == [1]


def test_a_take_that_is_found_later_has_the_place_that_it_wrote() -> None:
    waves = Waves()
    lost, again = waves.keep(1), waves.keep(1)
    waves.give(again, {lost[0]: [(7, 1)]})
    assert waves.keep(1) == again
    waves.end([(7, 1)])
    assert waves.keep(1) == lost


def test_a_take_that_is_found_after_a_later_one_of_its_task_stands_nowhere() -> None:
    waves = Waves()
    older, newer = waves.keep(1), waves.keep(1)
    waves.give(newer, {newer[0]: [(7, 2)]})
    waves.give(older, {older[0]: [(7, 1)]})
    assert waves.keep(1) == older
    waves.end([(7, 1), (7, 2)])
    assert waves.keep(1) == newer
