"""A state directory: one owner, its identity, and the refusal of anything that is not what was left in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from raptor.errors import NotWritten, RefusedState
from raptor.state import anchor, folder, reserve
from raptor.state.anchor import Anchor
from raptor.state.connection import reading
from raptor.state.damage import blaming, damaged, examine, newer
from raptor.state.lock import Lock
from raptor.state.parts import FORMAT, PARTS
from raptor.state.seal import new_id

if TYPE_CHECKING:
    from raptor.clock import Clock

REPAIRING = "repair.json"  # there while a repair puts its files in place


class Home:
    """`open` takes a directory for this process and makes it if need be; `read` only looks. Both block."""

    def __init__(self, path: Path, found: Anchor, clock: Clock | None, lock: Lock | None, incarnation: str) -> None:
        self.path = path
        self.state = found.state
        self.incarnation = incarnation
        self.clean = found.clean  # the last owner had closed it
        self._known = found.sequences
        self.clock = clock
        self._lock = lock

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], clock: Clock, *, allow_network_fs: bool = False, deep: bool = False
    ) -> Home:
        """Own the directory. `deep` reads every row of every file first."""
        import secrets  # slow to import, and whoever only reads does without

        place = Path(path).absolute()
        incarnation = secrets.token_hex(16)
        folder.make(place)
        folder.check(place, allow_network_fs=allow_network_fs)
        with writable(place):
            lock = Lock(place / "lock", incarnation)
        try:
            found = _anchor(place)
            if found is None:
                found = Anchor(state=new_id(), owner=incarnation, clean=True, written=clock.now(), sequences={})
                folder.settle(place)
                with writable(place):
                    anchor.write(place, found)
            home = cls(place, found, clock, lock, incarnation)
            home.examine(deep=deep, unnamed=True)
            if found.format < FORMAT:  # before any file is of a newer version, so that an older Raptor is warned
                with writable(place):
                    anchor.write(place, msgspec.structs.replace(found, format=FORMAT))
        except BaseException:
            lock.release()
            raise
        return home

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Home:
        """Look at a directory, whether a node runs on it or not. Nothing is made, repaired or marked."""
        place = Path(path).absolute()
        found = _anchor(place) if place.is_dir() else None
        if found is None:
            raise RefusedState("absent", place, "holds no state yet", "`raptor start` makes it")
        home = cls(place, found, None, None, "")
        home.examine(quick=True)
        return home

    @property
    def owned(self) -> bool:
        return self._lock is not None

    def floors(self) -> dict[str, int]:
        """What each file has reached at least."""
        heads = anchor.read_heads(self.path)
        return {name: max(self._known.get(name, 0), heads.get(name, 0)) for name in PARTS}

    def holds(self, name: str) -> bool:
        """Whether there is something to read in a file: one that is still being made is not named in the anchor."""
        if name not in self._known and (found := _anchor(self.path)) is not None:
            self._known = found.sequences
        return name in self._known

    def examine(self, *, quick: bool = False, deep: bool = False, unnamed: bool = False) -> None:
        """Raise RefusedState unless every file is as it was left.

        `unnamed` is for who holds the lock: to others, a file that is just being made would look damaged.
        """
        floors = self.floors()
        for name in PARTS:
            path = self.path / name
            if name in self._known or (unnamed and not _is_unborn(path)):
                examine(path, state=self.state, floor=floors[name], quick=quick, deep=deep)

    def anchor(self, sequences: Mapping[str, int], *, clean: bool) -> None:
        """Make it known, durably, how far the files are."""
        assert self.clock is not None
        now = Anchor(
            state=self.state,
            owner=self.incarnation,
            clean=clean,
            written=self.clock.now(),
            sequences=dict(sequences),
        )
        try:
            anchor.write(self.path, now)
        except OSError as error:
            reason = "full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "readonly"
            raise NotWritten(reason, self.path / anchor.NAME, error.strerror or str(error)) from error
        self._known = now.sequences

    def close(self) -> None:
        """Let the directory go."""
        if self._lock is not None:
            self._lock.release()


def _anchor(place: Path) -> Anchor | None:
    """What the directory is; None for one that never held a state."""
    if (place / REPAIRING).exists():
        raise damaged(place / REPAIRING, "shows that a repair was interrupted")
    for path in folders(place):
        raise damaged(path, "is a folder, and should be a file")
    found = anchor.read(place)
    if found is None and (there := [name for name in PARTS if (place / name).exists()]):
        found = anchor.read(place)  # it is made before them: both may have come since
        if found is None:
            raise damaged(place / anchor.NAME, f"is missing, although {there[0]} is there")
    if found is not None and found.format > FORMAT:
        raise newer(place / anchor.NAME, found.format, FORMAT)
    return found


def folders(place: Path) -> list[Path]:
    """What stands in the place of a file."""
    names = (anchor.NAME, "heads", reserve.NAME, *(f"{name}{end}" for name in PARTS for end in ("", "-wal", "-shm")))
    return [path for name in names if (path := place / name).is_dir()]


def _is_unborn(path: Path) -> bool:
    """A file whose making was cut short: it was never named in the anchor, and holds nothing."""
    if not path.exists() or not path.stat().st_size:
        return True
    # The turn to a log is the first change of a file, and the only one that SQLite keeps a journal for: it ended there.
    # Whoever writes next takes it back; a connection that only reads cannot.
    if path.with_name(path.name + "-journal").exists():
        return True
    with blaming(path), closing(reading(path)) as connection:
        return not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


@contextmanager
def writable(place: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise RefusedState("unwritable", place, problem, "make room or make it writable, or choose another") from error
