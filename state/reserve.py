"""Room that is set aside for a full disk: results are still recorded from it, and nothing new starts without it."""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path

from raptor.errors import NotWritten

NAME = "reserve"
SIZE = 2**20
FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """A file whose room is taken up for nothing. The threads that write the files of a directory share it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._lock = threading.Lock()
        self._spent = True  # until it is seen
        self.restore()

    def restore(self) -> bool:
        """Set the room aside again, if it is not; -> False if the disk has none to spare."""
        if not self._spent:  # asked at every commit
            return True
        with self._lock:
            if self._spent and _fill(self._path):
                self._spent = False
            return not self._spent

    def spend(self) -> bool:
        """Let what cannot wait have the room; -> whether there was any."""
        with self._lock:
            had = size(self._path.parent) > 0
            self._path.unlink(missing_ok=True)
            self._spent = True
            return had

    def demand(self) -> None:
        """Raise NotWritten unless the room is set aside."""
        if not self.restore():
            problem = "the disk is full, and what is left of it is for results; free some space"
            raise NotWritten("full", self._path, problem)


def size(folder: Path) -> int:
    """How much is set aside there."""
    try:
        return (folder / NAME).lstat().st_size
    except FileNotFoundError:
        return 0


def _fill(path: Path) -> bool:
    """Make the file; -> False where there is no room. What else may be wrong with the disk, the next write tells."""
    if size(path.parent) == SIZE:
        return True
    try:
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _allocate(file)
        finally:
            os.close(file)
    except OSError as error:
        path.unlink(missing_ok=True)  # half of it would be nobody's
        return error.errno not in FULL
    return True


def _allocate(file: int) -> None:
    if sys.platform != "darwin":
        try:
            return os.posix_fallocate(file, 0, SIZE)
        except OSError as error:
            if error.errno in FULL:
                raise
    # A file system that cannot set room aside without writing; one that compresses is not deceived.
    written = 0
    while written < SIZE:
        written += os.pwrite(file, os.urandom(SIZE - written), written)
