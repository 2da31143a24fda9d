"""The other side of pool.py: an interpreter that takes one run after another.

Started by its file name, with its end of a socket as the first argument. A message there brings files: the request, the
pipe for its answers and, but for the first, the pipe for its output. When no more can come, it ends.
"""

from __future__ import annotations

import faulthandler
import functools
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

if TYPE_CHECKING:
    import ctypes

    from raptor.runners.child import Tell

PR_SET_CHILD_SUBREAPER = 36
FILES = 3
RUN_ID = "RAPTOR_RUN_ID"
ROOM = "RAPTOR_ROOM"


class Asked(NamedTuple):
    request: dict[str, Any]
    answers: int
    output: int | None


class Label:
    """The run's id where /proc shows it: the environment that this process began with, written over in place.

    A fork bears it too, whatever becomes of its parent and of the node, and so it can be found and ended.
    """

    def __init__(self) -> None:
        entry = f"{RUN_ID}={os.environ[RUN_ID]}\0{ROOM}={os.environ.pop(ROOM)}\0"
        wanted = os.fsencode(entry)
        self._start, self._size = 0, len(wanted)
        del os.environ[RUN_ID]  # what is set again has another place
        try:
            with open("/proc/self/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
            start, end = int(fields[47]), int(fields[48])
            self._memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
            place = os.pread(self._memory, end - start, start).find(wanted)
        except (OSError, ValueError, IndexError):
            return
        if place >= 0:
            self._start = start + place

    def write(self, run_id: str | None) -> bool:
        """-> whether it is to be seen."""
        text = b"" if run_id is None else os.fsencode(f"{RUN_ID}={run_id}\0")
        if not self._start or len(text) > self._size:
            return sys.platform != "linux"
        try:
            return os.pwrite(self._memory, text.ljust(self._size, b"\0"), self._start) == self._size
        except OSError:
            return False


class Station:
    """What each run finds as the first did, whatever the one before it left."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._streams = sys.stdout, sys.stderr
        self._nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        self._label = Label()
        self._sound = False

    def set_up(self, asked: Asked) -> None:
        self._sound = False
        if asked.output is not None:
            self._print_to(asked.output)
            os.close(asked.output)
        sys.stdout, sys.stderr = self._streams
        seen = self._label.write(asked.request["env"][RUN_ID])
        os.environ.update(asked.request["env"])
        os.chdir(self._folder)
        self._sound = seen

    def clear(self) -> bool:
        """Let go of the run's output; -> whether another may come."""
        for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
            signal.setitimer(timer, 0)
        whole = all(_flushed(stream) for stream in self._streams)
        _flush_c()
        self._print_to(self._nothing)
        return self._label.write(None) and self._sound and whole and alone()

    def _print_to(self, fd: int) -> None:
        os.dup2(fd, 1)
        os.dup2(fd, 2)


def main(control: int, parent: int) -> None:
    with socket.socket(fileno=control) as requests:
        requests.set_inheritable(False)
        asked = receive(requests)
        if asked is None:
            return
        sys.path[:] = asked.request["path"]
        from raptor.runners.child import Tell, die_with

        die_with(parent)
        adopt()
        faulthandler.enable()
        station = Station()
        while asked is not None:
            tell = Tell(asked.answers)
            tell({"type": "begun"})
            tell(take(asked, tell, station))
            tell.close()
            asked = receive(requests)


def take(asked: Asked, tell: Tell, station: Station) -> dict[str, Any]:
    """One run, and how it went."""
    from raptor.runners.child import attempt

    myself = os.getpid()
    answer = attempt(asked.request, tell, lambda: station.set_up(asked))
    if os.getpid() != myself:
        os._exit(0)  # a fork that the function let come back: the run is its parent's
    sound = station.clear()
    return {**answer, "keep": answer["keep"] and sound}


def receive(requests: socket.socket) -> Asked | None:
    """The next request; None: there are no more."""
    word, files, _, _ = socket.recv_fds(requests, 1, FILES, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    if not word:
        return None
    with open(files[0], "rb") as file:
        request: dict[str, Any] = json.load(file)
    return Asked(request, files[1], files[2] if len(files) == FILES else None)


def adopt() -> None:
    """Have what loses its parent below this process become its child, where there is such a thing."""
    if sys.platform == "linux":
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def alone() -> bool:
    """Whether no process is left below this one; those that have ended are buried."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return True
    return False


def _flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):  # the function has closed it
        return False
    return True


def _flush_c() -> None:
    """What an extension printed by C's own means waits in C's own buffer."""
    if sys.platform == "linux":
        import ctypes

        _libc().fflush(ctypes.c_void_p.in_dll(_libc(), "stdout"))


@functools.cache
def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
