"""What may be wrong with a file of a state directory, and looking for it. Nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from raptor.errors import RefusedState
from raptor.state.connection import APPLICATION, reading, schema
from raptor.state.parts import LINES, PARTS, Part
from raptor.state.seal import BrokenSeal, is_id
from raptor.state.sums import teach

REPAIR = "run `raptor state repair`, which saves a copy first"

# A whole check reads the whole file: a larger one is left to `raptor doctor`.
SMALL = 16 * 2**20

IDS_SINCE = 3  # the version of raptor.sqlite whose stamp knows the last id of a task
MIRROR_SINCE = 4  # and the one that has it twice

_DAMAGE = {
    sqlite3.SQLITE_ERROR,  # a table is not there, or its JSON is no JSON
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_IOERR,  # a page that the file is too short for
}


def damaged(path: Path, problem: str) -> RefusedState:
    return RefusedState("damaged", path, problem, REPAIR)


def newer(path: Path, found: int, known: int) -> RefusedState:
    problem = f"was written by a newer Raptor (version {found}, this one knows {known})"
    return RefusedState("newer", path, problem, "use that Raptor, or another state directory")


@contextmanager
def blaming(path: Path) -> Generator[None]:
    """Errors that mean damage as RefusedState."""
    try:
        yield
    except (BrokenSeal, UnicodeDecodeError) as error:  # the latter where SQLite would quote a broken schema
        raise damaged(path, f"is damaged: {error}") from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _DAMAGE:
            raise damaged(path, f"is damaged: {error}") from error
        problem, advice = f"cannot be opened: {error}", "look at its permissions, and that its folder can be written"
        raise RefusedState("unwritable", path, problem, advice) from error


def examine(path: Path, *, state: str, floor: int, quick: bool = False, deep: bool = False) -> None:
    """Raise RefusedState unless the file is whole, ours, and as far as `floor`; `quick` looks at its stamp only."""
    if not path.exists():
        raise damaged(path, "is missing")
    if (size := path.stat().st_size) < 512:  # SQLite takes it for a new database
        raise damaged(path, f"is damaged: only {size} bytes are left" if size else "is empty")
    part = PARTS[path.name]
    with blaming(path), closing(reading(path)) as connection:
        _look_at_stamp(connection, path, state, floor, part)
        if not quick:
            _look_through(connection, path, part, deep=deep)


def _look_at_stamp(connection: sqlite3.Connection, path: Path, state: str, floor: int, part: Part) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise damaged(path, "is empty: its -wal was lost")
        raise RefusedState("foreign", path, "is a database of another program", REPAIR)
    # The anchor, which has a checksum, is not of a newer Raptor: a version beyond ours is a flipped bit.
    if not 0 < (found := connection.execute("PRAGMA user_version").fetchone()[0]) <= len(part.versions()):
        raise damaged(path, f"is damaged: there is no version {found}")
    owner, sequence = connection.execute("SELECT state, sequence FROM stamp").fetchone() or (None, None)
    if not (isinstance(owner, str) and is_id(owner) and isinstance(sequence, int)):
        raise damaged(path, "is damaged: its stamp cannot be read")
    if owner != state:
        raise RefusedState("foreign", path, f"belongs to another state directory ({owner}, not {state})", REPAIR)
    if sequence < floor:
        problem = (
            f"is older than what was acknowledged (at {sequence}, it had reached {floor}): it or its -wal was lost"
        )
        raise damaged(path, problem)
    if found >= IDS_SINCE and LINES in part.shelves:
        last, highest = connection.execute("SELECT task, coalesce((SELECT max(id) FROM task), 0) FROM stamp").fetchone()
        if not isinstance(last, int) or last < highest:  # the next ids would be those of others
            raise damaged(path, f"is damaged: it has a task {highest}, and says that {last} was the last")
        if found >= MIRROR_SINCE and connection.execute("SELECT mirror FROM stamp").fetchone()[0] != -1 - last:
            raise damaged(path, f"is damaged: it is not sure that {last} was the last id of a task")


def _schema(versions: Sequence[str]) -> dict[str, str | None]:
    """What a file says of itself that these scripts have made: another name or default of a column is damage."""
    with closing(sqlite3.connect(":memory:")) as connection:
        teach(connection)
        connection.executescript("\n".join((schema("stamp.sql"), *versions)))
        return dict(connection.execute("SELECT name, sql FROM sqlite_schema"))


def _look_through(connection: sqlite3.Connection, path: Path, part: Part, *, deep: bool) -> None:
    whole = deep or path.stat().st_size <= SMALL
    for name, sql in _schema(part.versions()[: connection.execute("PRAGMA user_version").fetchone()[0]]).items():
        if connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone() != (sql,):
            raise damaged(path, f"is damaged: what it says of {name} is not what it was made with")
    shelves = [shelf for shelf in (part.shelves if whole else part.shelves[: part.checked]) if shelf.is_in(connection)]
    for check in ["integrity_check"] if whole else [f"integrity_check({shelf.table})" for shelf in shelves]:
        if (found := connection.execute(f"PRAGMA {check}").fetchone()[0]) != "ok":
            raise damaged(path, f"is damaged: {found}")
    for shelf in shelves:
        for _ in shelf.read(connection):
            pass
    if deep and LINES in shelves:  # tasks came with them
        from raptor.state import rescue  # whoever looks only quickly does without

        rescue.examine(connection)
