"""The checker checked: sound histories raise nothing, and every kind of damage done to them is told."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from pathlib import Path

import msgspec
import pytest

from raptor.testing.checker import History, check, counted
from raptor.testing.checker.history import read, write
from tests.checker.damage import DAMAGE, untold
from tests.checker.making import make

SOUND = 300
APPLIED = 2  # histories to which each damage is done


@lru_cache(maxsize=200)
def made(seed: int) -> History:
    return make(seed)


@pytest.mark.parametrize("part", range(4))
def test_sound_histories_raise_nothing(part: int) -> None:
    for seed in range(part * SOUND // 4, (part + 1) * SOUND // 4):
        assert check(made(seed)) == [], f"seed {seed}"


def test_they_have_everything_that_may_happen() -> None:
    seen: dict[str, int] = {}
    for seed in range(60):
        for name, number in counted(made(seed)).items():
            seen[name] = seen.get(name, 0) + number
    wanted = ["kills", "lapses", "done", "dead", "cancelled", "ready"]
    wanted += [f"{verdict} slots" for verdict in ("done", "failed", "missed", "skipped", "coalesced")]
    assert [name for name in wanted if not seen.get(name)] == []


def test_there_are_at_least_25_kinds_of_damage() -> None:
    assert len(DAMAGE) >= 25


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(name: str) -> None:
    applied = 0
    for seed in count():
        instead = untold(made(seed), name, seed)
        assert not instead, f"seed {seed}"
        applied += instead is not None
        if applied == APPLIED:
            return


@pytest.mark.parametrize(
    ("name", "seed"),
    [("a recorded slot runs again", 50016635), ("a slot has neither a run nor a line", 50023773)],
)
def test_damage_is_told_that_was_once_told_as_another(name: str, seed: int) -> None:
    assert untold(make(seed), name, seed) == []


def test_a_history_is_the_same_when_it_was_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    for seed in range(5):
        write(file, made(seed).records)
        assert History.of(read(file)) == made(seed)


def test_the_last_line_of_a_file_may_be_torn_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    write(file, made(0).records)
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"type":"li')
    assert len(read(file)) == len(list(made(0).records))
    file.write_bytes(b'{"type":"li\n' + whole)
    with pytest.raises(msgspec.DecodeError):
        read(file)
