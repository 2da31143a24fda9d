"""Power cuts: what was acknowledged is there afterwards, and Raptor starts. Without syncs, losses show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.clock import Clock
from tests.powercut.campaign import Campaign, scratch
from tests.powercut.ext4 import Volume, cut_once, why_not
from tests.powercut.judge import Judge
from tests.powercut.recording import Recording, record
from tests.powercut.scribe import Plan


@pytest.fixture
def place() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture
def volume(place: Path) -> Iterator[Volume]:
    if why := why_not():
        pytest.skip(f"no real file system is cut off here: {why}")
    with Volume(place) as mounted:
        yield mounted


def recorded(place: Path, **options: object) -> Recording:
    (place / "first").mkdir()
    plan = Plan(home="", marks="", seed=random.randrange(2**32), at=1e6, **options)  # type: ignore[arg-type]
    return record(place / "first", {}, plan)


async def test_a_cut_at_any_moment_of_the_making_is_harmless(place: Path, system_clock: Clock) -> None:
    recording = recorded(place, steps=1)
    made = next(number for number, event in enumerate(recording.events) if event.kind == "X")
    counts = Counter[str]()
    judge = Judge(recording, place, counts=counts)
    assert await judge.violations(range(made), "", 0) == []
    assert counts["images"] > 50


async def test_a_new_directory_is_there_once_something_was_acknowledged(place: Path, system_clock: Clock) -> None:
    """Nobody but its maker syncs the folder that it stands in."""
    recording = recorded(place, steps=5)
    first = next(number for number, event in enumerate(recording.events) if event.data.startswith(b"done"))
    judge = Judge(recording, place, counts=Counter())
    assert await judge.violations([first + 1, len(recording.events)], "", 0) == []


@pytest.mark.timeout(240)
async def test_what_was_acknowledged_outlives_cuts(tmp_path: Path, system_clock: Clock) -> None:
    seed = random.randrange(2**32)
    campaign = Campaign(seed, kept=tmp_path)
    await campaign.life(0, steps=20, points=12)
    assert campaign.violations == [], f"seed {seed}"
    assert campaign.counts["acks_checked"] > 100


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
async def test_without_a_sync_at_every_commit_cuts_show_losses(
    tmp_path: Path, system_clock: Clock, synchronous: str
) -> None:
    campaign = Campaign(random.randrange(2**32), kept=tmp_path)
    assert await campaign.control(0, synchronous, steps=10, points=8) > 0
    assert campaign.violations == []


async def test_where_folders_are_not_synced_cuts_show_losses(place: Path, system_clock: Clock) -> None:
    whole = recorded(place, steps=5)
    paths = {event.inode for event in whole.events if event.kind == "C"}
    lazy = [event for event in whole.events if event.kind != "S" or event.inode in paths]
    assert len(lazy) < len(whole.events)
    judge = Judge(Recording(content={}, before={}, events=lazy), place, counts=Counter())
    assert await judge.violations([len(lazy)], "", 0) != []


@pytest.mark.timeout(240)
async def test_a_real_file_system_that_is_cut_off_keeps_what_was_acknowledged(
    volume: Volume, system_clock: Clock
) -> None:
    seed = random.randrange(2**32)
    rng, counts = random.Random(seed), Counter[str]()
    for _ in range(6):
        assert await cut_once(volume, rng, counts) == [], f"seed {seed}"
    assert counts["acks_checked"] > 0


@pytest.mark.timeout(240)
async def test_a_real_file_system_shows_losses_without_a_sync_at_every_commit(
    volume: Volume, system_clock: Clock
) -> None:
    rng, counts, losses = random.Random(), Counter[str](), 0
    for _ in range(5):
        losses += bool(await cut_once(volume, rng, counts, synchronous="OFF"))
        volume.clear()
    assert losses > 0
