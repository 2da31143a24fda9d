"""kill -9 at every named point and at random moments: each acknowledged task ends once, and little is repeated.

RAPTOR_KILLS says how many random kills there are; 40 if it is not set.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from raptor.client import Refused
from raptor.faults import TASK_POINTS
from raptor.testing.checker import check, counted
from raptor.testing.torture.node import LANES
from tests.system.queue_rig import Rig

KILLS = int(os.environ.get("RAPTOR_KILLS", "40"))
PARTS = 4  # side by side, where there are processors
MOST = 25  # kills of one state directory
MOMENT_S = 0.4  # of work, before a kill

FOUND: dict[str, tuple[bool | None, ...]] = {
    "before_put": (False, False, False, False, False),
    "after_put": (False, True, None, None, None),
    "before_take": (None, True, False, False, False),
    "after_take": (None, True, True, False, False),
    "before_settle": (None, True, True, True, False),
    "after_settle": (None, True, None, True, True),
}
"""After a kill at the first passing: is a put acknowledged, a task stored, one taken, one run, one settled?"""
SETTLED = "SELECT count(*) FROM task WHERE ended IS NOT NULL OR attempts > 0"  # the first may have failed


@pytest.mark.timeout(120 + KILLS * 10)
@pytest.mark.spec("001-08", "001-26", "001-27", "001-41", "001-49", "003-10", "003-11")
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_at_random_moments_every_acknowledged_task_ends_once(tmp_path: Path, part: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kills = [KILLS // PARTS + (part < KILLS % PARTS)]
    while kills[-1] > MOST:
        kills[-1:] = [MOST, kills[-1] - MOST]
    for number, count in enumerate(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        torture(folder, rng, count)


def torture(folder: Path, rng: random.Random, kills: int) -> None:
    with Rig(folder) as rig:
        rig.start_putting(rng.randrange(2**32))
        for _ in range(kills):
            fault = f"{rng.choice(TASK_POINTS)}:{rng.randrange(1, 25)}" if rng.random() < 0.3 else None
            rig.start(fault=fault)
            rig.kill(after_s=rng.uniform(0, MOMENT_S) if fault is None else 3.0)
            if rng.random() < 0.3:
                with suppress(Refused):  # a process that the node was just starting may still hold its socket open
                    rig.put_alone("quick")
        rig.stop_putting()
        rig.start()
        rig.drain()
        assert rig.stop() == 0
        history = rig.history()
        print(counted(history))
        assert check(history) == []
        assert history.commands


@pytest.mark.timeout(180)
@pytest.mark.spec("001-08", "001-26", "001-27", "001-41")
@pytest.mark.parametrize("point", TASK_POINTS)
def test_killed_at_a_named_point_a_restart_loses_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    with Rig(tmp_path) as rig:
        rig.start_putting(seed=1)
        rig.start(fault=f"{point}:1")
        rig.await_death()
        (image,) = rig.images
        seen = (rig.acks(), rig.count("SELECT count(*) FROM task"), image.taken, rig.lines(), rig.count(SETTLED))
        for known, found in zip(FOUND[point], seen, strict=True):
            assert known is None or known == bool(found), seen
        rig.start(fault=f"{point}:5")
        rig.await_death()
        rig.stop_putting()
        rig.start()
        rig.drain()
        assert rig.stop() == 0
        assert check(rig.history()) == []


@pytest.mark.timeout(180)
def test_a_node_that_comes_back_ends_no_process_of_another_with_the_same_number_of_a_task(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    with Rig(tmp_path / "mine") as mine, Rig(tmp_path / "theirs") as theirs:
        for rig in (mine, theirs):
            rig.start()
            assert rig.put_alone("lengthy_apart") == [1]
            rig.wait(lambda: len(rig.lines()) == 1, "it does not start")  # noqa: B023
        mine.kill()
        mine.start(more={"TORTURE_SHORT": "1"})
        mine.drain()
        os.kill(theirs.lines()[0].pid, 0)
        assert theirs.states() == [("lengthy_apart", "taken", 0, 1)]


@pytest.mark.timeout(180)
@pytest.mark.spec("001-41")
def test_after_a_kill_no_more_is_taken_than_the_lanes_hold(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.start()
        rig.put_alone("held", LANES)
        rig.wait(lambda: len(rig.lines()) == LANES, "they do not start")
        rig.kill()
        rig.put_alone("quick", 2 * LANES)
        rig.start(fault="after_take:1")
        rig.await_death()
        assert len(rig.images[-1].taken) == LANES
        rig.go()
        rig.start()
        rig.drain()
        assert rig.stop() == 0
        assert check(rig.history()) == []
