"""How one that follows a node sees it end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raptor.cli import starting

STOPPED = json.dumps({"at": "2030-01-01T00:00:00Z", "event": "stopped", "text": "stopped"}).encode()


def followed(home: Path, pid: int | None, looks: list[list[bytes]], gone: int | None = None) -> int:
    """The exit code for a node whose door is closed, and of what it has told by each look; [] from then on."""
    told = iter(looks)
    tail: Any = SimpleNamespace(lines=lambda: next(told, []))
    config = SimpleNamespace(home=home, log=SimpleNamespace(format="text"))
    session: Any = SimpleNamespace(config=config, zone=None, colour=False)
    return starting.follow(
        session, pid, tail, wants=lambda record: True, gone=lambda: gone, again="raptor start goes on", bye=""
    )


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LOOK_S", 0.001)


def test_a_node_that_has_closed_its_door_is_heard_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert followed(tmp_path, os.getpid(), [[], [], [STOPPED]]) == 0
    assert f"the node (pid {os.getpid()}) has stopped" in capfd.readouterr().err


def test_a_node_that_died_is_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    assert followed(tmp_path, dead.pid, [[]]) == 1
    assert followed(tmp_path, None, [[]]) == 1
    assert "has ended: raptor start goes on" in capfd.readouterr().err
    assert followed(tmp_path, dead.pid, [[STOPPED]]) == 0


def test_a_node_that_never_says_that_it_has_stopped_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "PATIENCE_S", 0.05)
    assert followed(tmp_path, os.getpid(), []) == 1


def test_a_node_that_still_holds_its_directory_is_heard_out_however_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "PATIENCE_S", 0.003)
    (tmp_path / "lock").write_text(json.dumps({"pid": os.getpid(), "incarnation": "1"}))
    assert followed(tmp_path, os.getpid(), [[]] * 50 + [[STOPPED]]) == 0


def test_who_followed_it_for_work_that_is_done_does_not_mind_how_it_ended(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    assert followed(tmp_path, dead.pid, [[]], gone=0) == 0
    assert "has ended" not in capfd.readouterr().err
