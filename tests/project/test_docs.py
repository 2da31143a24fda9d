"""The pages: what they name exists."""

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

MAKE = re.compile(r"\bmake ((?:[A-Z]+=\S+ )*)([a-z][a-z-]*)")


def pages(root: Path) -> Iterator[Path]:
    yield from root.glob("*.md")
    yield from (root / "docs").rglob("*.md")


def code(text: str) -> Iterator[str]:
    """Fenced blocks, less their comments, and code within a line."""
    fence = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
    for block in fence.findall(text):
        yield re.sub(r" #.*", "", block)
    yield from re.findall(r"`([^`\n]+)`", fence.sub("", text))


@pytest.fixture(scope="module")
def targets(root: Path) -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.M))


def test_every_make_command_on_a_page_exists(root: Path, targets: set[str]) -> None:
    named = {
        (page.name, target)
        for page in pages(root)
        for text in code(page.read_text())
        for _, target in MAKE.findall(text)
    }
    assert {("README.md", "run"), ("README.md", "test")} <= named
    assert {name for name in named if name[1] not in targets} == set()


def test_every_link_to_a_file_leads_somewhere(root: Path) -> None:
    for page in pages(root):
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_decision_note_is_listed_in_order(root: Path) -> None:
    folder = root / "docs/decisions"
    listed = re.findall(r"^- \[\d{4}\]\((\S+)\)", (folder / "README.md").read_text(encoding="utf-8"), re.M)
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in listed] == [f"{number:04}" for number in range(1, len(listed) + 1)]


def test_no_page_speaks_of_the_machine_it_was_written_on(root: Path) -> None:
    for page in pages(root):
        assert str(root) not in page.read_text(encoding="utf-8"), page.name


def test_no_page_leaves_something_to_do(root: Path) -> None:
    for page in pages(root):
        assert not re.search(r"\b(TODO|FIXME|XXX|TBD)\b", page.read_text(encoding="utf-8")), page.name


def test_the_changelog_keeps_its_form(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## [Unreleased]\n" in text
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
    for line in re.findall(r"^- .*$", text, re.M):
        assert re.match(r"- \[[A-Z][\w ]*\] ", line), line


def test_hooks_run_the_tools_of_the_check(root: Path) -> None:
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    hooks = (root / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    for tool in ("ruff", "mypy", "pyright", "lint-imports"):
        assert f"entry: .venv/bin/{tool}" in hooks
    assert "pre-commit" in config["options.extras_require"]["check"]
