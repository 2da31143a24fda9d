"""The disk that forgets, by hand: what may be left of a few writes."""

from __future__ import annotations

import random

from tests.powercut.disk import SECTOR, Disk, Event, Image, fashions

A, B = b"a" * SECTOR, b"b" * SECTOR


def told(*events: Event) -> Disk:
    disk = Disk()
    for event in events:
        disk.tell(event)
    return disk


def left(disk: Disk, count: int = 500) -> set[tuple[tuple[str, bytes | None], ...]]:
    """Every image that so many tries find."""
    rng = random.Random(1)
    images: list[Image] = [disk.image(fashion) for _, fashion in fashions(disk.unsynced, rng, count)]
    return {tuple(image.items()) for image in images}


MADE = (Event("C", 7, 0, b"f"), Event("S", 1, 0, b""))


def test_what_was_synced_is_there() -> None:
    assert left(told(*MADE, Event("W", 7, 0, A), Event("S", 7, 0, b"f"))) == {(("f", A),)}


def test_a_file_without_a_sync_of_its_folder_may_be_gone() -> None:
    disk = told(Event("C", 7, 0, b"f"), Event("W", 7, 0, A), Event("S", 7, 0, b"f"))
    assert left(disk) == {(), (("f", A),)}


def test_a_write_without_a_sync_may_be_gone_or_torn_or_leave_zeros() -> None:
    zeros = bytes(SECTOR)
    disk = told(*MADE, Event("W", 7, 0, A + B))
    assert left(disk) == {(("f", one),) for one in (b"", A, A + B, A + zeros, zeros + B, zeros + zeros)}


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    disk = told(*MADE, Event("W", 7, 0, A * 2), Event("S", 7), Event("W", 7, 0, B), Event("W", 7, SECTOR, B))
    assert left(disk) == {(("f", one + two),) for one in (A, B) for two in (A, B)}


def test_a_sector_is_as_it_stood_at_some_moment() -> None:
    disk = told(*MADE, Event("W", 7, 0, b"...."), Event("S", 7), Event("W", 7, 0, b"1"), Event("W", 7, 2, b"2"))
    assert left(disk) == {(("f", one),) for one in (b"....", b"1...", b"1.2.")}


def test_a_cut_off_end_may_be_back() -> None:
    disk = told(*MADE, Event("W", 7, 0, A), Event("S", 7), Event("T", 7, 3))
    assert left(disk) == {(("f", A),), (("f", A[:3]),)}


def test_a_renamed_file_is_the_old_or_the_new_one_and_whole() -> None:
    disk = told(
        *MADE, Event("W", 7, 0, A), Event("S", 7),
        Event("C", 8, 0, b"g"), Event("W", 8, 0, B), Event("S", 8), Event("R", 0, 0, b"g\0f"),
    )  # fmt: skip
    assert {dict(image)["f"] for image in left(disk)} == {A, B}
    disk.tell(Event("S", 1, 0, b""))
    assert left(disk) == {(("f", B),)}


def test_a_removed_file_may_be_back_until_its_folder_is_synced() -> None:
    disk = told(*MADE, Event("U", 0, 0, b"f"))
    assert left(disk) == {(), (("f", b""),)}
    disk.tell(Event("S", 1, 0, b""))
    assert left(disk) == {()}


def test_a_folder_that_is_gone_takes_all_with_it() -> None:
    disk = told(
        Event("M", 0, 0, b"d"), Event("C", 7, 0, b"d/f"), Event("W", 7, 0, A), Event("S", 7), Event("S", 2, 0, b"d")
    )
    assert left(disk) == {(), (("d", None), ("d/f", A))}
    disk.tell(Event("S", 1, 0, b""))
    assert left(disk) == {(("d", None), ("d/f", A))}
