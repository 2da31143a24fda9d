"""The reserve for a full disk: results of what runs are recorded from it, and nothing new starts without it."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from raptor.cli import doctor
from raptor.clock import Clock
from raptor.errors import NotWritten
from raptor.state import reserve
from raptor.state.repair import repair
from raptor.state.reserve import SIZE, Reserve
from tests.system.disks import Disk, can_mount, small
from tests.system.full_disk import fill as fill_up
from tests.system.states import FILES, STARTED, STATE, opened, run, slot, timing

needs_mount = pytest.mark.skipif(not can_mount(), reason="a small disk needs root, or user namespaces")


def allocated(folder: Path) -> int:
    try:
        return (folder / "reserve").stat().st_blocks * 512
    except FileNotFoundError:
        return 0


class SmallDisk(Disk):
    """A store on a disk of four megabytes. `seen` is its folder, as this process can reach it."""

    def __init__(self, folder: Path, size: str = "4m") -> None:
        super().__init__(folder, *small(folder, size))
        self.seen = Path(f"/proc/{self.process.pid}/root{folder}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "state")
    yield disk
    disk.process.kill()
    disk.process.communicate()


async def test_the_first_open_sets_a_mebibyte_aside_and_the_next_leaves_it(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path, system_clock):
        made = (tmp_path / "reserve").stat()
        assert made.st_size == SIZE == 2**20
        assert allocated(tmp_path) >= SIZE
        assert made.st_mode & 0o777 == 0o600
    async with opened(tmp_path, system_clock):
        assert (tmp_path / "reserve").stat().st_ino == made.st_ino


async def test_one_that_was_lost_or_cut_is_made_again_at_the_next_open(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path, system_clock):
        pass
    for harm in (Path.unlink, lambda path: os.truncate(path, 100)):
        harm(tmp_path / "reserve")
        async with opened(tmp_path, system_clock):
            assert allocated(tmp_path) >= SIZE


@needs_mount
def test_results_are_recorded_on_a_full_disk_and_nothing_starts_before_there_is_room(disk: SmallDisk) -> None:
    assert disk.told("save", 0) == ["ok", None]
    assert disk.told("start") == ["ok", None]
    fill_up(disk.seen)
    for number in range(1, 11):
        assert disk.told("save", number) == ["ok", None]
        assert disk.told("record", number) == ["ok", None]
    assert disk.told("journal") == ["ok", None]
    assert allocated(disk.seen) == 0
    for command in ("start", "define", "prune"):
        name, message, reason = disk.told(command, 1)
        assert (name, reason) == ("NotWritten", "full"), message
        assert "what is left of it is for results; free some space" in str(message)
    assert disk.told("count") == ["ok", 11]
    (disk.seen / "filler").unlink()
    assert disk.told("start") == ["ok", None]
    assert allocated(disk.seen) >= SIZE
    assert disk.told("define") == ["ok", None]
    assert disk.end() == 0


@needs_mount
def test_new_work_does_not_spend_the_reserve(disk: SmallDisk) -> None:
    assert disk.told("save", 0) == ["ok", None]
    fill_up(disk.seen)
    for command in ("define", "start"):
        name, message, reason = disk.told(command)
        assert (name, reason) == ("NotWritten", "full"), message
        assert allocated(disk.seen) >= SIZE
    assert disk.told("save", 1) == ["ok", None]
    assert allocated(disk.seen) == 0


@needs_mount
def test_a_result_that_finds_room_again_sets_the_reserve_aside(disk: SmallDisk) -> None:
    fill_up(disk.seen)
    assert disk.told("save", 1) == ["ok", None]
    assert disk.told("save", 2) == ["ok", None]
    assert allocated(disk.seen) == 0
    (disk.seen / "filler").unlink()
    assert disk.told("save", 3) == ["ok", None]
    assert allocated(disk.seen) >= SIZE


@needs_mount
def test_when_the_reserve_too_is_used_up_results_wait_for_room(disk: SmallDisk) -> None:
    fill_up(disk.seen)
    assert disk.told("save", 1) == ["ok", None]
    fill_up(disk.seen)
    name, message, reason = next(answer for n in range(99) if (answer := disk.told("save", 2 + n))[0] != "ok")
    assert (name, reason) == ("NotWritten", "full"), message
    (disk.seen / "filler").unlink()
    assert disk.told("save", 2) == ["ok", None]
    assert allocated(disk.seen) >= SIZE


@needs_mount
def test_a_disk_too_small_for_the_reserve_opens_and_starts_nothing(tmp_path: Path) -> None:
    disk = SmallDisk(tmp_path / "state", "512k")
    try:
        assert disk.told("save", 1) == ["ok", None]
        assert disk.told("start")[0] == "NotWritten"
        assert allocated(disk.seen) == 0
        assert disk.end() == 0
    finally:
        disk.process.kill()


@needs_mount
def test_a_node_records_what_ran_into_the_full_disk_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    home = tmp_path / "state"
    command = [*small(home, "8m"), sys.executable, "-m", "tests.system.full_disk", str(home)]
    node = subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    seen = Path(f"/proc/{node.pid}/root{home}")
    try:
        assert node.stdout is not None
        assert node.stdin is not None
        assert said_until(node.stdout, "store_failing") == ["service_started first", "service_ended first"]
        assert allocated(seen) == 0
        assert said_until(node.stdout, "store_failing") == []
        node.stdin.write("make room\n")
        node.stdin.flush()
        said = [line for line in said_until(node.stdout, "cycle_done") if line != "store_failing"]
        assert said == ["service_started second", "service_ended second"]
        assert allocated(seen) >= SIZE
        node.communicate("end\n", timeout=30)
        assert node.returncode == 0
    finally:
        node.kill()
        node.communicate()


def said_until(lines: IO[str], last: str) -> list[str]:
    """What was said before that line."""
    said: list[str] = []
    for line in lines:
        if line.strip() == last:
            return said
        said.append(line.strip())
    raise AssertionError(f"it ended after {said}")


async def test_works_that_wait_together_are_told_apart(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path, system_clock) as store:
        connection = store._open["scheduler_state.sqlite"].commits.connection
        connection.execute("PRAGMA max_page_count = 4")  # to SQLite this is a full disk
        store._reserve.restore = lambda: False  # type: ignore[method-assign]
        saves = [("one", STATE), ("two", STARTED), ("three", STATE)]
        done = await asyncio.gather(
            *(store.save([("scheduler_state", key, state)]) for key, state in saves), return_exceptions=True
        )
        assert [type(answer) for answer in done] == [type(None), NotWritten, type(None)]
        assert (await store.load("scheduler_state")).keys() == {"one", "three"}


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_room_cannot_be_set_aside_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    kept = Reserve(tmp_path)
    os.sync()
    assert (tmp_path / "reserve").stat().st_size == SIZE
    assert kept.spend()
    assert not kept.spend()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("error", "starts"), [(errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EFBIG, True)])
def test_only_for_want_of_room_does_new_work_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, starts: bool
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    monkeypatch.setattr(os, "pwrite", refuse)
    kept = Reserve(tmp_path)
    assert kept.restore() is starts
    assert list(tmp_path.iterdir()) == []
    if not starts:
        with pytest.raises(NotWritten, match="free some space"):
            kept.demand()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "reserve").symlink_to(tmp_path / "precious")
    Reserve(tmp_path / "state")
    assert (tmp_path / "precious").read_text() == "text"


async def test_a_repair_does_not_copy_it(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path / "state", system_clock) as store:
        await store.save([("service_timing", "a", timing(1))])
        await store.record([slot(1)], [run(1)])
    os.truncate(tmp_path / "state" / FILES[0], 100)
    copy = repair(tmp_path / "state", system_clock).copy
    assert copy is not None
    assert FILES[0] in {file.name for file in copy.iterdir()}
    assert reserve.size(copy) == 0


@pytest.mark.parametrize(
    ("kept", "free", "good", "words"),
    [
        (SIZE, 0, True, "1 MiB is set aside"),
        (0, SIZE, True, "the next write of a node does it"),
        (0, SIZE - 1, False, "nothing new starts until 1 MiB is free"),
    ],
)
def test_the_doctor_knows_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int, free: int, good: bool, words: str
) -> None:
    (tmp_path / "reserve").write_bytes(bytes(kept))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    session: Any = SimpleNamespace(config=SimpleNamespace(home=tmp_path))
    ((found, text),) = doctor.CHECKS["reserve"](session)
    assert found is good
    assert words in text
