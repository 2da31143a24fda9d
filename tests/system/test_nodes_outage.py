"""Issue 5: the server goes away under real nodes, or hangs: they say so, keep what they run, and settle it later."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.servers import Server, followed
from tests.system.cli import Process, eventually
from tests.system.places import Place, Places
from tests.system.proxy import Proxy, proxied


class Between:
    """A proxy in a thread of its own."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxied = proxied(port)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.proxy: Proxy = asyncio.run_coroutine_threadsafe(self._proxied.__aenter__(), self._loop).result(10)

    def hang(self) -> None:
        self._loop.call_soon_threadsafe(self.proxy.hang)

    def go_on(self) -> None:
        """The connections that hung are gone by then, as far as the server knows."""
        self._loop.call_soon_threadsafe(self.proxy.reset)
        self._loop.call_soon_threadsafe(self.proxy.go_on)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._proxied.__aexit__(None, None, None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def between(server: Server) -> Generator[Between]:
    made = Between(server.port)
    try:
        yield made
    finally:
        made.close()


def busy(places: Places) -> tuple[Place, Process, Place, Process, int]:
    """Two nodes: the first is in the middle of a cycle and of a task, the second stands by and does nothing."""
    first, second = places.place("first"), places.place("second")
    first.ok("schedule", "main", "gated", "three")
    owner = first.start("main", "--interval", "1h")
    eventually(lambda: first.ran == ["gated"], "the cycle does not start")
    id = int(first.json("put", "gated")["id"])
    eventually(lambda: first.ran == ["gated", "gated"], "the task does not start")
    other = second.start("main")
    other.wait_for("standing by")
    return first, owner, second, other, id


def settled(first: Place, owner: Process, second: Place, other: Process, id: int) -> None:
    """All that ran is recorded, by whom it was begun, once."""
    for process in (owner, other):
        process.wait_for("the store answers again")
    eventually(lambda: first.json("task", str(id))["state"] == "done", "the task is not settled")
    eventually(lambda: first.ran == ["gated", "gated", "three"], "the cycle does not go on")
    eventually(lambda: first.scheduler()["current_service"] is None, "the cycle does not end")
    assert second.ran == []
    assert second.json("status")["degraded"] is None
    assert first.scheduler()["owner"].endswith(f":{owner.pid}")
    runs = second.json("history")["runs"]
    assert sorted((one["service"], one["outcome"]) for one in runs) == [("gated", "ok"), ("three", "ok")]
    task = second.json("task", str(id))
    assert (task["attempts"], task["history"]) == (0, [])


@pytest.mark.timeout(180)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_while_the_server_is_down_nodes_say_so_and_settle_what_they_ran_when_it_is_back(
    tmp_path: Path, own_server: Server, how: str
) -> None:
    with Places(tmp_path, own_server.url) as places:
        first, owner, second, other, id = busy(places)
        getattr(own_server, how)()
        for process in (owner, other):
            process.wait_for("the store does not answer, and is asked again")
        assert first.json("status")["degraded"]
        assert "! the store does not answer" in second.ok("status")
        nowhere = places.place("nowhere").run("status")
        assert (nowhere.returncode, nowhere.stdout) == (3, "")
        first.go()  # what runs ends while nothing can be written
        owner.wait_for("cannot write, and is tried again")
        own_server.start()
        settled(first, owner, second, other, id)


@pytest.mark.timeout(240)
def test_when_the_primary_dies_nodes_go_on_with_the_standby_that_was_promoted(
    tmp_path: Path, own_server: Server
) -> None:
    with followed(own_server) as standby:
        hosts = f"127.0.0.1:{own_server.port},127.0.0.1:{standby.port}"
        with Places(tmp_path, f"postgresql://raptor@{hosts}/postgres?target_session_attrs=read-write") as places:
            first, owner, second, other, id = busy(places)
            own_server.kill()
            for process in (owner, other):
                process.wait_for("the store does not answer, and is asked again")
            first.go()  # what runs ends while there is no primary
            owner.wait_for("cannot write, and is tried again")
            standby.promote()
            settled(first, owner, second, other, id)


@pytest.mark.timeout(240)
def test_a_network_that_hangs_is_an_outage_too(tmp_path: Path, own_server: Server) -> None:
    with between(own_server) as middle:
        address = own_server.url.replace(f":{own_server.port}/", f":{middle.proxy.port}/")
        with Places(tmp_path, address) as places:
            first, owner, second, other, id = busy(places)
            middle.hang()
            for process in (owner, other):
                process.wait_for("the store does not answer, and is asked again")
            assert first.json("status")["degraded"]
            first.go()
            middle.go_on()
            settled(first, owner, second, other, id)


@pytest.mark.timeout(180)
def test_what_waits_for_a_lock_until_a_stop_is_over_is_said_and_runs_again(tmp_path: Path, own_server: Server) -> None:
    """A node that stands still in the midst of a write holds what has to be written: here a transaction does."""
    with Places(tmp_path, own_server.url) as places, psycopg.connect(own_server.url) as other:
        first = places.place("first")
        first.ok("schedule", "main", "gated")
        owner = first.start("main", "--interval", "1h", "--grace", "2s")
        eventually(lambda: first.ran == ["gated"], "the cycle does not start")
        other.execute("LOCK TABLE raptor.record IN EXCLUSIVE MODE")
        owner.signal(signal.SIGTERM)
        owner.wait_for("stopping")
        first.go()
        owner.wait_for("gated ✗ not recorded: ")
        assert owner.end() == 7, owner.text
        other.rollback()
        again = first.start("main")
        eventually(lambda: first.ran == ["gated", "gated"], "what was not recorded does not run again")
        eventually(lambda: len(first.json("history")["runs"]) == 2, "it is not recorded")
        assert sorted(run["outcome"] for run in first.json("history")["runs"]) == ["interrupted", "ok"]
        again.signal(signal.SIGTERM)
        assert again.end() == 0


@pytest.mark.timeout(180)
def test_what_an_outage_keeps_from_being_recorded_to_the_end_of_a_stop_is_said_and_runs_again(
    tmp_path: Path, own_server: Server
) -> None:
    with Places(tmp_path, own_server.url, brief=True) as places:
        first = places.place("first")
        first.ok("schedule", "main", "gated")
        owner = first.start("main", "--interval", "1h")
        id = int(first.json("put", "gated")["id"])
        eventually(lambda: first.ran == ["gated", "gated"], "they do not start")
        own_server.kill()
        first.go()
        stopped = first.run("stop", "--grace", "2s")
        assert stopped.returncode == 7
        assert owner.end() == 7
        for told in (stopped.stderr, owner.text):
            assert len([line for line in told.splitlines() if "✗ not recorded" in line]) == 2
            assert f"✗ not recorded #{id}: " in told
            assert "→ as after a crash: it runs again" in told
        own_server.start()
        again = first.start("main")
        eventually(lambda: len(first.ran) > 2, "what was not recorded does not run again")
        again.signal(signal.SIGTERM)
        assert again.end() == 0


@pytest.mark.timeout(180)
def test_what_a_stop_finds_unwritten_is_recorded_when_the_server_is_back(tmp_path: Path, own_server: Server) -> None:
    with Places(tmp_path, own_server.url) as places:
        first = places.place("first")
        first.ok("schedule", "main", "gated")
        owner = first.start("main", "--interval", "1h", "--grace", "20s")
        id = int(first.json("put", "gated")["id"])
        eventually(lambda: first.ran == ["gated", "gated"], "they do not start")
        own_server.kill()
        first.go()
        owner.signal(signal.SIGTERM)
        owner.wait_for("stopping")
        own_server.start()
        assert owner.end() == 0, owner.text
        assert first.json("task", str(id))["state"] == "done"
        assert [run["outcome"] for run in first.json("history")["runs"]] == ["ok"]
