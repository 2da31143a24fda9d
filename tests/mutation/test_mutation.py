"""The mutator itself, on a toy: what it changes, and that tests which look are told from tests which do not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation import bed
from tests.mutation.bed import KILLED, SURVIVED, Bed
from tests.mutation.mutants import mutants

TOY = '''
"""A toy."""
LIMIT = 3


class Box:
    def fits(self, count: int, wide: bool = False) -> bool:
        """Whether it does."""
        assert count >= 0
        return wide or count < LIMIT


def total(counts):
    found = 0
    for one in counts:
        if not one:
            continue
        found += min(one, 10)
    return found
'''
TESTS = """
from raptor.toy import Box, total

def test_it():
    assert [Box().fits(count) for count in (2, 3)] == [True, False]
    assert Box().fits(5, True)
    assert total([1, 2]) == 3{more}
"""
CAREFUL = """
    assert total([0, 1, 20]) == 11
    assert total([]) == 0"""


def test_a_module_is_broken_in_every_way_but_its_documentation_types_and_asserts() -> None:
    found = {(mutant.where, mutant.what) for mutant in mutants(ast.parse(TOY))}
    assert found == {
        (None, "3 -> 4"),
        (None, "False -> True"),
        ("Box.fits", "return wide or count < LIMIT -> return None"),
        ("Box.fits", "wide or count < LIMIT -> wide and count < LIMIT"),
        ("Box.fits", "count < LIMIT -> count <= LIMIT"),
        ("total", "0 -> 1"),
        ("total", "if not one -> if not not one"),
        ("total", "not one -> one"),
        ("total", "continue -> break"),
        ("total", "found += min(one, 10) -> found -= min(one, 10)"),
        ("total", "min(one, 10) -> max(one, 10)"),
        ("total", "10 -> 11"),
        ("total", "return found -> return None"),
    }


@pytest.mark.parametrize(("more", "survivors"), [("", {"continue -> break", "10 -> 11"}), (CAREFUL, set[str]())])
def test_what_no_test_notices_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, survivors: set[str]
) -> None:
    toy, tests = tmp_path / "toy.py", tmp_path / "test_toy.py"
    toy.write_text(TOY)
    tests.write_text(TESTS.format(more=more))
    monkeypatch.setattr(bed, "file_of", lambda module: toy)
    # The toy is no file of the package: whoever has not been given a mutant of it gets it as it is.
    monkeypatch.setattr(
        "sys.meta_path", [bed.Changed("raptor.toy", toy, compile(TOY, toy, "exec")), *__import__("sys").meta_path]
    )
    tried = Bed("raptor.toy", [str(tests)], tmp_path)
    told: dict[str, str] = {}
    tried.run(tried.mutants, lambda mutant, what: told.update({mutant.what: what}))
    assert len(told) == len(tried.mutants)
    assert {what for what, came in told.items() if came == SURVIVED} == survivors
    assert set(told.values()) <= {KILLED, SURVIVED}


def test_tests_that_fail_anyway_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = tmp_path / "test_toy.py"
    tests.write_text("def test_it():\n    assert False\n")
    toy = tmp_path / "toy.py"
    toy.write_text(TOY)
    monkeypatch.setattr(bed, "file_of", lambda module: toy)
    with pytest.raises(RuntimeError, match="fail without any mutant"):
        Bed("raptor.toy", [str(tests)], tmp_path).run([], lambda mutant, what: None)
