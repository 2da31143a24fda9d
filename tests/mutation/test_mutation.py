"""The mutator itself, on a toy: what it changes, and that tests which look are told from tests which do not."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.bed import KILLED, ROOT, SURVIVED
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
# In a process of its own: a bed forks, and whoever runs these tests has threads.
TRY = """
import json, sys
from pathlib import Path
from tests.mutation import bed

folder = Path(sys.argv[1])
toy, tests = folder / "toy.py", folder / "test_toy.py"
bed.file_of = lambda module: toy
# The toy is no file of the package: whoever has not been given a mutant of it gets it as it is.
sys.meta_path.insert(0, bed.Changed("raptor.toy", toy, compile(toy.read_text(), toy, "exec")))
tried, told = bed.Bed("raptor.toy", [str(tests)], folder), {}
tried.run(tried.mutants, lambda mutant, what: told.update({mutant.what: what}))
assert len(told) == len(tried.mutants)
(folder / "told").write_text(json.dumps(told))
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
def test_what_no_test_notices_survives(tmp_path: Path, more: str, survivors: set[str]) -> None:
    done = tried(tmp_path, TESTS.format(more=more))
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, str] = json.loads((tmp_path / "told").read_text())
    assert {what for what, came in told.items() if came == SURVIVED} == survivors
    assert set(told.values()) <= {KILLED, SURVIVED}


def test_tests_that_fail_anyway_are_told(tmp_path: Path) -> None:
    done = tried(tmp_path, "def test_it():\n    assert False\n")
    assert done.returncode != 0
    assert "fail without any mutant" in done.stderr


def tried(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "toy.py").write_text(TOY)
    (folder / "test_toy.py").write_text(tests)
    words = [sys.executable, "-c", TRY, str(folder)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
