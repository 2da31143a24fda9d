"""Issue 5: several nodes on one PostgreSQL, by the real command: who owns, who stands by, who takes over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli import Process, eventually
from tests.system.places import Place, Places


@pytest.fixture
def places(tmp_path: Path, pg_address: str) -> Iterator[Places]:
    with Places(tmp_path, pg_address) as places:
        yield places


def own_and_stand_by(places: Places, *services: str) -> tuple[Place, Process, Place, Process]:
    """Two places: at the first the owner of main, which has begun its first cycle; at the second one who stands by."""
    first, second = places.place("first"), places.place("second")
    first.ok("schedule", "main", *services)
    owner = first.start("main", "--interval", "1h")
    owner.wait_for(services[0])
    other = second.start("main")
    other.wait_for(f":{owner.pid} runs it")
    return first, owner, second, other


def is_shown(place: Place, owner: Process) -> bool:
    """Whether the owner is known elsewhere: by its last heartbeat."""
    return str(place.scheduler().get("owner")).endswith(f":{owner.pid}")


@pytest.mark.timeout(180)
def test_a_second_start_stands_by_and_takes_over_after_an_orderly_stop(places: Places) -> None:
    first, owner, second, other = own_and_stand_by(places, "one")
    third = places.place("third")
    refused = third.run("start", "main", "--no-standby")
    assert refused.returncode == 5
    assert f":{owner.pid} has it" in refused.stderr
    assert second.scheduler()["state"] == "standby"
    eventually(lambda: is_shown(third, owner), "the owner does not show itself")
    owner.signal(signal.SIGTERM)
    assert owner.end() == 0
    other.wait_for("taken over")
    eventually(lambda: is_shown(third, other), "the new owner does not show itself")
    assert (first.ran, second.ran) == (["one"], [])


@pytest.mark.timeout(180)
@pytest.mark.spec("004-21", "004-22")
def test_after_the_death_of_the_owner_the_cycle_goes_on_elsewhere(places: Places) -> None:
    first, owner, second, other = own_and_stand_by(places, "one", "two", "gated", "three")
    eventually(lambda: first.ran == ["one", "two", "gated"], "it did not come to the third")
    second.go()
    owner.signal(signal.SIGKILL)
    other.wait_for("is gone")
    other.wait_for("taken over")
    other.wait_for("resuming")
    eventually(lambda: second.ran == ["gated", "three"], "the cycle did not go on")
    eventually(lambda: not second.scheduler()["remaining_services"], "it does not end")
    done = [(one["service"], one["outcome"]) for one in second.json("history")["runs"]]
    assert sorted(done) == [("gated", "interrupted"), ("gated", "ok"), ("one", "ok"), ("three", "ok"), ("two", "ok")]


@pytest.mark.timeout(180)
@pytest.mark.spec("000-30")
def test_the_late_result_of_an_owner_that_stood_still_is_refused(tmp_path: Path, pg_address: str) -> None:
    with Places(tmp_path, pg_address, brief=True) as places:
        first, owner, second, other = own_and_stand_by(places, "gated", "three")
        eventually(lambda: first.ran == ["gated"], "it did not start")
        owner.signal(signal.SIGSTOP)
        other.wait_for("taken over")
        eventually(lambda: second.ran == ["gated"], "it does not go on")
        first.go()  # its run ends as soon as it wakes
        owner.signal(signal.SIGCONT)
        owner.wait_for("came too late, and was refused")
        owner.wait_for("standing by")
        second.go()
        eventually(lambda: second.ran == ["gated", "three"], "the cycle did not go on")
        eventually(lambda: not second.scheduler()["remaining_services"], "it does not end")
        assert first.ran == ["gated"]
        outcomes = [one["outcome"] for one in second.json("history", "gated")["runs"]]
        assert outcomes.count("ok") == 1
        refused = [one for one in second.json("history", "gated")["runs"] if "refused" in one["info"]]
        assert len(refused) == 1
        assert first.scheduler()["state"] == "standby"


@pytest.mark.timeout(180)
@pytest.mark.spec("000-13")
def test_workers_are_added_anywhere_and_all_nodes_are_shown(places: Places) -> None:
    first, _, second, _ = own_and_stand_by(places, "one")
    third, nowhere = places.place("third"), places.place("nowhere")
    worker = third.work("--processors", "3")
    pids = [process.pid for place in (first, second, third) for process in place.processes]
    eventually(lambda: len(nowhere.json("status")["nodes"]) == 3, "a node is missing")
    for place in (first, third, nowhere):
        assert sorted(node["pid"] for node in place.json("status")["nodes"]) == sorted(pids)
        assert all(str(pid) in place.ok("status") for pid in pids)
        eventually(lambda: place.ok("tree").count("presence") == 3, "a tree is missing")  # noqa: B023
    for pid in pids:
        assert str(pid) in nowhere.ok("queues")
    for process in (*first.processes, *second.processes):
        process.signal(signal.SIGTERM)
        assert process.end() == 0
    nowhere.ok("put", "three")
    nowhere.ok("put", "two", "--wait")
    eventually(lambda: sorted(third.ran) == ["three", "two"], "the worker does not work")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert nowhere.json("status")["nodes"] == []


@pytest.mark.timeout(180)
@pytest.mark.spec("004-12")
def test_commands_are_given_where_no_node_runs(places: Places) -> None:
    first, owner, _, other = own_and_stand_by(places, "one")
    nowhere = places.place("nowhere")
    assert f":{owner.pid}" in nowhere.ok("schedule", "main", "two", "--add")
    eventually(lambda: first.ran == ["one", "two"], "the new service does not run")
    nowhere.ok("pause", "main")
    eventually(lambda: first.scheduler()["state"] == "paused", "it does not pause")
    nowhere.ok("resume", "main")
    id = str(nowhere.json("put", "gated")["id"])
    eventually(lambda: nowhere.json("task", id)["state"] == "taken", "it does not start")
    nowhere.ok("cancel", id)
    eventually(lambda: nowhere.json("task", id)["state"] == "cancelled", "it does not end")
    nowhere.ok("stop", "main")
    for process in (owner, other):  # nothing is left to do for either
        assert process.end() == 0
    eventually(lambda: nowhere.scheduler()["state"] == "stopped", "it still seems to run")
    again = nowhere.run("stop", "main")
    assert (again.returncode, "does not run" in again.stderr) == (3, True)
    assert not (nowhere.home / "raptor.sqlite").exists()
