"""The record of the proof adds up what was counted, and says it on its page."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from tests.proof.__main__ import PARTS
from tests.proof.record import BEGIN, END, Record, Report, past, recorded, table, written_into

FIRST = Report(part="fuzz", commit="a" * 40, seed=1, seconds=60.0, counts={"inputs": 1000}, violations=[])
SECOND = Report(part="fuzz", commit="b" * 40, seed=2, seconds=30.0, counts={"inputs": 500}, violations=["it broke"])


def test_runs_are_added_up_and_kept_one_by_one() -> None:
    record = recorded([past(FIRST), past(SECOND)])
    assert record.totals == {"fuzz": {"inputs": 1500}}
    assert [run.seed for run in record.runs] == [1, 2]


def test_the_words_of_what_was_found_are_kept_with_the_run_that_found_it() -> None:
    """Whoever looks into it may be another, later: a number alone says nothing."""
    many = msgspec.structs.replace(FIRST, violations=[f"{number} {'x' * 1000}" for number in range(180)])
    record = recorded([past(FIRST), past(SECOND), past(many)])
    kept = msgspec.json.decode(msgspec.json.encode(record), type=Record)
    assert kept == record
    assert [run.told[:1] for run in kept.runs[:2]] == [(), ("it broke",)]
    assert kept.runs[2].violations == 180
    assert len(msgspec.json.encode(kept.runs[2])) < 12_000


def test_the_table_shows_sums_seeds_commits_and_violations() -> None:
    shown = table(recorded([past(FIRST), past(SECOND)]))
    assert "| fuzz | 2 | 1.5 | 1,500 inputs | 1 |" in shown
    assert "| fuzz | bbbbbbb | 2 | 0.5 | 1 |" in shown


def test_only_the_table_of_the_page_is_changed() -> None:
    page = f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    once = written_into(page, recorded([past(FIRST)]))
    assert once.startswith("before\n\n")
    assert once.endswith(f"{END}\n\nafter\n")
    assert "old" not in once
    assert written_into(once, recorded([past(FIRST)])) == once


def test_every_part_is_there_and_the_shares_are_the_whole() -> None:
    assert sum(share for _, share in PARTS.values()) == 1.0
    for (module, *_), _ in PARTS.values():
        assert importlib.util.find_spec(f"{module}.__main__") is not None, module


def test_the_page_says_what_the_record_says(root: Path) -> None:
    record = msgspec.json.decode((root / "reliability.json").read_bytes(), type=Record)
    page = (root / "docs" / "reliability.md").read_text()
    assert record.totals == recorded(record.runs).totals
    assert page == written_into(page, record)
