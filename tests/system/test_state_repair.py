"""Repair: a copy first, every whole record kept, what is gone is said, and it may be killed at any point."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from raptor.clock import Clock, SystemClock
from raptor.errors import AlreadyRunning, RefusedState
from raptor.state import repair as repairing
from raptor.state.base import Query
from raptor.state.home import Home
from raptor.state.repair import repair
from tests.system.states import (
    DEFINITION,
    FILES,
    ROOT,
    STATE,
    change,
    contents,
    fill,
    large,
    opened,
    owned,
    run,
    slot,
    timing,
)
from tests.system.tasks import TASKS, fill_tasks

COUNT = 200
TIMINGS = {f"service {n:04}": timing(n) for n in range(COUNT)}


async def fill_all(home: Path, clock: Clock) -> None:
    await fill(home, clock, COUNT)
    async with opened(home, clock) as store:
        assert await fill_tasks(store) == TASKS


@pytest.fixture
def home(tmp_path: Path) -> Path:
    asyncio.run(fill_all(tmp_path / "state", SystemClock()))
    return tmp_path / "state"


async def everything(home: Path, clock: Clock) -> dict[str, object]:
    async with opened(home, clock) as store:
        return {
            "timings": await store.load("service_timing"),
            "states": await store.load("scheduler_state"),
            "definitions": await store.load("definitions"),
            "runs": await store.history(limit=10**6),
            "slots": await store.slots("a", since=0.0, until=1e9, limit=10**6),
            "tasks": await store.find(Query(limit=10**6)),
        }


WHOLE = {
    "timings": TIMINGS,
    "states": {"main": STATE},
    "definitions": {"main": DEFINITION},
    "runs": [run(n) for n in reversed(range(COUNT))],
    "slots": [slot(n) for n in range(COUNT)],
    "tasks": TASKS,
}


def test_what_is_whole_is_not_touched(home: Path, system_clock: Clock) -> None:
    before = contents(home)
    report = repair(home, system_clock)
    assert (report.copy, report.lost) == (None, [])
    after = contents(home)
    assert {name: after[name] for name in before if name != "lock"} == {n: c for n, c in before.items() if n != "lock"}


@pytest.mark.spec("otp-D3", "otp-D4")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "harm",
    [
        lambda content: b"\xff" * 100 + content[100:],  # the header
        lambda content: content[:24] + b"\xff" * 12 + content[36:],  # change counter, size, free list
        lambda content: b"\0" * 4096 + content[4096:],  # all of the first page, with the schema
    ],
    ids=["header", "free list", "first page"],
)
async def test_a_broken_head_costs_no_record(
    home: Path, system_clock: Clock, name: str, harm: Callable[[bytes], bytes]
) -> None:
    (home / name).write_bytes(harm((home / name).read_bytes()))
    report = repair(home, system_clock)
    kept = {table: count for table, count in report.kept.items() if count}
    assert kept == {"service_timing": COUNT, "scheduler_state": 1, "definitions": 1} | {
        "run": COUNT,
        "slot": COUNT,
        "task": len(TASKS),
    }
    assert await everything(home, system_clock) == WHOLE


@pytest.mark.spec("otp-D3")
@pytest.mark.timeout(240)
async def test_flipped_bytes_cost_only_the_records_that_they_hit(
    home: Path, system_clock: Clock, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    size = (home / FILES[0]).stat().st_size
    for number in range(40):
        copy = shutil.copytree(home, tmp_path / str(number))
        content = bytearray((copy / FILES[0]).read_bytes())
        hits = [rng.randrange(size) for _ in range(5)]
        for at in hits:
            content[at] ^= rng.randrange(1, 256)
        (copy / FILES[0]).write_bytes(content)
        report = repair(copy, system_clock)
        found = await everything(copy, system_clock)
        timings = found.pop("timings")
        assert isinstance(timings, dict)
        assert timings.items() <= TIMINGS.items(), f"seed {seed}"
        assert len(timings) >= COUNT - len(hits), f"seed {seed}: {sorted(TIMINGS.keys() - timings.keys())}"
        for lost in TIMINGS.keys() - timings.keys():
            assert any(lost in line or "record" in line for line in report.lost), f"seed {seed}: {lost} {report.lost}"
        assert found == {name: value for name, value in WHOLE.items() if name != "timings"}, f"seed {seed}"


@pytest.mark.parametrize("left", [0, 1, 4096, 8192])
async def test_of_a_cut_file_the_rest_is_kept_and_the_loss_is_told(home: Path, system_clock: Clock, left: int) -> None:
    os.truncate(home / FILES[0], left)
    report = repair(home, system_clock)
    assert any(line.startswith(FILES[0]) for line in report.lost)
    found = await everything(home, system_clock)
    assert found.pop("timings").items() <= TIMINGS.items()  # type: ignore[attr-defined]
    assert found == {name: value for name, value in WHOLE.items() if name != "timings"}


async def test_a_lost_file_is_made_anew_and_the_loss_is_told(home: Path, system_clock: Clock) -> None:
    (home / "scheduler_state.sqlite").unlink()
    report = repair(home, system_clock)
    assert report.lost == ["scheduler_state.sqlite was missing or empty: all that it held"]
    assert await everything(home, system_clock) == WHOLE | {"states": {}}


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"{}")], ids=["missing", "changed"])
async def test_a_lost_anchor_is_written_anew(home: Path, system_clock: Clock, harm: Callable[[Path], object]) -> None:
    with owned(home, system_clock) as owner:
        state = owner.state
    harm(home / "anchor.json")
    assert repair(home, system_clock).lost == []
    assert await everything(home, system_clock) == WHOLE
    assert Home.read(home).state == state


async def test_a_broken_stamp_costs_no_record(home: Path, system_clock: Clock) -> None:
    for name in FILES:
        change(home / name, "UPDATE stamp SET state = 'a' || substr(state, 2), sequence = 1")
    repair(home, system_clock)
    assert await everything(home, system_clock) == WHOLE


async def test_a_file_of_another_directory_is_set_aside(home: Path, system_clock: Clock, tmp_path: Path) -> None:
    await fill(tmp_path / "other", system_clock, 3)
    shutil.copy(tmp_path / "other" / FILES[0], home)
    report = repair(home, system_clock)
    assert report.lost == ["service_timing.sqlite belonged to another state directory: all that it held was set aside"]
    assert await everything(home, system_clock) == WHOLE | {"timings": {}}
    assert report.copy is not None
    assert (report.copy / FILES[0]).read_bytes() == (tmp_path / "other" / FILES[0]).read_bytes()


@pytest.mark.spec("otp-D9")
def test_newer_state_is_not_repaired(home: Path, system_clock: Clock) -> None:
    change(home / FILES[2], "PRAGMA user_version = 9")
    (home / "anchor.json").unlink()  # which would know
    before = contents(home)
    with pytest.raises(RefusedState, match="newer Raptor"):
        repair(home, system_clock)
    after = contents(home)
    assert {name: after[name] for name in FILES} == {name: before[name] for name in FILES}


def test_what_runs_is_not_repaired(home: Path, system_clock: Clock) -> None:
    with owned(home, system_clock), pytest.raises(AlreadyRunning):
        repair(home, system_clock)


async def test_deleted_records_do_not_come_back(home: Path, system_clock: Clock) -> None:
    async with opened(home, system_clock) as store:
        await store.save([("scheduler_state", "main", None), ("definitions", "main", None)])
        gone = list(TIMINGS)[: COUNT // 2]  # whole pages of them
        await store.save([("service_timing", name, None) for name in gone])
    for name in FILES:
        (home / name).write_bytes(b"\xff" * 100 + (home / name).read_bytes()[100:])
    repair(home, system_clock)
    left = {name: record for name, record in TIMINGS.items() if name not in gone}
    assert await everything(home, system_clock) == WHOLE | {"states": {}, "definitions": {}, "timings": left}


LOG = """
import asyncio, os, sys
from pathlib import Path
from raptor.clock import SystemClock
from tests.system.states import large, opened
async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as store:
        for number in range(60):
            await store.save([("service_timing", f"s{number % 20}", large(number))])
        os.kill(os.getpid(), 9)
SystemClock().run(main)
"""


def test_what_stands_only_in_the_log_is_kept(tmp_path: Path, system_clock: Clock) -> None:
    home = tmp_path / "state"
    assert subprocess.run([sys.executable, "-c", LOG, str(home)], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    log = home / "service_timing.sqlite-wal"
    content = bytearray(log.read_bytes())
    content[32 + 24 + 4000] ^= 1  # SQLite itself stops reading a log at the first frame that is broken
    log.write_bytes(content)
    with pytest.raises(RefusedState, match="older than what was acknowledged"):
        Home.open(home, system_clock)
    assert repair(home, system_clock).lost == []

    async def look() -> None:
        async with opened(home, system_clock) as store:
            assert await store.load("service_timing") == {f"s{n % 20}": large(n) for n in range(40, 60)}

    system_clock.run(look)


@pytest.mark.timeout(240)
def test_of_a_damaged_log_nothing_older_is_kept_in_silence(tmp_path: Path, system_clock: Clock) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    home = tmp_path / "state"
    assert subprocess.run([sys.executable, "-c", LOG, str(home)], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    log = (home / "service_timing.sqlite-wal").read_bytes()
    size = len(log)
    newest = {f"s{n % 20}": large(n) for n in range(40, 60)}
    # Its header, the head of a frame, its end, the last image of each record, the head of that frame, and anywhere.
    last = [log.rindex(f"info {n} ".encode()) for n in range(40, 60)]
    heads = [32 + (at - 32) // 4120 * 4120 + 3 for at in last]
    for at in [16, 20, 24, 32, 40, 48, size - 1, *last, *heads, *(rng.randrange(size) for _ in range(20))]:
        copy = shutil.copytree(home, tmp_path / "copy")
        content = bytearray(log)
        content[at] ^= rng.randrange(1, 256)
        (copy / "service_timing.sqlite-wal").write_bytes(content)
        report = repair(copy, system_clock)
        found = system_clock.run(partial(everything, copy, system_clock))["timings"]
        assert found == newest or report.lost, f"seed {seed}, at {at} of {size}"
        assert isinstance(found, dict)
        late = [key for key, record in newest.items() if found.get(key) != record]
        assert len(late) <= 2, f"seed {seed}, at {at} of {size}: {late}"
        shutil.rmtree(copy)


@pytest.mark.spec("otp-D7")
def test_where_no_copy_can_be_made_nothing_is_touched(
    home: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(home / FILES[0], 4096)
    before = contents(home)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(repairing.shutil, "copy2", full)
    with pytest.raises(RefusedState, match="No space left") as refused:
        repair(home, system_clock)
    assert refused.value.kind == "unwritable"
    after = contents(home)
    assert {name: after[name] for name in before if name != "lock"} == {n: c for n, c in before.items() if n != "lock"}
    monkeypatch.undo()
    assert repair(home, system_clock).copy is not None


KILLED = """
import os, sys
left = int(sys.argv[2])
def hook(event, args):
    global left
    if event in ("os.rename", "os.remove", "shutil.copyfile", "sqlite3.connect", "os.mkdir"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
from raptor.clock import SystemClock
from raptor.state.repair import repair
sys.addaudithook(hook)
repair(sys.argv[1], SystemClock())
"""


@pytest.mark.spec("otp-D8")
@pytest.mark.timeout(240)
def test_a_repair_that_was_killed_can_be_repeated(home: Path, system_clock: Clock, tmp_path: Path) -> None:
    """Killed at the n-th rename, removal, copy or opening, for every n until it gets through."""
    (home / FILES[0]).write_bytes(b"\xff" * 100 + (home / FILES[0]).read_bytes()[100:])
    (home / FILES[1]).unlink()
    for point in range(1, 100):
        copy = shutil.copytree(home, tmp_path / str(point))
        code = subprocess.run([sys.executable, "-c", KILLED, str(copy), str(point)], check=False).returncode
        if code == 0:
            break
        assert code == -signal.SIGKILL
        try:
            Home.open(copy, system_clock).close()
        except RefusedState as refused:
            assert "raptor state repair" in str(refused)  # noqa: PT017
        repair(copy, system_clock)
        assert system_clock.run(lambda: everything(copy, system_clock)) == WHOLE | {"states": {}}, f"killed at {point}"  # noqa: B023
        shutil.rmtree(copy)
    assert point > 15
