"""A raptor.sqlite of version 3, whose tasks had one checksum: looked at and repaired as it is, and brought up."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from raptor.clock import Clock, SystemClock
from raptor.errors import RefusedState
from raptor.state import anchor
from raptor.state.base import Query, Want
from raptor.state.columns import ALL, FIELDS, listed
from raptor.state.connection import schema, writing
from raptor.state.home import Home
from raptor.state.parts import FORMAT
from raptor.state.repair import repair
from raptor.state.sums import before
from tests.system.states import ask, change, looked_at, opened
from tests.system.tasks import NEWEST, TASKS, fill_tasks

NAME = "raptor.sqlite"
HARMED = TASKS[5].id


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A directory with tasks as the Raptor of version 3 left it."""
    home = tmp_path / "state"

    async def make() -> None:
        async with opened(home, SystemClock()) as store:
            assert await fill_tasks(store) == TASKS

    asyncio.run(make())
    known = anchor.read(home)
    assert known is not None
    path, new = home / NAME, tmp_path / "new"
    path.rename(new)
    scripts = [schema(f"00{number}.sql") for number in (1, 2, 3)]
    with closing(writing(path, known.state, scripts, floor=known.sequences[NAME])) as connection:
        connection.create_function("before", 4, before)
        connection.execute("ATTACH ? AS new", (str(new),))
        connection.execute(
            f"INSERT INTO task ({listed((*FIELDS, 'crc'))})"
            f" SELECT {listed(FIELDS)}, before(id, queue, service, data) FROM new.task"
        )
        connection.execute("UPDATE stamp SET task = (SELECT task FROM new.stamp)")
    anchor.write(home, msgspec.structs.replace(known, format=3))
    return home


async def test_it_is_whole_and_can_be_looked_at(old: Path, system_clock: Clock) -> None:
    Home.read(old).examine(deep=True)
    async with looked_at(old) as reader:
        assert await reader.find(Query(limit=10**6)) == TASKS
    assert ask(old / NAME, "PRAGMA user_version") == [(3,)]


async def test_its_next_owner_seals_every_task_as_it_is(old: Path, system_clock: Clock) -> None:
    async with opened(old, system_clock) as store:
        assert await store.find(Query(limit=10**6)) == TASKS
        ready = [task.id for task in TASKS if task.state == "ready" and task.queue == "default"]
        given = (await store.take([Want(queue="default", room=10**6)], owner="a", now=9e9)).tasks
        assert sorted(task.id for task in given) == ready
        assert {task.reason for task in given} == {""}
        assert (await store.put([msgspec.structs.replace(TASKS[0], id=0)], now=1.0))[0].id > NEWEST
    Home.read(old).examine(deep=True)
    assert ask(old / NAME, "PRAGMA user_version") == [(4,)]
    assert ask(old / NAME, "SELECT mirror + task FROM stamp") == [(-1,)]
    assert ask(old / f"{NAME}.v3", "SELECT count(*) FROM task") == [(len(TASKS),)]
    known = anchor.read(old)
    assert known is not None
    assert known.format == FORMAT


@pytest.mark.parametrize(
    "harm", ["data = 'other'", "data = CAST(x'22ff22' AS TEXT)", "data = 2.5", "queue = CAST(x'ff' AS TEXT)"]
)
async def test_a_task_that_was_damaged_before_does_not_become_whole_by_it(
    old: Path, system_clock: Clock, harm: str
) -> None:
    change(old / NAME, f"UPDATE task SET {harm} WHERE id = {HARMED}")
    with pytest.raises(RefusedState, match=f"task {HARMED} is not what was put"):
        Home.read(old).examine(deep=True)
    async with opened(old, system_clock) as store:
        found = await store.find(Query(limit=10**6))
    assert [task.id for task in found if task.reason == "damaged"] == [HARMED]
    assert [task for task in found if task.id != HARMED] == [task for task in TASKS if task.id != HARMED]
    with pytest.raises(RefusedState, match=f"task {HARMED} is not what was put"):
        Home.read(old).examine(deep=True)
    assert f"{NAME}: the task {HARMED}" in repair(old, system_clock).lost


async def test_a_text_of_what_became_of_a_task_that_is_no_text_any_more_holds_nothing_up(
    old: Path, system_clock: Clock
) -> None:
    change(old / NAME, f"UPDATE task SET error = CAST(x'ff' AS TEXT) WHERE id = {HARMED}")
    async with opened(old, system_clock) as store:
        assert [task.id for task in await store.find(Query(limit=10**6)) if task.reason == "damaged"] == [HARMED]


async def test_a_repair_keeps_its_tasks_and_brings_them_up(old: Path, system_clock: Clock) -> None:
    (old / NAME).write_bytes(b"\xff" * 100 + (old / NAME).read_bytes()[100:])
    assert repair(old, system_clock).lost == []
    async with opened(old, system_clock) as store:
        assert await store.find(Query(limit=10**6)) == TASKS
    assert len(ask(old / NAME, "PRAGMA table_info(task)")) == len(ALL)
    Home.read(old).examine(deep=True)
