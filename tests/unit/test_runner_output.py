"""The output of a run: bounded in memory and on disk, whatever is printed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.runners import Context
from raptor.runners.output import CHUNK, FILES, PER_FILE, PER_RUN, TAIL, Capture, Recording, RunLog

CONTEXT = Context(run_id="r1", service="s", planned=0.0, key="k", attempt=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "service.log"


def content(path: Path) -> str:
    return path.read_text()


def written(path: Path, *chunks: bytes) -> RunLog:
    log = RunLog(path)
    for chunk in chunks:
        log.write(chunk)
    log.close()
    return log


def test_the_tail_is_the_end_of_the_output() -> None:
    log = RunLog()
    log.write(b"first\n")
    assert log.tail() == "first\n"
    for number in range(10_000):
        log.write(b"line %d\n" % number)
    assert log.tail().endswith("line 9998\nline 9999\n")
    assert len(log.tail()) <= TAIL


def test_the_tail_is_harmless_text() -> None:
    log = RunLog()
    log.write(b"\xff\xfe nul \0 red \x1b[31m \xc3\xa9\r\n")
    assert log.tail() == "\ufffd\ufffd nul \\x00 red \\x1b[31m é\n"


def test_a_tail_of_binary_rubbish_stays_small() -> None:
    log = RunLog()
    log.write(os.urandom(100_000))
    log.write(b"\0" * 100_000)
    assert len(log.tail().encode()) <= TAIL


def test_a_tail_does_not_begin_in_the_middle_of_a_character() -> None:
    log = RunLog()
    log.write("€".encode() * 5000)
    assert set(log.tail()) == {"€"}


def test_the_file_holds_what_was_printed_byte_for_byte(path: Path) -> None:
    written(path, b"\xff\0\x1b[31m", b"more\n")
    assert path.read_bytes() == b"\xff\0\x1b[31mmore\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_runs_are_appended(path: Path) -> None:
    written(path, b"one\n")
    written(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_run_keeps_a_beginning_and_an_end_and_counts_the_rest(path: Path) -> None:
    chunk = b"x" * 65536
    log = RunLog(path)
    log.write(b"the beginning\n")
    for _ in range(1000):
        log.write(chunk)
    log.write(b"\nthe end\n")
    log.close()
    kept = path.read_bytes()
    assert len(kept) <= PER_RUN
    assert kept.startswith(b"the beginning\n")
    assert kept.endswith(b"\nthe end\n")
    assert b"\n... 64.5 MB dropped ...\n" in kept
    assert log.total == 65536 * 1000 + 23


def test_a_run_that_just_fits_has_nothing_dropped(path: Path) -> None:
    text = os.urandom(PER_RUN - TAIL - 1) + b"\n"
    written(path, text)
    assert path.read_bytes() == text


async def test_a_line_that_was_not_ended_does_not_swallow_the_header_of_the_next_run(clock: Clock, path: Path) -> None:
    for _ in (1, 2):
        log = RunLog(path)
        async with Recording(log, CONTEXT, clock):
            log.write(b"no newline")
    header = "== run r1 attempt 2 at 2001-09-09T01:46:40Z"
    assert content(path) == f"{header}\nno newline\n{header}\nno newline\n"


def test_memory_is_bounded_while_the_disk_is_slow(path: Path) -> None:
    log = RunLog(path)
    for _ in range(1000):
        log.write(b"x" * 65536)
    assert len(log._pending) + len(log._tail) <= PER_RUN


def test_files_are_rotated_by_size(path: Path) -> None:
    for number in range(8):
        written(path, b"%d" % number * (PER_FILE // 2 - 1) + b"\n")
    names = sorted(each.name for each in path.parent.iterdir())
    assert names == ["service.log", "service.log.1", "service.log.2"]
    assert len(names) == FILES
    assert all(each.stat().st_size <= PER_FILE for each in path.parent.iterdir())
    assert path.read_bytes()[:1] == b"6"
    assert path.with_name("service.log.2").read_bytes()[:1] == b"2"


def test_a_log_without_a_path_has_only_a_tail(tmp_path: Path) -> None:
    log = RunLog(None)
    log.write(b"x" * 10**6)
    log.close()
    assert log.tail() == "x" * TAIL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("obstacle", ["folder", "link", "fifo", "file for a folder"])
def test_a_file_that_cannot_be_written_is_a_problem_and_not_an_error(path: Path, obstacle: str) -> None:
    path.parent.mkdir()
    match obstacle:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to("/dev/null")
        case "fifo":
            os.mkfifo(path)
        case _:
            path.parent.rmdir()
            path.parent.touch()
    log = written(path, b"text")
    assert log.problem is not None
    assert log.tail() == "text"


def test_what_comes_after_the_end_is_ignored(path: Path) -> None:
    log = written(path, b"before\n")
    log.write(b"after\n")
    log.close()
    assert (path.read_bytes(), log.tail()) == (b"before\n", "before\n")


async def test_a_run_that_prints_is_announced_in_its_file(clock: Clock, path: Path) -> None:
    log = RunLog(path)
    async with Recording(log, CONTEXT, clock):
        log.text("hello\n")
    assert content(path) == "== run r1 attempt 2 at 2001-09-09T01:46:40Z\nhello\n"
    assert log.tail() == "hello\n"


async def test_a_run_that_prints_nothing_leaves_nothing(clock: Clock, path: Path) -> None:
    async with Recording(RunLog(path), CONTEXT, clock):
        pass
    assert not path.parent.exists()


async def test_the_file_can_be_followed_while_the_run_lasts(clock: Clock, path: Path) -> None:
    log = RunLog(path)
    async with Recording(log, CONTEXT, clock):
        for word in ("one\n", "two\n"):
            log.text(word)
            await clock.sleep(1)
            assert content(path).endswith(word)


async def test_a_thread_may_print(system_clock: Clock, path: Path) -> None:
    log = RunLog(path)
    async with Recording(log, CONTEXT, system_clock):
        threads = [threading.Thread(target=lambda: [log.text("line\n") for _ in range(1000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await system_clock.offload(thread.join)
    assert content(path).count("line\n") == 4000


async def test_a_run_does_not_wait_for_a_thread_that_never_comes(clock: Clock, path: Path) -> None:
    class Stuck(type(clock)):  # type: ignore[misc]
        async def offload(self, work: object, /, *args: object, **kwargs: object) -> None:
            await asyncio.get_running_loop().create_future()

    log = RunLog(path)
    async with Recording(log, CONTEXT, Stuck()):
        log.text("hello\n")
    assert log.tail() == "hello\n"


async def test_a_pipe_is_read_to_its_end(system_clock: Clock) -> None:
    read, write = os.pipe()
    taken: list[bytes] = []
    capture = Capture(read, taken.append)
    os.write(write, b"a" * 1000)
    os.close(write)
    async with asyncio.timeout(10):
        await capture.ended.wait()
    assert b"".join(taken) == b"a" * 1000
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)


async def test_a_full_pipe_is_read_a_chunk_a_turn(system_clock: Clock) -> None:
    read, write = os.pipe()
    size = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 8 * CHUNK)
    os.write(write, b"x" * size)
    turns, taken = 0, list[int]()
    capture = Capture(read, lambda data: taken.append(turns))
    while len(taken) < size / CHUNK:
        turns += 1
        await asyncio.sleep(0)
    assert len(set(taken)) == len(taken) == 8
    capture.close()
    os.close(write)


async def test_a_pipe_that_somebody_holds_open_can_be_let_go(system_clock: Clock) -> None:
    read, write = os.pipe()
    taken: list[bytes] = []
    capture = Capture(read, taken.append)
    os.write(write, b"last words")
    capture.drain()
    capture.close()
    capture.close()
    assert taken == [b"last words"]
    os.close(write)
