"""What a run prints: a short tail for its record, a bounded part for the service's log file, the rest counted.

`RunLog` takes it from any thread and never waits for a disk; `Recording` writes the file off the event loop; `Capture`
reads a pipe on the loop, a chunk a turn, so that a child that prints without end neither waits nor starves the others.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from raptor.clock import Clock
from raptor.runners import Context
from raptor.runners.text import amount, lines, stamp

TAIL = 4 * 1024
PER_RUN = 1024 * 1024
PER_FILE = 1024 * 1024
FILES = 3
CHUNK = 64 * 1024
PIPEFUL = 4  # chunks, at most, that a pipe holds once nobody writes
FLUSH_WAIT_S = 1.0

_log = logging.getLogger("raptor.runners")
_rotating = threading.Lock()


class RunLog:
    """The output of one run.

    The file keeps its beginning as it was printed, byte for byte, then how much was dropped, and its end; a last line
    that was not ended is. With no path there is only the tail.
    """

    # Most runs print nothing: until one does, it has no more than its path.
    total = 0  # bytes printed
    problem: str | None = None  # why the file could not be written
    over = False  # the run has ended: who writes now outlives it
    recording: Recording | None = None  # hears, in any thread, when something waits to be flushed
    _announced = False
    _lock = threading.Lock()  # of all of them: what is done under it is short
    _writing: threading.Lock
    _tail = bytearray()
    _pending = bytearray()
    _room = PER_RUN - 2 * TAIL  # the rest is for the header and the end
    _closed = False

    def __init__(self, path: Path | None = None) -> None:
        self.path = path

    def write(self, data: bytes) -> None:
        """Take what was printed. Any thread may; nothing blocks."""
        with self._lock:
            if self._closed:
                return  # a thread or a task that outlives its run
            if not self.total:
                self._tail, self._pending, self._writing = bytearray(), bytearray(), threading.Lock()
            self.total += len(data)
            self._tail += data[-TAIL:]
            del self._tail[:-TAIL]
            news = self._keep(data)
        if news and self.recording is not None:
            self.recording.news()

    def text(self, text: str) -> None:
        self.write(text.encode(errors="backslashreplace"))

    def tail(self) -> str:
        """The end of the output, made harmless, in at most 4 KiB of UTF-8."""
        if not self.total:
            return ""
        with self._lock:
            data, cut = bytes(self._tail), self.total > len(self._tail)
        return lines((_from_character(data) if cut else data).decode(errors="replace"), TAIL)

    @property
    def pending(self) -> bool:
        """Whether the file lacks something that it should have."""
        return bool(self._pending)

    def flush(self) -> None:
        """Bring the file up to date. It blocks, and never raises: see `problem`."""
        if not self.total:
            return
        with self._writing:
            with self._lock:
                data, self._pending = bytes(self._pending), bytearray()
            if data and self.path is not None:
                try:
                    _append(self.path, data)
                except (OSError, ValueError) as error:
                    self._complain(error)

    def close(self) -> None:
        """Write what is left, with how much was dropped and the end of the output. It blocks."""
        with self._lock:
            if self.total and not self._closed and self.path is not None:
                self._pending += self._ending()
            self._closed = True
        self.flush()

    def _keep(self, data: bytes) -> bool:
        if self.path is None or not data or not self._room:
            return False
        idle = not self._pending
        if self.recording is not None and not self._announced:
            self._announced = True
            self._pending += f"{self.recording.line()}\n".encode(errors="replace")[:TAIL]
        self._pending += data[: self._room]
        self._room -= min(len(data), self._room)
        return idle

    def _ending(self) -> bytes:
        dropped = self.total - (PER_RUN - 2 * TAIL - self._room)
        last = b"" if not self._tail or self._tail.endswith(b"\n") else b"\n"  # the next run begins a line
        if dropped <= 0:
            return last
        if dropped <= TAIL:
            return bytes(self._tail[-dropped:]) + last
        end = _from_character(bytes(self._tail))
        return f"\n... {amount(dropped - len(end))} dropped ...\n".encode() + end + last

    def _complain(self, error: Exception) -> None:
        if self.problem is None:
            _log.warning("the output of a run is not kept: %s", error)
        self.problem = str(error)


class Recording:
    """While it is open, the file of a RunLog is kept up to date. It costs next to nothing when nothing is printed."""

    __slots__ = ("_began", "_clock", "_context", "_log", "_loop", "_task")

    def __init__(self, log: RunLog, context: Context, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._context = context
        self._began = clock.now()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        log.recording = self

    def line(self) -> str:
        """What stands in the file ahead of the first output; a run that prints nothing leaves nothing."""
        return f"== run {self._context.run_id} attempt {self._context.attempt} at {stamp(self._began)}"

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        if self.end():
            await self.complete()

    def end(self) -> bool:
        """The run is over; -> whether its file has to be completed."""
        log = self._log
        log.recording = None  # nothing leads back from here
        log.over = True
        return log.total > 0 and log.path is not None

    async def complete(self) -> None:
        last = asyncio.ensure_future(self._clock.offload(self._log.close))
        # Threads may all be stuck: then the file is complete as soon as one is free.
        await asyncio.wait({last}, timeout=FLUSH_WAIT_S)

    def news(self) -> None:
        with suppress(RuntimeError):  # the loop has closed
            # Not in the context of the run, whose prints are its output: what writing says is ours.
            self._loop.call_soon_threadsafe(self._start, context=contextvars.Context())

    def _start(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._flush())

    async def _flush(self) -> None:
        while self._log.pending:
            await self._clock.offload(self._log.flush)
        self._task = None


class Capture:
    """Reads a pipe to its end on the event loop, and hands on each chunk."""

    def __init__(self, fd: int, take: Callable[[bytes], None]) -> None:
        self.ended = asyncio.Event()
        self._fd = fd
        self._take = take
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Take what is in the pipe now."""
        for _ in range(PIPEFUL):
            if not self.ended.is_set():
                self._read()

    def close(self) -> None:
        """Read no more, whoever still holds the other end."""
        if not self.ended.is_set():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.ended.set()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            self._take(data)
        else:
            self.close()


def _from_character(data: bytes) -> bytes:
    """Without the rest of a UTF-8 character that was cut in two."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _append(path: Path, data: bytes) -> None:
    with _rotating:
        _rotate(path, len(data))
    # Not through a link, and not waiting for the reader of a FIFO: services can write where their logs are.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, flags, 0o600)
    with open(fd, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            written = file.write(rest)
            if not written:
                raise BlockingIOError(errno.EAGAIN, "nobody reads it", str(path))
            rest = rest[written:]


def _rotate(path: Path, more: int) -> None:
    try:
        if path.lstat().st_size + more <= PER_FILE:
            return
    except FileNotFoundError:
        return
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, FILES))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with suppress(FileNotFoundError):
            newer.replace(older)
