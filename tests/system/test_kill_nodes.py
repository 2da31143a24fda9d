"""kill -9 of nodes that share a PostgreSQL, and of the server under them: every acknowledged task ends once.

RAPTOR_KILLS says how many kills of nodes there are; 40 if it is not set. The server is killed an eighth as often at
first, and a tenth as often when there are many.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from raptor.task import State
from raptor.testing.checker import check, counted
from tests.servers import Server
from tests.system.queue_rig import Rig

KILLS = int(os.environ.get("RAPTOR_KILLS", "40"))
SERVER_KILLS = max(5 * KILLS // 40, 1) if KILLS <= 40 else KILLS // 10
PARTS = 2  # side by side, where there are processors
NODES = 3
MOMENT_S = 0.4  # of work, before a kill
TAKERS, TASKS = 10, 1000


def judge(rig: Rig, nodes: int) -> None:
    """All that was put has come to its end, and the history is sound."""
    rig.stop_putting()
    rig.drain()
    assert [rig.stop(at) for at in range(nodes)] == [0] * nodes
    history = rig.history()
    print(counted(history))
    assert check(history) == []
    assert history.commands


@pytest.mark.timeout(180 + KILLS * 10)
@pytest.mark.spec("000-30", "000-31", "001-08", "001-49", "001-56", "003-11")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_random_moments_nodes_lose_and_double_nothing(tmp_path: Path, pg_address: str, part: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Rig(tmp_path, store=pg_address, nodes=NODES) as rig:
        for at in range(NODES):
            rig.launch(at)
        rig.start_putting(rng.randrange(2**32))
        for number in range(KILLS // PARTS + (part < KILLS % PARTS)):
            at = number % NODES
            rig.await_start(at)
            rig.kill(rng.uniform(0, MOMENT_S), at)
            rig.launch(at)
            if rng.random() < 0.2:
                rig.put_alone("quick")
        for at in range(NODES):  # a node that is told to stop before it works is just gone
            rig.await_start(at)
        judge(rig, NODES)


@pytest.mark.timeout(120 + SERVER_KILLS * 30)
@pytest.mark.spec("001-08", "001-49")
def test_killed_under_load_the_server_loses_and_doubles_nothing(tmp_path: Path, own_server: Server) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Rig(tmp_path, store=own_server.url, nodes=2) as rig:
        rig.start(0)
        rig.start(1)
        rig.start_putting(rng.randrange(2**32))
        for _ in range(SERVER_KILLS):
            acknowledged, wanted = len(rig.acks()), rng.randrange(1, 60)
            rig.wait(lambda: len(rig.acks()) >= acknowledged + wanted, "nothing is put any more")  # noqa: B023
            own_server.kill()
            own_server.start()
        judge(rig, 2)


@pytest.mark.timeout(180)
@pytest.mark.spec("003-11", "003-18")
@pytest.mark.parametrize("wakes", ["while the other runs", "after its end"])
def test_the_task_of_a_node_that_stands_still_is_anothers_when_its_lease_ends(
    tmp_path: Path, pg_address: str, wakes: str
) -> None:
    lease = {"QUEUE_LEASE": "3s"}
    with Rig(tmp_path, store=pg_address, nodes=2) as rig:
        rig.start(0, more=lease)
        rig.put_alone("held")
        rig.wait(lambda: len(rig.lines()) == 1, "it does not start")
        rig.start(1, more=lease)
        rig.freeze()
        rig.wait(lambda: len(rig.lines()) == 2, "nobody takes it")
        if wakes == "while the other runs":
            rig.thaw()
            rig.wait(lambda: [line.what for line in rig.lines()][2:] == ["cut"], "it goes on with what is another's")
            rig.go()
            rig.drain()
        else:
            rig.go()
            rig.drain()
            rig.thaw()  # its own run ends now, or is broken off
        rig.wait(lambda: len(rig.lines()) == 4, "it does not wake")
        rig.wait(lambda: rig.count("SELECT count(*) FROM run WHERE record::text LIKE '%refused%'") == 1, "not recorded")
        assert [rig.stop(at) for at in range(2)] == [0, 0]
        (task,) = rig.tasks()
        assert (task.state, task.fence, task.output) == (State.DONE, 2, '"held"')
        assert [line.life for line in rig.lines() if line.what == "start"] == [0, 1]
        assert check(rig.history()) == []


@pytest.mark.timeout(180)
@pytest.mark.spec("000-30", "000-43")
def test_of_ten_nodes_at_a_thousand_tasks_each_task_is_run_by_one(tmp_path: Path, pg_address: str) -> None:
    with Rig(tmp_path, store=pg_address, nodes=TAKERS) as rig:
        rig.put_many("quick", TASKS)
        for at in range(TAKERS):
            rig.launch(at)
        for at in range(TAKERS):
            rig.await_start(at)
        rig.drain()
        assert [rig.stop(at) for at in range(TAKERS)] == [0] * TAKERS
        assert {(task.state, task.fence) for task in rig.tasks()} == {(State.DONE, 1)}
        starts = Counter(line.task for line in rig.lines() if line.what == "start")
        assert (len(starts), set(starts.values())) == (TASKS, {1})
        assert len({line.life for line in rig.lines()}) > 1
        assert check(rig.history()) == []
