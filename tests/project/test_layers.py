"""The contract of imports bites, also through the links."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project.conftest import Run

Lint = Callable[[], str]


@pytest.fixture
def lint(copy: Path, run: Run) -> Lint:
    """Check the copy; -> the exit code, then what was said."""
    command = Path(sys.executable).with_name("lint-imports")

    def lint() -> str:
        done = run(command, "--no-logo", "--no-cache", cwd=copy, check=False)
        return f"{done.returncode}\n{done.stdout}{done.stderr}"

    return lint


def test_the_tree_keeps_the_contract(lint: Lint) -> None:
    said = lint()
    assert said.startswith("0\n"), said


@pytest.mark.parametrize(
    ("file", "line", "blamed"),
    [
        ("raptor/errors.py", "import raptor.state", "raptor.errors is not allowed to import raptor.state"),
        ("state/__init__.py", "import raptor.cli", "raptor.state is not allowed to import raptor.cli"),
        ("cli/main.py", "import raptor.__main__", "raptor.cli is not allowed to import raptor.__main__"),
    ],
)
def test_an_import_upwards_is_refused(copy: Path, lint: Lint, file: str, line: str, blamed: str) -> None:
    with (copy / file).open("a") as source:
        source.write(f"\n{line}\n")
    said = lint()
    assert said.startswith("1\n")
    assert blamed in said


def test_a_module_without_a_place_is_refused(copy: Path, lint: Lint) -> None:
    (copy / "raptor/stray.py").touch()
    said = lint()
    assert said.startswith("1\n")
    assert "raptor.stray" in said
