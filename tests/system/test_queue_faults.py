"""A node with tasks is told to stop, stands still, or its disk fails: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from raptor.client import Refused
from raptor.config import Config
from raptor.connect import connect
from raptor.task import State
from raptor.testing.checker import check
from raptor.testing.torture.node import LANES
from tests.system.disks import build, can_mount, faulty
from tests.system.full_disk import fill
from tests.system.queue_rig import Rig

pytestmark = pytest.mark.timeout(180)
DONE = "SELECT count(*) FROM task WHERE state = 'done'"
TAKEN = "SELECT count(*) FROM task WHERE state = 'taken'"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path) as rig:
        yield rig


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("faults"))


class Disk:
    """The disk of a rig's node, which fails when told to."""

    def __init__(self, rig: Rig, shim: Path) -> None:
        self.environ = {
            name: text for name, text in faulty(rig.home, shim).items() if name.startswith(("FAULTS", "LD"))
        }
        self._plan = rig.home.with_name("plan")

    def fails(self, call: str, error: int) -> None:
        unfinished = self._plan.with_suffix(".tmp")
        unfinished.write_text(f"{call} {error}")
        unfinished.replace(self._plan)

    def works(self) -> None:
        self._plan.unlink()


def begin(rig: Rig, *services: str) -> list[int]:
    """Put tasks, and wait until they run."""
    ids = [id for service in services for id in rig.put_alone(service)]
    rig.wait(lambda: set(ids) <= {line.task for line in rig.lines()}, "they do not start")
    return ids


def finish(rig: Rig) -> None:
    rig.drain()
    assert rig.stop() == 0
    assert check(rig.history()) == []


@pytest.mark.spec("003-31", "003-51", "003-25")
def test_told_to_stop_it_finishes_what_runs(rig: Rig) -> None:
    rig.start(grace_s=60.0)
    rig.start_putting(seed=2)
    ids = begin(rig, "held", "held")
    rig.wait(lambda: rig.count(DONE) >= 10, "nothing is done")
    rig.node.send_signal(signal.SIGTERM)
    rig.stop_putting()
    rig.go()
    assert rig.end() == 0
    found = {task.id: task for task in rig.tasks()}
    assert not [task for task in found.values() if task.state is State.TAKEN]
    assert [(found[id].state, found[id].attempts, found[id].fence) for id in ids] == [(State.DONE, 0, 1)] * 2
    rig.start()
    finish(rig)


@pytest.mark.spec("003-51")
def test_told_to_stop_it_gives_back_what_takes_longer_than_the_grace(rig: Rig) -> None:
    rig.start(grace_s=0.5)
    rig.start_putting(seed=3)
    ids = begin(rig, "lengthy", "lengthy", "lengthy_apart")
    rig.wait(lambda: rig.count(DONE) >= 10, "nothing is done")
    assert rig.stop() == 0
    rig.stop_putting()
    found = {task.id: task for task in rig.tasks()}
    assert not [task for task in found.values() if task.state is State.TAKEN]
    for id in ids:
        assert (found[id].state, found[id].attempts, found[id].suspect) == (State.READY, 0, False)
        assert [past.verdict for past in found[id].history] == ["again"]
    rig.start(more={"TORTURE_SHORT": "1"})
    finish(rig)


@pytest.mark.spec("003-10")
def test_a_node_that_stood_still_past_its_leases_goes_on_and_repeats_nothing(rig: Rig) -> None:
    rig.start(more={"QUEUE_LEASE": "1s"})
    rig.start_putting(seed=4)
    ids = begin(rig, "held", "held", "held")
    rig.node.send_signal(signal.SIGSTOP)
    wait_for_lapse(rig)
    rig.node.send_signal(signal.SIGCONT)
    rig.go()
    rig.wait(lambda: {line.task for line in rig.lines() if line.what == "end"} >= set(ids), "they do not end")
    rig.stop_putting()
    finish(rig)
    assert {task.fence for task in rig.tasks() if task.id in ids} == {1}


def wait_for_lapse(rig: Rig) -> None:
    def lapsed() -> bool:
        return rig.count(TAKEN) == rig.count(f"{TAKEN} AND lease < {time.time() - 0.5}")

    rig.wait(lapsed, "it renews its leases")


@pytest.mark.spec("001-08", "001-24")
def test_on_a_full_disk_puts_are_refused_and_results_wait_for_room(rig: Rig, shim: Path) -> None:
    disk = Disk(rig, shim)
    rig.start(more=disk.environ)
    before = rig.put_alone("quick", 5)
    rig.drain()
    ids = begin(rig, "held", "held", "lengthy_apart")[:2]
    disk.fails("write", errno.ENOSPC)
    with pytest.raises(Refused, match="full"):
        rig.put_alone("quick")
    rig.go()
    rig.wait(lambda: {line.task for line in rig.lines() if line.what == "end"} >= {*before, *ids}, "they do not end")
    with pytest.raises(Refused, match="full"):
        rig.put_alone("quick")
    assert rig.count(TAKEN) == 3
    disk.works()
    rig.wait(lambda: rig.count(TAKEN) == 1, "the results are not recorded")
    rig.put_alone("quick", 5)
    rig.wait(lambda: rig.count(DONE) == 12, "it does not go on")
    rig.kill()
    rig.start(more={"TORTURE_SHORT": "1"})
    finish(rig)
    assert {task.fence for task in rig.tasks() if task.service != "lengthy_apart"} == {1}


@pytest.mark.skipif(not can_mount(), reason="a small disk needs root, or user namespaces")
@pytest.mark.spec("001-08", "001-24")
def test_on_a_full_disk_what_runs_is_recorded_from_the_reserve_and_nothing_starts() -> None:
    with TemporaryDirectory(prefix="q") as folder, Rig(Path(folder), size="8m") as rig:  # a short path, for its socket
        rig.start()
        begin(rig, *["held"] * LANES)
        waiting = rig.put_alone("quick", 3)
        fill(rig.seen)
        with pytest.raises(Refused, match="free some space"):
            rig.put_alone("quick")
        rig.go()
        rig.wait(lambda: counts(rig)["done"] == LANES, "the results are not recorded")
        with pytest.raises(Refused, match="free some space"):
            rig.put_alone("quick")
        assert not {line.task for line in rig.lines()} & set(waiting)
        (rig.seen / "filler").unlink()
        rig.put_alone("quick")
        rig.wait(lambda: counts(rig)["done"] == LANES + 4, "it does not go on")
        runs = [line.task for line in rig.lines() if line.what == "start"]
        assert sorted(runs) == sorted(set(runs))
        assert rig.stop() == 0


def counts(rig: Rig) -> dict[str, int]:
    """How many tasks there are, as the node says."""
    (queue,) = connect(Config.load({"home": str(rig.seen)})).call("queues")["queues"]
    found: dict[str, int] = queue
    return found


@pytest.mark.spec("001-08", "001-27")
def test_after_a_failed_sync_the_node_ends_and_the_next_has_what_was_acknowledged(rig: Rig, shim: Path) -> None:
    disk = Disk(rig, shim)
    rig.start(more=disk.environ)
    rig.start_putting(seed=5)
    rig.wait(lambda: rig.count(DONE) >= 3 * LANES, "nothing is done")
    disk.fails("sync", errno.EIO)
    assert rig.end() == 1
    disk.works()
    rig.note_death()
    rig.start()
    rig.wait(lambda: rig.count(DONE) >= 6 * LANES, "it does not go on")
    rig.stop_putting()
    finish(rig)
