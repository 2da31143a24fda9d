"""Which lines of a service's log file belong to the run that is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from raptor.cli.live import Live

HEADER = "== run {run} attempt 1 at 2026-01-01T00:00:00Z\n"


def shown(path: Path, capsys: pytest.CaptureFixture[str], *added: str) -> tuple[str | None, str]:
    with Live(path) as live, path.open("a") as file:
        file.writelines(added)
    return live.run, capsys.readouterr().out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "s.log"
    file.write_text(HEADER.format(run="before") + "long ago\n")
    return file


def test_the_run_that_begins_is_shown(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = [HEADER.format(run="r1"), "one\n", "\ttwo \x1b[31m\n"]
    assert shown(path, capsys, *added) == ("r1", "one\n    two \\x1b[31m\n")


def test_the_rest_of_an_earlier_run_is_not(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(path, capsys, "late\n", HEADER.format(run="r1"), "one\n") == ("r1", "one\n")
    assert shown(path, capsys, "late\n") == (None, "")


def test_nor_is_the_beginning_of_the_next(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    added = [HEADER.format(run="r1"), "one\n", HEADER.format(run="r2"), "two\n", HEADER.format(run="r3"), "three\n"]
    assert shown(path, capsys, *added) == ("r1", "one\n")


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(tmp_path / "new.log", capsys, HEADER.format(run="r1"), "one\n") == ("r1", "one\n")


def test_a_reader_that_has_gone_is_told_once_the_run_has_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("click.echo", gone)
    with pytest.raises(BrokenPipeError), Live(path), path.open("a") as file:
        file.write(HEADER.format(run="r1") + "one\n")
