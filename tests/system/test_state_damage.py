"""Damaged, foreign and newer state is refused with advice, and never taken for an empty one."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from raptor.clock import Clock, SystemClock
from raptor.errors import RefusedState
from raptor.state import anchor, sqlite, tables
from raptor.state.connection import writing
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.state.parts import FORMAT, PARTS
from raptor.state.repair import repair
from raptor.state.seal import new_id
from tests.system.states import FILES, ROOT, ask, change, fill, looked_at, opened, owned, timing

Harm = Callable[[Path], object]


def other_program(path: Path) -> None:
    path.unlink()
    change(path, "PRAGMA application_id = 77", "CREATE TABLE service_timing (key, value)")


def other_state(path: Path) -> None:
    change(path, f"UPDATE stamp SET state = '{new_id()}'")


HARMS: dict[str, tuple[Harm, str, str]] = {
    "missing": (Path.unlink, "damaged", "is missing"),
    "empty": (lambda path: os.truncate(path, 0), "damaged", "is empty"),
    "one byte": (lambda path: os.truncate(path, 1), "damaged", "is damaged"),
    "half a page": (lambda path: os.truncate(path, 512), "damaged", "is damaged"),
    "a page less": (lambda path: os.truncate(path, path.stat().st_size - 4096), "damaged", "is damaged"),
    "text": (lambda path: path.write_text("hello " * 2000), "damaged", "is damaged"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "damaged", "is damaged"),
    "another program's": (other_program, "foreign", "is a database of another program"),
    "another directory's": (other_state, "foreign", "belongs to another state directory"),
    "no one's": (
        lambda path: change(path, "UPDATE stamp SET state = 'x' || state"),
        "damaged",
        "its stamp cannot be read",
    ),
    "of no version": (lambda path: change(path, "PRAGMA user_version = 9"), "damaged", "there is no version 9"),
    "older": (
        lambda path: change(path, "UPDATE stamp SET sequence = 1"),
        "damaged",
        "older than what was acknowledged",
    ),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    asyncio.run(fill(tmp_path / "state", SystemClock()))
    return tmp_path / "state"


@pytest.mark.spec("otp-D4", "otp-D6", "otp-D9")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_not_what_was_left_is_refused(home: Path, system_clock: Clock, name: str, harm: str) -> None:
    do, kind, problem = HARMS[harm]
    do(home / name)
    with pytest.raises(RefusedState, match=problem) as refused:
        Home.open(home, system_clock)
    assert refused.value.kind == kind
    assert str(refused.value).startswith(f"{home / name} ")
    assert "raptor state repair" in refused.value.advice
    with pytest.raises(RefusedState):  # and the lock was let go
        Home.open(home, system_clock)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "harm", ["missing", "empty", "text", "another program's", "another directory's", "of no version", "older"]
)
@pytest.mark.spec("otp-D5")
def test_it_is_refused_to_those_who_only_look_too(home: Path, name: str, harm: str) -> None:
    do, kind, _ = HARMS[harm]
    do(home / name)
    with pytest.raises(RefusedState) as refused:
        Home.read(home)
    assert refused.value.kind == kind


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-10]),
        lambda path: path.write_bytes(path.read_bytes().replace(b'"clean":true', b'"clean":null')),
    ],
    ids=["missing", "empty", "cut", "changed"],
)
def test_an_anchor_that_is_lost_or_changed_is_refused(home: Path, system_clock: Clock, harm: Harm) -> None:
    harm(home / "anchor.json")
    for attempt in (lambda: Home.open(home, system_clock), lambda: Home.read(home)):
        with pytest.raises(RefusedState, match=r"anchor.json is .*raptor state repair") as refused:
            attempt()
        assert refused.value.kind == "damaged"


def test_a_record_under_another_name_is_noticed(home: Path, system_clock: Clock) -> None:
    path = home / "service_timing.sqlite"
    change(path, "UPDATE service_timing SET key = 'x' WHERE key = 'service 0002'")
    with pytest.raises(RefusedState, match="the checksum of service_timing 'x'"):
        Home.open(home, system_clock)


def test_an_anchor_of_a_newer_raptor_is_refused(home: Path, system_clock: Clock) -> None:
    found = anchor.read(home)
    assert found is not None
    anchor.write(home, msgspec.structs.replace(found, format=FORMAT + 1))
    for attempt in (lambda: Home.open(home, system_clock), lambda: Home.read(home), lambda: repair(home, system_clock)):
        with pytest.raises(RefusedState, match="newer Raptor") as refused:
            attempt()
        assert refused.value.kind == "newer"


def test_the_format_of_a_directory_grows_with_the_versions_of_its_files() -> None:
    assert 1 + sum(len(part.versions()) - 1 for part in PARTS.values()) == FORMAT


async def test_the_anchor_tells_of_a_newer_format_before_any_file_is_of_a_newer_version(
    home: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = anchor.read(home)
    assert found is not None
    anchor.write(home, msgspec.structs.replace(found, format=FORMAT - 1))
    told: list[int | None] = []

    def look(path: Path, *arguments: object, **more: object) -> sqlite3.Connection:
        now = anchor.read(home)
        told.append(None if now is None else now.format)
        return writing(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(tables, "writing", look)
    monkeypatch.setattr(sqlite, "writing", look)
    assert len(await read(home)) == 50
    async with opened(home, system_clock):
        pass
    assert told == [FORMAT] * 3


@pytest.mark.parametrize("bit", range(32))
def test_no_flipped_bit_in_the_number_of_a_version_is_taken_for_a_newer_raptor(
    home: Path, system_clock: Clock, bit: int
) -> None:
    flip(home / FILES[0], 60 + bit // 8, bit % 8)  # where SQLite keeps user_version
    for attempt in (lambda: Home.open(home, system_clock), lambda: Home.read(home)):
        with pytest.raises(RefusedState, match="there is no version") as refused:
            attempt()
        assert refused.value.kind == "damaged"
    assert repair(home, system_clock).kept["service_timing"] == 50
    with owned(home, system_clock):
        pass


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_a_record_is_noticed(home: Path, system_clock: Clock, name: str) -> None:
    content = (home / name).read_bytes()
    tables = {
        "service_timing.sqlite": b'"next_due"',
        "scheduler_state.sqlite": b'"cycle"',
        "raptor.sqlite": b'"should_run"',
    }
    at = content.index(tables[name])
    for bit in range(8):
        for place in (at + 1, at + 12):
            flip(home / name, place, bit)
            with pytest.raises(RefusedState, match="is damaged") as refused:
                Home.open(home, system_clock)
            assert refused.value.file == home / name
            flip(home / name, place, bit)
    with owned(home, system_clock):
        pass


def test_flipped_bits_anywhere_never_change_what_is_read(home: Path, system_clock: Clock) -> None:
    """Refused, or harmless: an unused byte. Never another answer, never an empty one."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    noticed = 0
    path = home / "service_timing.sqlite"
    whole = path.read_bytes()
    for _ in range(150):
        flip(path, rng.randrange(len(whole)), rng.randrange(8))
        try:
            with owned(home, system_clock):
                pass
        except RefusedState as refused:
            noticed += refused.kind in ("damaged", "foreign")
        else:
            assert asyncio.run(read(home)) == {f"service {n:04}": timing(n) for n in range(50)}, f"seed {seed}"
        path.write_bytes(whole)
    assert noticed > 50, f"seed {seed}"


async def read(home: Path) -> dict[str, object]:
    async with looked_at(home) as store:
        return dict(await store.load("service_timing"))


async def test_damage_that_comes_while_it_runs_is_told_to_who_reads(home: Path, system_clock: Clock) -> None:
    async with opened(home, system_clock) as store:
        change(home / "service_timing.sqlite", "UPDATE service_timing SET value = replace(value, 'info 7 ', 'info 8 ')")
        with pytest.raises(RefusedState, match=r"service_timing.sqlite is damaged: the checksum of service_timing"):
            await store.load("service_timing")
        change(
            home / "raptor.sqlite", "UPDATE run SET record = replace(record, '\"ok\"', '\"no\"') WHERE id = 'run 0003'"
        )
        with pytest.raises(RefusedState, match=r"raptor.sqlite is damaged: the checksum of run 'run 0003'"):
            await store.history()
        assert len(await store.slots("a", since=0.0, until=100.0)) == 50


def test_a_large_ledger_is_looked_through_only_when_asked(
    home: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raptor.state.damage.SMALL", 0)
    change(home / "raptor.sqlite", "UPDATE run SET record = replace(record, '\"ok\"', '\"no\"') WHERE id = 'run 0003'")
    with owned(home, system_clock):
        pass
    with pytest.raises(RefusedState, match="run 0003"):
        Home.open(home, system_clock, deep=True)


WRITE = """
import asyncio, os, sys
from raptor.clock import SystemClock
from tests.system.states import STATE, opened, run, timing
async def main():
    async with opened(sys.argv[1], SystemClock()) as store:
        for number in range(30):
            await store.save([("service_timing", f"s{number % 7}", timing(number)), ("scheduler_state", "main", STATE)])
            await store.record([], [run(number)])
        os.kill(os.getpid(), 9)
from pathlib import Path
sys.argv[1] = Path(sys.argv[1])
SystemClock().run(main)
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A state whose owner was killed: what it acknowledged last is in the logs."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path / "killed")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return tmp_path / "killed"


async def test_what_a_kill_left_is_whole(killed: Path, system_clock: Clock) -> None:
    async with opened(killed, system_clock) as store:
        loaded = await store.load("service_timing")
    assert loaded == {f"s{number % 7}": timing(number) for number in range(23, 30)}


@pytest.mark.parametrize("name", FILES)
def test_a_deleted_log_is_noticed(killed: Path, system_clock: Clock, name: str) -> None:
    (killed / f"{name}-wal").unlink()
    with pytest.raises(RefusedState, match="older than what was acknowledged") as refused:
        Home.open(killed, system_clock)
    assert refused.value.file == killed / name


def test_a_log_cut_anywhere_is_noticed(killed: Path, system_clock: Clock, tmp_path: Path) -> None:
    name = "service_timing.sqlite-wal"
    size = (killed / name).stat().st_size
    for cut in [0, 1, 31, 32, *range(100, size, 7919), size - 4096, size - 1]:
        copy = shutil.copytree(killed, tmp_path / str(cut))
        os.truncate(copy / name, cut)
        with pytest.raises(RefusedState, match="older than what was acknowledged"):
            Home.open(copy, system_clock)


async def test_after_a_power_cut_a_file_behind_the_anchor_is_noticed(
    home: Path, system_clock: Clock, tmp_path: Path
) -> None:
    """`heads` is not synced and may be lost with the power; `checkpoint` is what then remains."""
    old = shutil.copytree(home, tmp_path / "old")
    with owned(home, system_clock) as owner:
        store = FileStore(owner)
        for number in range(5):
            await store.save([("service_timing", "a", timing(number))])
        await store.checkpoint()
        await store.close()
    (home / "heads").unlink()
    shutil.copy(old / "service_timing.sqlite", home)
    with pytest.raises(RefusedState, match="older than what was acknowledged"):
        Home.open(home, system_clock)


def test_a_damaged_line_of_heads_is_not_taken_for_that_of_another_file(home: Path) -> None:
    told = {"service_timing.sqlite": 1, "scheduler_state.sqlite": 2, "raptor.sqlite": 3}
    anchor.Heads(home, told).close()
    content = (home / "heads").read_bytes()
    for at in (3, 20):  # a digit, and the end of a line
        (home / "heads").write_bytes(content[:at] + b"\0" + content[at + 1 :])
        expected = told if at == 20 else {name: head for name, head in told.items() if head > 1}
        assert anchor.read_heads(home) == expected


async def test_a_making_that_was_cut_short_is_finished(tmp_path: Path, system_clock: Clock) -> None:
    with owned(tmp_path, system_clock) as home:
        state = home.state
        (tmp_path / "raptor.sqlite").touch()
        change(tmp_path / "scheduler_state.sqlite", "PRAGMA journal_mode = WAL")
    await fill(tmp_path, system_clock)
    for name in FILES:
        assert ask(tmp_path / name, "SELECT state FROM stamp") == [(state,)]


DONE = ("never run again",) * len(PARTS["raptor.sqlite"].versions())
NEXT = "ALTER TABLE definitions ADD COLUMN hue TEXT; UPDATE definitions SET hue = 'blue';"


def test_an_older_version_is_brought_up_in_one_step_with_a_copy_beside_it(home: Path) -> None:
    path = home / "raptor.sqlite"
    state = str(ask(path, "SELECT state FROM stamp")[0][0])
    versions = (*DONE, NEXT)
    writing(path, state, versions).close()
    assert ask(path, "SELECT key, hue FROM definitions") == [("main", "blue")]
    assert ask(path, "PRAGMA user_version") == [(len(versions),)]
    copy = home / f"raptor.sqlite.v{len(DONE)}"
    assert ask(copy, "SELECT count(*) FROM run") == [(50,)]
    assert ask(copy, "PRAGMA user_version") == [(len(DONE),)]
    writing(path, state, versions).close()


def test_a_migration_that_fails_changes_nothing_and_can_be_tried_again(home: Path) -> None:
    path = home / "raptor.sqlite"
    before = ask(path, "SELECT * FROM stamp")
    for script in ("DROP TABLE definitions; SELECT no_such_function();", NEXT.replace("hue =", "shade =")):
        with pytest.raises(sqlite3.OperationalError):
            writing(path, str(before[0][0]), (*DONE, script))
        assert ask(path, "SELECT key FROM definitions") == [("main",)]
        assert ask(path, "PRAGMA user_version") == [(len(DONE),)]
        assert ask(path, "SELECT * FROM stamp") == before
    writing(path, str(before[0][0]), (*DONE, NEXT)).close()
    assert ask(path, "SELECT hue FROM definitions") == [("blue",)]
