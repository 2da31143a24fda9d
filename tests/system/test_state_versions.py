"""A raptor.sqlite of version 1, from before there were tasks: read as it is, and brought up by its next owner."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from raptor.clock import Clock, SystemClock
from raptor.rows import Line
from raptor.state import anchor
from raptor.state.base import Query
from raptor.state.connection import schema, writing
from raptor.state.home import Home
from raptor.state.parts import FORMAT, PARTS
from raptor.state.sums import before
from raptor.task import Task
from tests.system.states import DEFINITION, STATE, ask, contents, fill, looked_at, opened, owned, run, slot, timing

NAME = "raptor.sqlite"
TASK = Task(service="work", due=5.0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory as the Raptor of version 1 left it."""
    home = tmp_path / "state"
    asyncio.run(fill(home, SystemClock()))
    new, known = home / NAME, anchor.read(home)
    assert known is not None
    new.rename(tmp_path / "new")
    with closing(writing(new, known.state, (schema("001.sql"),), floor=known.sequences[NAME])) as connection:
        connection.execute("ATTACH ? AS new", (str(tmp_path / "new"),))
        for table in ("definitions", "run"):
            key = "id" if table == "run" else "key"
            connection.execute(f"INSERT INTO {table} ({key}, record) SELECT {key}, record FROM new.{table}")
        connection.execute("INSERT INTO slot (record) SELECT record FROM new.slot")
    anchor.write(home, msgspec.structs.replace(known, format=1))
    assert ask(new, "PRAGMA user_version") == [(1,)]
    assert ask(new, "SELECT count(*) FROM sqlite_schema WHERE name IN ('task', 'lines', 'pace')") == [(0,)]
    return home


async def test_it_can_be_looked_at_and_has_no_tasks(old: Path, system_clock: Clock) -> None:
    before = contents(old)
    async with looked_at(old) as reader:
        assert await reader.load("definitions") == {"main": DEFINITION}
        assert await reader.load("lines") == {}
        assert await reader.history(limit=100) == [run(n) for n in reversed(range(50))]
        assert await reader.find(Query()) == []
        assert await reader.stat(now=0.0) == []
        assert await reader.queues() == []
        assert await reader.upcoming(["default"], after=0.0, limit=5) == []
    after = contents(old)
    assert {name: after[name] for name in before} == before


def test_it_is_whole(old: Path, system_clock: Clock) -> None:
    Home.read(old).examine(deep=True)
    with owned(old, system_clock, deep=True):
        pass


async def test_its_next_owner_brings_it_up_and_keeps_all_that_it_holds(old: Path, system_clock: Clock) -> None:
    async with opened(old, system_clock) as store:
        assert ask(old / NAME, "PRAGMA user_version") == [(4,)]
        assert await store.load("definitions") == {"main": DEFINITION}
        assert await store.load("service_timing") == {f"service {n:04}": timing(n) for n in range(50)}
        assert await store.load("scheduler_state") == {"main": STATE}
        assert await store.history(limit=100) == [run(n) for n in reversed(range(50))]
        assert await store.slots("a", since=0.0, until=1e9) == [slot(n) for n in range(50)]
        assert await store.find(Query()) == []
        ((id, _),) = await store.put([TASK], now=1.0)
        await store.save([("lines", "mail", Line(name="mail"))])
    async with opened(old, system_clock) as store:
        assert [found.id for found in await store.find(Query())] == [id]
        assert await store.load("lines") == {"mail": Line(name="mail")}
    known = anchor.read(old)
    assert known is not None
    assert known.format == FORMAT


async def test_a_copy_of_the_old_file_stays_beside_it(old: Path, system_clock: Clock) -> None:
    async with opened(old, system_clock):
        pass
    copy = old / f"{NAME}.v1"
    assert ask(copy, "PRAGMA user_version") == [(1,)]
    for table, count in (("definitions", 1), ("run", 50), ("slot", 50)):
        assert ask(copy, f"SELECT count(*) FROM {table}") == [(count,)]


def test_a_migration_that_fails_half_way_leaves_the_old_version(old: Path, system_clock: Clock) -> None:
    path = old / NAME
    ((state, sequence),) = ask(path, "SELECT state, sequence FROM stamp")
    broken = schema("002.sql").replace("CREATE TABLE lines", "CREATE TABLE run")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        writing(path, str(state), (schema("001.sql"), broken))
    assert ask(path, "PRAGMA user_version") == [(1,)]
    assert ask(path, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'task%'") == [(0,)]
    assert ask(path, "SELECT sequence FROM stamp") == [(sequence,)]
    writing(path, str(state), PARTS[NAME].versions()).close()
    assert ask(path, "SELECT count(*) FROM task") == [(0,)]


async def test_tasks_of_version_2_are_kept_and_their_ids_are_not_used_again(
    tmp_path: Path, system_clock: Clock
) -> None:
    home = tmp_path / "state"
    await fill(home, system_clock)
    known = anchor.read(home)
    assert known is not None
    path = home / NAME
    path.rename(tmp_path / "new")
    older = (schema("001.sql"), schema("002.sql"))
    with closing(writing(path, known.state, older, floor=known.sequences[NAME])) as connection:
        for id in range(1, 6):
            crc = before(id, "default", "work", f"{id}")
            connection.execute(
                "INSERT INTO task (id, queue, service, data, due, created, crc)"
                " VALUES (?, 'default', 'work', ?, 5.5, 1.0, ?)",
                (id, f"{id}", crc),
            )
        connection.execute("DELETE FROM task WHERE id > 3")
    async with opened(home, system_clock) as store:
        assert ask(path, "PRAGMA user_version") == [(4,)]
        assert [(task.id, task.data, task.due) for task in await store.find(Query())] == [
            (1, "1", 5.5), (2, "2", 5.5), (3, "3", 5.5),
        ]  # fmt: skip
        assert (await store.put([TASK], now=1.0))[0].id == 6
    assert ask(home / f"{NAME}.v2", "SELECT count(*) FROM task") == [(3,)]
    Home.read(home).examine(deep=True)
