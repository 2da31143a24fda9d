"""A slice of the fuzzing: the corpus again, and some thousands of inputs more, always the same ones."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.child import Tally, Watch, _plain
from tests.fuzz.mutate import LONGEST, Mutator
from tests.fuzz.target import Target, Wrong
from tests.fuzz.targets import TARGETS

INPUTS = 1500
SEED = 6
CHANGED = [target for target in TARGETS.values() if target.inputs is None]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_corpus_holds_no_surprise(target: Target) -> None:
    for data in target.corpus():
        target.check(data)


@pytest.mark.parametrize("target", CHANGED, ids=[target.name for target in CHANGED])
def test_changed_inputs_raise_documented_errors_only(target: Target) -> None:
    for data in islice(Mutator(SEED, target.corpus(), target.words), INPUTS):
        target.check(data)


def test_the_same_seed_gives_the_same_inputs() -> None:
    target = TARGETS["toml"]
    first, again, other = (
        list(islice(Mutator(seed, target.corpus(), target.words), 50)) for seed in (SEED, SEED, SEED + 1)
    )
    assert first == again != other


@pytest.mark.parametrize("name", ["duration", "page"])
def test_no_input_comes_twice_and_some_lie_far_from_the_corpus(name: str) -> None:
    target = TARGETS[name]
    made = list(islice(Mutator(SEED, target.corpus(), target.words), 20_000))
    assert len(set(made)) == len(made)
    assert max(map(len, made)) <= LONGEST
    again = [data for data in made if not any(data[:3] == known[:3] or data[-3:] == known[-3:] for known in made[:99])]
    assert len(again) > len(made) / 4


def test_inputs_are_counted_up_to_as_many_as_are_wanted(tmp_path: Path) -> None:
    seen: list[bytes] = []
    toy = Target("toy", seen.append, (b"a", b"b"))
    tally = Tally(tmp_path / "tally")
    watch = Watch(toy, tally, lambda data, what: None)
    _plain(toy, watch, SEED, tmp_path, lambda: tally.inputs >= 100)
    assert len(seen) == tally.read()[0] == 100


def test_what_must_not_be_is_told_once_for_each_place_with_its_input(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        if data[:1] == b"b":
            raise Wrong("as it should not be")
        if data[:1] == b"s":
            enough = time.thread_time() + 0.1  # a fast machine is not to pass for a quick answer
            while time.thread_time() < enough:
                pass

    found: list[tuple[bytes, str]] = []
    tally = Tally(tmp_path / "tally")
    watch = Watch(Target("toy", check, ()), tally, lambda data, what: found.append((data, what)))
    for data in (b"a", b"b1", b"b2", b"s"):
        watch.check(data)
    assert [data for data, _ in found] == [b"b1", b"s"]
    assert found[0][1] == "Wrong: as it should not be"
    assert tally.read()[:2] == (4, 4)
