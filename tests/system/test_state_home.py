"""A state directory: private, one owner, and known again."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.errors import AlreadyRunning, RefusedState
from raptor.state import anchor, files, folder
from raptor.state.connection import reading
from raptor.state.files import FileStore, ReadStore
from raptor.state.home import Home
from raptor.state.parts import PARTS
from raptor.state.repair import repair
from tests.system.states import DEFINITION, FILES, ask, contents, fill, looked_at, opened, owned, timing

HOLD = """
import sys
from raptor.clock import SystemClock
from raptor.errors import AlreadyRunning
from raptor.state.home import Home
try:
    home = Home.open(sys.argv[1], SystemClock())
except AlreadyRunning as error:
    print("lost", error.pid, flush=True)
else:
    print("won", flush=True)
    sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.spec("004-10", "X4-8")
async def test_each_table_is_a_file_of_its_own_in_the_directory_that_was_asked_for(
    tmp_path: Path, system_clock: Clock
) -> None:
    home = tmp_path / "deep" / "state"
    await fill(home, system_clock)
    assert {"service_timing.sqlite", "scheduler_state.sqlite"} <= {file.name for file in home.iterdir()}
    assert ask(home / FILES[0], "SELECT count(*) FROM service_timing") == [(50,)]
    assert ask(home / FILES[1], "SELECT key FROM scheduler_state") == [("main",)]
    async with opened(home, system_clock) as store:
        assert (await store.load("service_timing"))["service 0007"] == timing(7)
        assert await store.load("definitions") == {"main": DEFINITION}


async def test_directory_and_files_are_for_their_owner_alone(tmp_path: Path, system_clock: Clock) -> None:
    old = os.umask(0)
    try:
        async with opened(tmp_path / "state", system_clock) as store:
            await store.checkpoint()
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "state").iterdir()}
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}, modes
    assert {"lock", "anchor.json", "heads", "raptor.sqlite-wal"} <= modes.keys()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, system_clock: Clock, mode: int) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    with pytest.raises(RefusedState, match="written by others; `chmod 700") as refused:
        Home.open(tmp_path / "state", system_clock)
    assert refused.value.kind == "insecure"


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RefusedState, match="belongs to user") as refused:
        Home.open(tmp_path, system_clock)
    assert refused.value.kind == "insecure"


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, system_clock: Clock) -> None:
    (tmp_path / "state").write_text("not a directory")
    with pytest.raises(RefusedState, match="cannot be created") as refused:
        Home.open(tmp_path / "state", system_clock)
    assert refused.value.kind == "unwritable"


def test_a_network_file_system_is_refused_unless_allowed(
    tmp_path: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder.magic(tmp_path) not in folder.NETWORK
    if sys.platform == "linux":
        assert folder.magic(Path("/proc")) == 0x9FA0
    monkeypatch.setattr(folder, "magic", lambda _: 0x6969)
    with pytest.raises(RefusedState, match="NFS") as refused:
        Home.open(tmp_path, system_clock)
    assert refused.value.kind == "network"
    with owned(tmp_path, system_clock, allow_network_fs=True) as home:
        assert home.owned


def test_a_second_owner_is_refused_and_told_who_runs(tmp_path: Path, system_clock: Clock) -> None:
    holder = hold(tmp_path)
    assert said(holder) == "won"
    with pytest.raises(AlreadyRunning, match=f"process {holder.pid}, which runs") as refused:
        Home.open(tmp_path, system_clock)
    assert refused.value.pid == holder.pid
    ended(holder)
    with owned(tmp_path, system_clock):
        pass


def test_a_lock_file_of_a_dead_process_blocks_nobody(tmp_path: Path, system_clock: Clock) -> None:
    (tmp_path / "lock").write_text('{"pid":4194304,"incarnation":"long gone"}')
    with owned(tmp_path, system_clock):
        pass
    (tmp_path / "lock").write_text("rubbish")
    with owned(tmp_path, system_clock):
        pass


@pytest.mark.spec("otp-D10")
def test_of_twenty_that_open_at_once_exactly_one_wins(tmp_path: Path) -> None:
    crowd = [hold(tmp_path / "state") for _ in range(20)]
    answers = {process.pid: said(process) for process in crowd}
    ended(*crowd)
    (winner,) = [pid for pid, answer in answers.items() if answer == "won"]
    assert [answer for answer in answers.values() if answer != "won"] == [f"lost {winner}"] * 19


def test_a_forked_child_does_not_hold_the_directory_for_its_dead_parent(tmp_path: Path, system_clock: Clock) -> None:
    program = HOLD.replace("sys.stdin.read()", "import os, time; os.fork() or time.sleep(30); os.kill(os.getpid(), 9)")
    parent = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert said(parent) == "won"
    assert parent.wait(10) == -signal.SIGKILL
    with owned(tmp_path, system_clock):  # the child sleeps
        pass
    assert parent.stdout is not None
    parent.stdout.close()


async def test_looking_works_beside_the_owner_and_sees_what_was_acknowledged(
    tmp_path: Path, system_clock: Clock
) -> None:
    async with opened(tmp_path, system_clock) as store, looked_at(tmp_path) as reader:
        for number in range(20):
            await store.save([("service_timing", "a", timing(number)), ("definitions", "main", DEFINITION)])
            assert await reader.load("service_timing") == {"a": timing(number)}
        assert await reader.load("definitions") == {"main": DEFINITION}
        assert await reader.history() == []


@pytest.mark.spec("otp-D1", "otp-D5")
async def test_looking_changes_no_file_and_can_change_nothing(tmp_path: Path, system_clock: Clock) -> None:
    await fill(tmp_path, system_clock)
    before = contents(tmp_path)
    async with looked_at(tmp_path) as reader:
        assert len(await reader.load("service_timing")) == 50
        assert len(await reader.slots("a", since=0.0, until=100.0)) == 50
        for attempt in (
            reader.save([("service_timing", "a", timing(1))]),
            reader.record([], []),
            reader.prune(before=1e9, keep=0),
        ):
            with pytest.raises(RefusedState, match="read only"):
                await attempt
        with pytest.raises(RefusedState, match="read only"):
            FileStore(reader.home)
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before


def test_looking_at_nothing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RefusedState, match="no state yet; `raptor start`") as refused:
        Home.read(tmp_path / "state")
    assert refused.value.kind == "absent"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("otp-D2")
async def test_an_unclean_end_is_noticed(tmp_path: Path, system_clock: Clock) -> None:
    await fill(tmp_path, system_clock)
    with owned(tmp_path, system_clock) as home:
        assert home.clean
        store = FileStore(home)
        await store.checkpoint()
        assert not Home.read(tmp_path).clean
        await store.close()
    assert Home.read(tmp_path).clean


async def test_every_open_is_another_incarnation_of_the_same_state(tmp_path: Path, system_clock: Clock) -> None:
    await fill(tmp_path / "one", system_clock)
    await fill(tmp_path / "two", system_clock)
    with owned(tmp_path / "one", system_clock) as first:
        pass
    with owned(tmp_path / "one", system_clock) as second, owned(tmp_path / "two", system_clock) as other:
        assert first.incarnation != second.incarnation
        assert first.state == second.state != other.state
        for name in FILES:
            assert ask(tmp_path / "one" / name, "SELECT state FROM stamp") == [(first.state,)]


async def test_the_sequence_of_a_file_moves_with_every_commit(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path, system_clock) as store:
        ((before,),) = ask(tmp_path / FILES[0], "SELECT sequence FROM stamp")
        for number in range(3):
            await store.save([("service_timing", "a", timing(number))])
        assert ask(tmp_path / FILES[0], "SELECT sequence FROM stamp") == [(before + 3,)]  # type: ignore[operator]


async def test_a_closed_store_says_so(tmp_path: Path, system_clock: Clock) -> None:
    async with opened(tmp_path, system_clock) as store:
        pass
    for attempt in (store.save([("service_timing", "a", timing(1))]), store.load("service_timing"), store.checkpoint()):
        with pytest.raises(RefusedState, match="was closed"):
            await attempt
    await store.close()


def test_a_store_whose_making_failed_leaves_no_file_open(
    tmp_path: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with owned(tmp_path, system_clock) as home:
        monkeypatch.setattr(home, "anchor", lambda *_, **__: 1 / 0)
        before = len(os.listdir("/dev/fd"))
        with pytest.raises(ZeroDivisionError):
            FileStore(home)
        assert len(os.listdir("/dev/fd")) == before


async def test_reading_an_unborn_state_finds_it_empty(tmp_path: Path, system_clock: Clock) -> None:
    with owned(tmp_path, system_clock):
        reader = ReadStore(Home.read(tmp_path))
        assert await reader.load("service_timing") == {}
        assert await reader.history() == []
        await reader.close()


def look(path: Path) -> str:
    """What a reader finds at this moment."""
    try:
        home = Home.read(path)
        for name, part in PARTS.items():
            if home.holds(name):
                with closing(reading(path / name)) as connection:
                    assert [list(shelf.read(connection)) for shelf in part.shelves] == [[]] * len(part.shelves)
    except RefusedState as refused:
        return refused.kind
    return "whole"


def test_whoever_looks_at_any_moment_of_the_making_finds_nothing_yet_or_a_whole_state(
    tmp_path: Path, system_clock: Clock
) -> None:
    package, found = str(Path(files.__file__).parent), list[str]()
    turn = threading.Lock()

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(package):
            return None
        with turn:
            found.append(look(tmp_path / "state"))
        return trace

    old, old_in_threads = sys.gettrace(), threading.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        home = Home.open(tmp_path / "state", system_clock)
        store = FileStore(home)
    finally:
        sys.settrace(old)
        threading.settrace(old_in_threads)  # type: ignore[arg-type]
    system_clock.run(store.close)
    home.close()
    assert len(found) > 100
    assert list(dict.fromkeys(found)) == ["absent", "whole"], found
    assert found == sorted(found)


def test_a_state_that_comes_between_two_looks_of_a_reader_is_not_damaged(
    tmp_path: Path, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(path: Path) -> None:
        monkeypatch.undo()
        system_clock.run(lambda: fill(path, system_clock))

    (tmp_path / "state").mkdir(mode=0o700)
    monkeypatch.setattr(anchor, "read", late)
    assert Home.read(tmp_path / "state").clean


async def test_a_reader_of_a_state_that_is_just_made_sees_it_when_it_is(tmp_path: Path, system_clock: Clock) -> None:
    with owned(tmp_path, system_clock) as home:
        reader = ReadStore(Home.read(tmp_path))
        assert await reader.load("service_timing") == {}
        store = FileStore(home)
        await store.save([("service_timing", "a", timing(1))])
        assert await reader.load("service_timing") == {"a": timing(1)}
        await reader.close()
        await store.close()


async def test_a_file_that_is_half_made_is_nothing_to_those_who_look_and_damage_to_the_next_owner(
    tmp_path: Path, system_clock: Clock
) -> None:
    with owned(tmp_path, system_clock):
        (tmp_path / FILES[0]).write_bytes(b"SQLite format 3\0" * 40)
        async with looked_at(tmp_path) as reader:
            assert await reader.load("service_timing") == {}
    with pytest.raises(RefusedState, match="is damaged"):
        Home.open(tmp_path, system_clock)
    assert repair(tmp_path, system_clock).copy is not None
    with owned(tmp_path, system_clock):
        pass
