"""Design 004 on real files and a real clock: two tables, a look with sqlite3, commands with and without a node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import raptor
from raptor.clock import Clock
from raptor.config import Config
from raptor.connect import Connection, connect
from raptor.embedded import Running, running
from raptor.errors import AlreadyRunning, NoSuchName, NotRunning
from raptor.service import Service

DEADLINE_S = 30.0


async def fine() -> str:
    return "fine"


def services() -> list[Service]:
    return [Service(name="hourly", function=fine), Service(name="daily", function=fine, every_s=86400.0)]


def client(home: Path) -> Connection:
    return connect(Config.load({"home": str(home)}, environ={}, cwd=home.parent), services())


@contextlib.contextmanager
def node(home: Path) -> Iterator[Running]:
    with running(home, services()) as handle:
        assert isinstance(handle, Running)
        yield handle


async def one_cycle(home: Path) -> None:
    async with raptor.Node(home, services=services(), listen=False) as node:
        done = asyncio.Event()
        node.runtime.events.subscribe(lambda event: done.set(), "cycle_done")
        await node.start("main", interval="1h")
        await node.schedule("main", ["hourly", "daily"])
        await asyncio.wait_for(done.wait(), DEADLINE_S)


def rows(file: Path, table: str) -> dict[str, dict[str, object]]:
    """As a person with the sqlite3 shell would look."""
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return {
            key: json.loads(value) for key, value in connection.execute(f'SELECT key, value FROM "{table}"').fetchall()
        }


@pytest.mark.spec("004-10", "004-31", "004-32", "X4-8")
async def test_the_two_tables_are_two_files_that_anybody_can_read(tmp_path: Path, system_clock: Clock) -> None:
    home = tmp_path / "home"
    await one_cycle(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    timing = rows(home / "service_timing.sqlite", "service_timing")
    assert list(timing) == ["hourly", "daily"]
    assert (timing["hourly"]["interval_seconds"], timing["daily"]["interval_seconds"]) == (3600.0, 86400.0)
    assert isinstance(timing["hourly"]["last_run_timestamp"], int)
    assert rows(home / "scheduler_state.sqlite", "scheduler_state") == {}


@pytest.mark.spec("X4-8")
def test_state_is_never_kept_in_tmp_by_default() -> None:
    home = Config.load({}, environ={}, cwd=Path("/")).home
    assert Path(tempfile.gettempdir()) not in home.parents


@pytest.mark.spec("004-33", "004-34", "004-35", "004-36", "R4-01")
def test_commands_reach_a_running_node_from_another_connection(tmp_path: Path) -> None:
    home = tmp_path / "home"
    other = client(home)
    assert not other.running
    with pytest.raises(NotRunning):
        other.call("start", name="main")
    with node(home) as mine:
        mine.start("main", "1h")
        assert other.running
        other.call("schedule", name="main", services=["hourly", "daily=12h"])
        status = other.call("status")
        assert status["schedulers"][0]["periodic_services"] == ["hourly", "daily"]
        with pytest.raises(AlreadyRunning), running(home, services()):
            pass
        with running(home, services(), join=True) as joined:
            assert isinstance(joined, Connection)
            assert joined.call("status")["schedulers"][0]["name"] == "main"
    assert not other.running


@pytest.mark.spec("004-30", "004-34", "004-35")
def test_commands_without_a_node_write_as_the_owner_and_are_there_at_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    alone = client(home)
    assert alone.call("status")["schedulers"] == []
    alone.call("schedule", name="night", services=["daily"])
    assert alone.call("status")["schedulers"][0]["state"] == "stopped"
    alone.call("pause", name="night", note="not yet")
    with pytest.raises(NoSuchName):
        alone.call("schedule", name="night", services=["dialy"])
    assert alone.call("run", service="hourly")["info"] == "fine"
    assert [run["service"] for run in alone.call("history")["runs"]] == ["hourly"]
    with node(home) as mine:
        mine.start("night")
        status = mine.status("night")["schedulers"][0]
        assert (status["state"], status["periodic_services"]) == ("paused", ["daily"])


@pytest.mark.spec("004-29", "004-30")
async def test_a_restart_finds_timing_history_and_definition(tmp_path: Path, system_clock: Clock) -> None:
    home = tmp_path / "home"
    await one_cycle(home)
    async with raptor.Node(home, services=services(), listen=False) as node:
        status = await node.status()
        assert {line["name"]: line["last_result"] for line in status["services"]} == {"hourly": "ok", "daily": "ok"}
        assert len((await node.call("history"))["runs"]) == 2
        assert status["schedulers"][0]["periodic_interval_ms"] == 3600000
