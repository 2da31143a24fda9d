"""`raptor doctor`: everything that can be checked, a line each, with what to do about it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import click

from raptor.cli import door
from raptor.cli.session import Session, command, pass_session
from raptor.cli.words import plain
from raptor.client import is_listening, socket_path
from raptor.errors import RaptorError, RefusedState
from raptor.state.lock import is_alive

Finding: TypeAlias = tuple[bool, str]
LEAST_ROOM = 50 * 2**20  # bytes
EXTRAS = {"uvloop": "speed", "pysqlite3": "speed", "psycopg": "postgres", "nats": "nats", "starlette": "web"}


@command("doctor", reading=True)
@pass_session
def doctor(session: Session) -> int:
    """Check settings, modules, the state directory, SQLite, time zone, socket and disk. Exit 1 if anything is wrong."""
    findings = [(name, good, text) for name, check in CHECKS.items() for good, text in _tried(check, session)]
    wrong = [name for name, good, _ in findings if not good]
    if session.json:
        lines = [{"check": name, "ok": good, "text": text} for name, good, text in findings]
        session.print_json({"ok": not wrong, "checks": lines})
    else:
        for name, good, text in findings:
            mark = click.style("✓ ok   ", fg="green") if good else click.style("✗ wrong", fg="red")
            click.echo(f"{mark}  {name:<12}  {plain(text)}", color=_colour(session))
    return 1 if wrong else 0


def _colour(session: Session) -> bool:
    try:
        return session.colour
    except RaptorError:
        return False  # the settings are what is wrong


def _tried(check: Callable[[Session], Iterator[Finding]], session: Session) -> Iterator[Finding]:
    """One check that fails hides no other."""
    try:
        yield from check(session)
    except (RaptorError, OSError, sqlite3.Error) as error:
        yield False, str(error).strip().replace("\n", " | ")


def _python(session: Session) -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    new = sys.version_info >= (3, 11)
    yield new, f"{found} at {sys.executable}" + ("" if new else ": 3.11 or newer is needed")


def _config(session: Session) -> Iterator[Finding]:
    config = session.config
    yield True, f"{config.file or 'no raptor.toml: raptor init writes one'}"


def _modules(session: Session) -> Iterator[Finding]:
    catalogue = session.config.catalogue()
    named = f" from {', '.join(session.config.modules)}" if session.config.modules else ""
    yield True, f"{len(catalogue)} services{named}"


def _home(session: Session) -> Iterator[Finding]:
    home = session.config.home
    if not home.exists():
        yield True, f"{home} is not there yet: raptor start makes it"
        return
    from raptor.state import folder

    folder.check(home)
    mode = home.stat().st_mode & 0o777
    yield mode == 0o700, f"{home}, mode {mode:o}" + ("" if mode == 0o700 else f": chmod 700 {home}")


def _owner(session: Session) -> Iterator[Finding]:
    home, pid = session.config.home, door.owner_pid(session.config.home)
    if is_listening(home):
        yield True, f"a node runs, process {pid}"
    elif pid is not None and is_alive(pid):
        yield True, f"process {pid} holds the lock and does not listen: an embedded node, or one that starts or stops"
    elif pid is not None:
        yield True, f"process {pid} ended without letting go: the next start takes over, and finishes its cycle"
    else:
        yield True, "nobody owns the state directory"


def _store(session: Session) -> Iterator[Finding]:
    if session.config.store is None:
        yield True, "the files of the state directory"
        return
    from raptor.masked import masked

    if session.config.store.startswith(("postgresql:", "postgres:")):
        from raptor.cli.storing import look

        found = look(session)
        yield from ((one.well, f"{one.about}: {one.text}") for one in found)
        if not all(one.well for one in found if one.about in ("schema", "rights")):
            return  # asked for more, a store would be made
    answer = session.call("status")
    yield answer.get("degraded") is None, masked(answer.get("degraded") or f"{session.config.store} answers")
    for node in answer.get("nodes", ()):
        age = f"seen {node['age_s']:.0f} s ago"
        yield True, f"node {node['name']}, {'alive' if node['alive'] else 'gone'}, {age}"
        if abs(node["skew_s"]) >= 1.0:
            yield False, f"the clock of {node['name']} is off by {node['skew_s']:.1f} s: set it by NTP"


def _damage(session: Session) -> Iterator[Finding]:
    home = session.config.home
    if not home.exists() or not any(home.iterdir()):
        yield True, "no state yet"
        return
    from raptor.state.home import Home

    try:
        Home.read(home).examine(deep=True)
    except RefusedState as refused:
        if refused.kind != "absent":
            raise
        yield True, "no state yet"
        return
    yield True, "every record of every file is whole"


def _sqlite(session: Session) -> Iterator[Finding]:
    new = sqlite3.sqlite_version_info >= (3, 35)
    yield new, f"SQLite {sqlite3.sqlite_version}" + ("" if new else ": 3.35 or newer is needed")
    for file in sorted(session.config.home.glob("*.sqlite")):
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        try:
            mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        finally:
            connection.close()
        if mode != "wal":
            yield False, f"{file.name} keeps its journal as {mode}, not wal: raptor state repair"
    # What commits rest on: that the disk says "written" when it is.
    if session.config.home.is_dir() and os.access(session.config.home, os.W_OK):
        probe = session.config.home / f".doctor-{os.getpid()}"
        handle = os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        try:
            os.write(handle, b"x")
            os.fsync(handle)
        finally:
            os.close(handle)
            probe.unlink()
        yield True, "the disk takes synced writes"


def _zone(session: Session) -> Iterator[Finding]:
    from raptor.cron import system_zone

    shown = f", times are shown in {session.config.tz}" if session.config.tz else ""
    yield True, f"{system_zone().key or 'local'}{shown}"


def _socket(session: Session) -> Iterator[Finding]:
    path = socket_path(session.config.home)
    if not path.exists():
        yield True, f"{path}, when a node runs"
        return
    if is_listening(session.config.home):
        mode = path.stat().st_mode & 0o777
        yield mode == 0o600, f"{path} answers, mode {mode:o}"
    else:
        yield True, f"{path} was left by a node that ended: the next start replaces it"


def _disk(session: Session) -> Iterator[Finding]:
    place, free = _room(session.config.home)
    enough = free >= LEAST_ROOM
    yield enough, f"{free // 2**20} MiB free at {place}" + ("" if enough else ": make room, 50 MiB at least")


def _reserve(session: Session) -> Iterator[Finding]:
    from raptor.state import reserve

    home = session.config.home
    if reserve.size(home) == reserve.SIZE:
        yield True, f"{reserve.SIZE // 2**20} MiB is set aside, to record results when the disk is full"
    elif _room(home)[1] >= reserve.SIZE:
        yield True, "nothing is set aside for a full disk: the next write of a node does it"
    else:
        yield False, "what was set aside for a full disk is spent: nothing new starts until 1 MiB is free"


def _room(place: Path) -> tuple[Path, int]:
    """The nearest folder that is there, and how many bytes are free in it."""
    while not place.exists():
        place = place.parent
    return place, shutil.disk_usage(place).free


def _extras(session: Session) -> Iterator[Finding]:
    there = sorted(module for module in EXTRAS if find_spec(module) is not None)
    missing = sorted({extra for module, extra in EXTRAS.items() if module not in there})
    yield True, f"{', '.join(there) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else "")


CHECKS: dict[str, Callable[[Session], Iterator[Finding]]] = {
    "python": _python,
    "config": _config,
    "modules": _modules,
    "home": _home,
    "owner": _owner,
    "store": _store,
    "damage": _damage,
    "sqlite": _sqlite,
    "time zone": _zone,
    "socket": _socket,
    "disk": _disk,
    "reserve": _reserve,
    "extras": _extras,
}
