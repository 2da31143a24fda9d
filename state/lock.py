"""The lock of a state directory: one owner, which dies with its process, and who it is."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from functools import partial
from pathlib import Path

import msgspec

from raptor.errors import AlreadyRunning

TRIES = 100
PAUSE_S = 0.005


class Owner(msgspec.Struct, frozen=True):
    pid: int
    incarnation: str


class Lock:
    """Held until `release`, or until the process ends in whatever way. A file that a dead owner left blocks nobody."""

    def __init__(self, path: Path, incarnation: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._take(path)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(Owner(os.getpid(), incarnation)), 0)
        except BaseException:
            os.close(self._file)
            raise
        # flock is shared with forked children: one that outlives its parent would hold the directory for it.
        os.register_at_fork(after_in_child=partial(_drop, weakref.ref(self)))

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            self.drop()

    def drop(self) -> None:
        """Close the file; where a fork shares it, the other holds on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take(self, path: Path) -> None:
        found = None
        for _ in range(TRIES):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found = owner(path)
            if found is not None and is_alive(found.pid):
                break
            # The owner has not written its name yet, or is just letting go.
            time.sleep(PAUSE_S)
        raise AlreadyRunning(path.parent, None if found is None else found.pid)


def owner(path: Path) -> Owner | None:
    """Who wrote its name into the lock file; it may be dead."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _drop(reference: weakref.ref[Lock]) -> None:
    if (lock := reference()) is not None:
        lock.drop()


def is_alive(pid: int) -> bool:
    """Whether there is such a process, whoever it belongs to."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
