"""Repair of a state directory: a copy of everything first, then new files of all records that are whole."""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from raptor.clock import Clock
from raptor.errors import RefusedState
from raptor.state import anchor, folder, rescue, reserve
from raptor.state.anchor import Anchor
from raptor.state.connection import APPLICATION, writing
from raptor.state.damage import newer
from raptor.state.home import REPAIRING, Home, folders, writable
from raptor.state.lock import Lock
from raptor.state.parts import PARTS, Shelf
from raptor.state.rescue import Rescue, last_of
from raptor.state.salvage import Cell, Pages
from raptor.state.seal import BrokenSeal, is_id, new_id, unseal

TASKS = "raptor.sqlite"
NEW = "new"  # in the folder of the copy: what the files shall be


@dataclass(kw_only=True)
class Report:
    copy: Path | None = None  # None: nothing was wrong, and nothing was touched
    kept: dict[str, int] = field(default_factory=dict[str, int])  # records of each table
    lost: list[str] = field(default_factory=list[str])  # what is known of what is gone


@dataclass(kw_only=True)
class Left:
    """What is left of one file."""

    rows: dict[str, dict[str, tuple[str, ...]]]  # table -> key -> what to insert
    broken: list[str]
    tasks: Rescue = field(default_factory=Rescue)
    state: str = ""
    sequence: int = 0


class Install(msgspec.Struct):
    """The new files are complete; from here on a repair goes only forwards."""

    folder: str
    anchor: Anchor
    kept: dict[str, int]
    lost: list[str]


def repair(path: str | os.PathLike[str], clock: Clock, *, allow_network_fs: bool = False) -> Report:
    """Make the directory usable again. It blocks; it may be killed and called again at any point."""
    place = Path(path).absolute()
    if not place.is_dir():
        raise RefusedState("absent", place, "holds no state", "`raptor start` makes it")
    folder.check(place, allow_network_fs=allow_network_fs)
    incarnation = secrets.token_hex(16)
    with writable(place):
        lock = Lock(place / "lock", incarnation)
        try:
            if not (place / REPAIRING).exists():
                if _is_whole(place):
                    return Report()
                _prepare(place, incarnation, clock.now())
            return _install(place)
        finally:
            lock.release()


def _is_whole(place: Path) -> bool:
    try:
        Home.read(place).examine(deep=True, unnamed=True)
    except RefusedState as refused:
        if refused.kind in ("damaged", "foreign"):
            return False
        raise
    return True


def _prepare(place: Path, incarnation: str, now: float) -> None:
    number = 1 + max((int(old.name[7:]) for old in place.glob("repair-*") if old.name[7:].isdigit()), default=0)
    copy = place / f"repair-{number}"
    (copy / NEW).mkdir(parents=True, mode=0o700)
    copy.chmod(0o700)
    for file in place.iterdir():
        if file.is_file() and file.name not in ("lock", reserve.NAME):
            shutil.copy2(file, copy / file.name)
            _sync(copy / file.name)
    for stray in folders(place):
        os.replace(stray, copy / f"{stray.name}.folder")
    folder.sync(copy)
    known = _known(place)
    left = {name: _left(copy / name, sure=known is not None) for name in PARTS}
    state = known.state if known else next((one.state for one in left.values() if one.state), new_id())
    heads = anchor.read_heads(place)
    report = Report()
    sequences: dict[str, int] = {}
    for name, one in left.items():
        floor = max(heads.get(name, 0), known.sequences.get(name, 0) if known else 0)
        report.lost += _losses(place / name, one, state, floor)
        if one.state not in ("", state):
            one = Left(rows={}, broken=[])
        sequences[name] = max(floor, one.sequence) + 1
        _write(copy / NEW / name, state, sequences[name], one)
        report.kept |= {shelf.table: len(one.rows.get(shelf.table, {})) for shelf in PARTS[name].shelves}
        report.kept |= {"task": len(one.tasks.rows)} if name == TASKS else {}
    fresh = Anchor(state=state, owner=incarnation, clean=True, written=now, sequences=sequences)
    plan = Install(folder=copy.name, anchor=fresh, kept=report.kept, lost=report.lost)
    anchor.write_durably(place / REPAIRING, msgspec.json.encode(plan))


def _install(place: Path) -> Report:
    plan = msgspec.json.decode((place / REPAIRING).read_bytes(), type=Install)
    for name in PARTS:
        if (new := place / plan.folder / NEW / name).exists():
            # The old log first: SQLite would play it into the new file.
            for old in (place / f"{name}-wal", place / f"{name}-shm"):
                old.unlink(missing_ok=True)
            os.replace(new, place / name)
    folder.sync(place)
    (place / "heads").unlink(missing_ok=True)
    anchor.write(place, plan.anchor)
    (place / REPAIRING).unlink()
    folder.sync(place)
    return Report(copy=place / plan.folder, kept=plan.kept, lost=plan.lost)


def _known(place: Path) -> Anchor | None:
    try:
        return anchor.read(place)
    except RefusedState:
        return None


def _left(path: Path, *, sure: bool) -> Left:
    """What can be read of it; `sure` if it is not of a newer Raptor."""
    pages = Pages.read(path)
    part = PARTS[path.name]
    application, version = pages.version
    if not sure and application == APPLICATION and part.is_newer(version):
        raise newer(path, version, len(part.versions()))
    left = Left(rows={shelf.table: {} for shelf in part.shelves}, broken=[])
    named: dict[str, int] = {}  # key -> row, as an index says
    entries = Counter[tuple[str, int]]()  # the same, of each table that has such a key
    rows: set[tuple[str, str, int]] = set()
    kept: dict[str, int] = {}
    found_whole: set[tuple[str, str]] = set()  # not only on a page of the log that is damaged, and may be an old one
    slots: set[int] = set()
    for cell in sorted(pages.cells(), key=lambda cell: cell.rowid):  # an index first; of two rows the later counts
        match cell.values:
            case (str(state), int(sequence)) if cell.rowid == 1 and is_id(state):
                left.state, left.sequence = state, max(left.sequence, sequence)
            case (str(state), int(sequence), int(task)) if cell.rowid == 1 and is_id(state):
                left.state, left.sequence = state, max(left.sequence, sequence)
                left.tasks.reached(task)
            case (str(state), int(sequence), int(task), int(mirror)) if cell.rowid == 1 and is_id(state):
                left.state, left.sequence = state, max(left.sequence, sequence)
                left.tasks.reached(last_of(task, mirror))
            case (str(key), int(rowid)) if not cell.rowid:
                named[key] = max(rowid, named.get(key, 0))
                entries[key, rowid] += 1
            case (str(), int() | float(), int(slot)) if not cell.rowid:
                slots.add(slot)
            case _:
                left.tasks.see(cell)
                for table, key, row in _whole(cell, part.shelves):
                    left.rows[table][key] = row
                    kept[key] = cell.rowid
                    rows.add((table, key, cell.rowid))
                    if cell.page > 0:
                        found_whole.add((table, key))
                    slots.discard(cell.rowid if table == "slot" else 0)
    left.broken = [f"the record {key!r}" for key in sorted(named.keys() - kept.keys())]
    late = sorted(key for key, rowid in named.items() if kept.get(key, rowid) < rowid)
    left.broken += [f"the last change of {key!r}: an older record is kept" for key in late]
    if pages.exact:  # else an entry may be an old one
        gone = {key for key, _ in entries - Counter((key, rowid) for _, key, rowid in rows)}
        left.broken += [f"one of the records {key!r}" for key in sorted((gone & kept.keys()) - set(late))]
    doubtful = sorted(key for table, found in left.rows.items() for key in found if (table, key) not in found_whole)
    left.broken += [f"what became of {key!r}: it is kept as a damaged page of the log has it" for key in doubtful]
    left.broken += [f"{len(slots)} slots"] if slots else []
    left.broken += left.tasks.losses
    if pages.unsure:
        left.broken.append(f"what was written last to {pages.unsure} pages of its log, where an older record is kept")
    left.broken += [f"what stood on {pages.missing} pages that are missing"] if pages.missing else []
    return left


def _whole(cell: Cell, shelves: tuple[Shelf[msgspec.Struct], ...]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    texts = [value for value in cell.values if isinstance(value, str)]
    for shelf in shelves:
        if len(texts) == len(cell.values) == (1 if shelf.key is None else 2):
            key = "" if shelf.key is None else texts[0]
            try:
                unseal(shelf.table, key, texts[-1], shelf.kind)
            except BrokenSeal:
                continue
            yield shelf.table, key or texts[-1], tuple(texts)


def _losses(path: Path, left: Left, state: str, floor: int) -> list[str]:
    if not path.exists() or not path.stat().st_size:
        return [f"{path.name} was missing or empty: all that it held"] if floor else []
    if left.state not in ("", state):
        return [f"{path.name} belonged to another state directory: all that it held was set aside"]
    lost = [f"{path.name}: {what}" for what in left.broken]
    if left.sequence < floor:
        lost.append(f"{path.name}: the last {floor - left.sequence} commits, as far as they are not kept")
    return lost


def _write(path: Path, state: str, sequence: int, left: Left) -> None:
    connection = writing(path, state, PARTS[path.name].versions(), floor=sequence - 1)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for shelf in PARTS[path.name].shelves:
            # Two slots of one time cannot both be kept; the earlier line counts, as ever.
            insert = shelf.insert.replace("INSERT", "INSERT OR IGNORE", 1)
            connection.executemany(insert, left.rows.get(shelf.table, {}).values())
        if path.name == TASKS:
            rescue.insert(connection, left.tasks.rows.values(), left.tasks.last)
        connection.execute("COMMIT")
    finally:
        connection.close()
    _sync(path)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
