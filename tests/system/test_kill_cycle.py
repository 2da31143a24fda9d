"""kill -9 at every named point and at random moments: finished services are not repeated, and the cycle completes.

RAPTOR_KILLS says how many random kills there are; 40 if it is not set.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from raptor.clock import Clock
from raptor.faults import POINTS
from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.state.files import ReadStore
from raptor.state.home import Home
from raptor.task import Run, Slot
from raptor.testing.checker import Command, Declared, Dump, History, Life, Line, check
from raptor.testing.checker.history import read_as, write
from tests.system.kill_cycle import NAMES

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("RAPTOR_KILLS", "40"))
PATIENCE_S = 60


def start(folder: Path, *more: str, takes_s: float = 0.0, fault: str | None = None) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("RAPTOR_")}
    lives = read_as(Life, folder / "lives")
    environ["CYCLE_LIFE"] = str(len(lives))
    # Each is killed, by us or by itself, before the next is started.
    lives = [replace(life, killed=True, ended=life.ended or time.time()) for life in lives]
    write(folder / "lives", [*lives, Life(life=len(lives), at=time.time())])
    if fault is not None:
        environ["RAPTOR_FAULT"] = fault
    command = [sys.executable, "-m", "tests.system.kill_cycle", str(folder / "home"), str(folder / "ledger")]
    return subprocess.Popen([*command, str(takes_s), *more], cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Wait for a process to be killed; -> what it said."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, said
    return said.splitlines()


def lines(folder: Path) -> list[Line]:
    return read_as(Line, folder / "ledger")


def begun(lines: Sequence[Line]) -> Counter[str]:
    return Counter(line.service for line in lines if line.what == "start")


class Image:
    """What is on disk."""

    timing: dict[str, ServiceTiming]
    state: SchedulerState | None
    definitions: dict[str, Definition]
    slots: dict[str, list[Slot]]
    runs: list[Run]


def look(folder: Path, clock: Clock) -> Image:
    async def read() -> Image:
        home = Home.read(folder / "home")
        store, image = ReadStore(home), Image()
        try:
            rows = await store.load("service_timing")
            image.timing = {name: row for name, row in rows.items() if isinstance(row, ServiceTiming)}
            state = (await store.load("scheduler_state")).get("main")
            assert state is None or isinstance(state, SchedulerState)
            image.state = state
            defined = await store.load("definitions")
            image.definitions = {name: row for name, row in defined.items() if isinstance(row, Definition)}
            image.slots = {name: await store.slots(name, since=0, until=1e12) for name in NAMES}
            image.runs = await store.history(limit=10_000)
        finally:
            await store.close()
            home.close()
        return image

    return clock.run(read)


def check_cycle(folder: Path, clock: Clock, said: list[str], kills: int) -> None:
    """A whole cycle, however often its process was killed."""
    image = look(folder, clock)
    assert said[-1].startswith("over ")
    assert float(said[-1].split()[1]) > max(row.next_due for row in image.timing.values()) - 3600.0
    assert image.state is None
    assert set(image.timing) == set(NAMES)
    starts = begun(lines(folder))
    assert set(starts) == set(NAMES)
    assert sum(starts.values()) <= len(NAMES) + kills, "more than the run in flight was repeated"
    for name in NAMES:
        [slot] = image.slots[name]
        assert (slot.verdict, slot.count) == ("done", 1)
        assert slot.run == image.timing[name].last_run_id
        assert image.timing[name].failures == 0
    slots = {(line.service, line.planned) for line in lines(folder)}
    assert len(slots) == len(NAMES), "a run was not for the slot of its cycle"
    assert len({run.id for run in image.runs}) == len(image.runs)
    assert check(history(folder, image)) == []


def history(folder: Path, image: Image) -> History:
    now = time.time()
    lives = [replace(life, killed=True, ended=life.ended or now) for life in read_as(Life, folder / "lives")]
    return History(
        services=tuple(Declared(name=name) for name in NAMES),
        lives=tuple(lives),
        commands=tuple(read_as(Command, folder / "commands")),
        lines=tuple(lines(folder)),
        dump=Dump(
            at=now,
            timing=image.timing,
            states={} if image.state is None else {"main": image.state},
            definitions=image.definitions,
            slots=tuple(slot for slots in image.slots.values() for slot in slots),
            runs=tuple(image.runs),
        ),
    )


def recorded(folder: Path, clock: Clock) -> set[str]:
    """Services whose success is on disk."""
    return {name for name, row in look(folder, clock).timing.items() if row.last_run_timestamp is not None}


@pytest.mark.timeout(300)
@pytest.mark.spec("004-09", "004-21", "004-22", "004-23", "004-24", "004-30", "X4-1", "X4-2", "X4-3")
@pytest.mark.parametrize("passing", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point_a_restart_finishes_the_cycle(
    tmp_path: Path, system_clock: Clock, point: str, passing: int
) -> None:
    said = finish(start(tmp_path, fault=f"{point}:{passing}"))
    reached = not any(line.startswith("over") for line in said)
    assert reached == (passing == 1 or point in ("before_state", "after_state", "before_timing", "after_timing"))
    before, there = lines(tmp_path), recorded(tmp_path, system_clock)
    cycle_was_over = look(tmp_path, system_clock).state is None and len(there) == len(NAMES)
    if not cycle_was_over:
        said = finish(start(tmp_path))
        again = begun(lines(tmp_path)[len(before) :])
        assert not there & again.keys(), "recorded work ran again"
    elif reached:
        said = ["over 1e12"]  # killed after the end, before it could say so
    check_cycle(tmp_path, system_clock, said, kills=1)


@pytest.mark.timeout(60 + KILLS * 15)
@pytest.mark.spec("004-09", "004-21", "004-22", "004-23", "004-30", "R4-04", "X4-1", "X4-2", "X4-3")
def test_killed_at_random_moments_every_cycle_completes(tmp_path: Path, system_clock: Clock) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    kills = done = 0
    while kills < KILLS:
        folder = tmp_path / f"cycle {done}"
        folder.mkdir()
        kills_here = 0
        while kills < KILLS and kills_here < 12:
            before = len(lines(folder))
            there = recorded(folder, system_clock) if (folder / "home").exists() else set[str]()
            process = start(folder, takes_s=0.02)
            if not kill_at_random(process, rng):
                break
            kills, kills_here = kills + 1, kills_here + 1
            again = begun(lines(folder)[before:])
            assert not there & again.keys(), f"seed {seed}: recorded work ran again"
        image = look(folder, system_clock)
        said = finish(start(folder)) if image.state is not None or len(image.timing) < len(NAMES) else ["over 1e12"]
        check_cycle(folder, system_clock, said, kills_here)
        done += 1


def kill_at_random(process: subprocess.Popen[str], rng: random.Random) -> bool:
    """Kill it at a moment of its cycle that chance picks; -> False when it was over before."""
    assert process.stdout is not None
    if not process.stdout.readline():
        raise AssertionError("it did not start")
    try:
        process.wait(rng.uniform(0, 0.15))
    except subprocess.TimeoutExpired:
        process.kill()
    said, _ = process.communicate(timeout=PATIENCE_S)
    return "over" not in said


@pytest.mark.timeout(180)
def test_of_twenty_starts_at_once_exactly_one_wins(tmp_path: Path) -> None:
    processes = [start(tmp_path, "--stay", takes_s=0.05) for _ in range(20)]
    try:
        first = [process.stdout.readline() for process in processes if process.stdout is not None]
        assert sorted(first)[:19] == [""] * 19
        assert first.count("ready\n") == 1
        winner = processes[first.index("ready\n")]
        assert winner.stdout is not None
        assert winner.stdout.readline().startswith("over ")
        codes = [process.wait(PATIENCE_S) for process in processes if process is not winner]
        assert all(code == 1 for code in codes)
        assert begun(lines(tmp_path)) == dict.fromkeys(NAMES, 1)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
