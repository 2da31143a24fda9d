"""A disk that is full, broken or read-only: nothing is acknowledged that is not there."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.errors import NotWritten
from tests.system.disks import STORE, Disk, build, faulty
from tests.system.states import ROOT, opened, timing


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def disk(tmp_path: Path, shim: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "state", shim=shim)
    yield disk
    disk.process.kill()
    disk.process.communicate()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=["full", "quota"])
def test_a_full_disk_is_told_and_the_store_works_again_when_there_is_room(disk: Disk, error: int) -> None:
    assert disk.told("save", 1) == ["ok", None]
    disk.fails("write", error)
    for command in ("save", "record", "checkpoint", "save"):
        name, message, reason = disk.told(command, 2)
        assert (name, reason) == ("NotWritten", "full"), message
        assert str(disk.home) in str(message)
    assert disk.told("count") == ["ok", 1]
    disk.works()
    assert disk.told("save", 3) == ["ok", None]
    assert disk.told("checkpoint") == ["ok", None]
    assert disk.told("count") == ["ok", 2]
    assert disk.end() == 0


def test_a_failed_sync_ends_the_writing_even_if_the_next_would_succeed(disk: Disk) -> None:
    assert disk.told("save", 1) == ["ok", None]
    disk.fails("sync", errno.EIO)
    name, message, _ = disk.told("save", 2)
    assert name == "RefusedState"
    assert "takes no more writes; look at the disk" in str(message)
    disk.works()
    assert disk.told("save", 3)[0] == "RefusedState"
    assert disk.told("record")[0] == "ok"  # the other files are whole
    disk.end()


async def test_after_a_failed_sync_a_new_start_has_what_was_acknowledged(disk: Disk, system_clock: Clock) -> None:
    for number in range(10):
        assert disk.told("save", number) == ["ok", None]
    disk.fails("sync", errno.EIO)
    assert disk.told("save", 99)[0] == "RefusedState"
    disk.process.kill()
    disk.end()
    async with opened(disk.home, system_clock) as store:
        assert (await store.load("service_timing")).keys() >= {f"s{number}" for number in range(10)}


def test_an_error_of_the_disk_in_a_write_ends_the_writing(disk: Disk) -> None:
    disk.fails("write", errno.EIO)
    assert disk.told("save", 1)[0] == "RefusedState"
    disk.works()
    assert disk.told("save", 1)[0] == "RefusedState"
    disk.end()


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_cannot_be_written_at_the_start_is_refused(
    tmp_path: Path, shim: Path, call: str, error: int
) -> None:
    (tmp_path / "plan").write_text(f"{call} {error}")
    environment = faulty(tmp_path / "state", shim)
    command = [sys.executable, "-c", STORE, str(tmp_path / "state")]
    done = subprocess.run(command, cwd=ROOT, env=environment, input="", capture_output=True, text=True, check=True)
    assert done.stdout == "RefusedState unwritable\n"


async def test_a_write_too_large_for_the_room_left_leaves_the_small_ones_beside_it(
    tmp_path: Path, system_clock: Clock
) -> None:
    async with opened(tmp_path, system_clock) as store:
        connection = store._open["service_timing.sqlite"].commits.connection
        connection.execute("PRAGMA max_page_count = 20")
        large = timing(1)
        huge = type(large)(next_due=1.0, last_info="x" * 200_000)
        saves = [("a", large), ("huge", huge), ("b", large)]
        done = await asyncio.gather(
            *(store.save([("service_timing", key, record)]) for key, record in saves), return_exceptions=True
        )
        assert [type(answer) for answer in done] == [type(None), NotWritten, type(None)]
        assert await store.load("service_timing") == {"a": large, "b": large}
        connection.execute("PRAGMA max_page_count = 1000000")
        await store.save([("service_timing", "huge", huge)])
        assert len(await store.load("service_timing")) == 3
