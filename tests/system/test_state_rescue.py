"""Repair keeps tasks: every whole one, under its id; what is gone is named, and no id is used again."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock, SystemClock
from raptor.errors import RefusedState
from raptor.rows import Line
from raptor.state.base import Query, Want
from raptor.state.connection import schema
from raptor.state.home import Home
from raptor.state.parts import PARTS
from raptor.state.repair import Report, repair
from raptor.state.rescue import COLUMNS, GAP, SHOWN, Rescue
from raptor.state.salvage import Cell, Pages
from raptor.state.sums import ASKED, FATE, asked_of, fate_of, teach
from raptor.task import State, Task
from tests.system.states import DEFINITION, ROOT, change, opened
from tests.system.tasks import NEWEST, TASKS, fill_tasks

NAME = "raptor.sqlite"
IDS = {task.id for task in TASKS}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def fill() -> None:
        async with opened(tmp_path / "state", SystemClock()) as store:
            await store.save([("lines", "default", Line(name="default")), ("definitions", "default", DEFINITION)])
            assert await fill_tasks(store) == TASKS

    asyncio.run(fill())
    return tmp_path / "state"


async def found(home: Path, clock: Clock) -> list[Task]:
    """What is there after a repair; and the next id is a new one."""
    async with opened(home, clock) as store:
        tasks = await store.find(Query(limit=10**6))
        ((id, _),) = await store.put([Task(service="new", due=0.0)], now=0.0)
        assert id > NEWEST
    return tasks


def named(report: Report, ids: Sequence[int], others: int = 0) -> bool:
    more = f" and {others} more" if others > 0 else ""
    return f"{NAME}: the task{'s' if ids[1:] else ''} {', '.join(map(str, ids))}{more}" in report.lost


def test_a_row_is_read_in_the_order_of_the_schema() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        teach(connection)
        connection.executescript("".join((schema("stamp.sql"), *PARTS[NAME].versions())))
        columns = connection.execute("PRAGMA table_info(task)").fetchall()
    assert tuple(name for _, name, *_ in columns) == COLUMNS


@pytest.mark.parametrize("length", [100, 4096])
async def test_a_broken_head_costs_nothing_and_nothing_is_said_to_be_lost(
    home: Path, system_clock: Clock, length: int
) -> None:
    content = (home / NAME).read_bytes()
    (home / NAME).write_bytes(b"\xff" * length + content[length:])
    report = repair(home, system_clock)
    assert report.kept["task"] == len(TASKS)
    assert report.lost == []
    assert await found(home, system_clock) == TASKS


async def test_a_page_that_is_gone_costs_its_tasks_and_they_are_named(home: Path, system_clock: Clock) -> None:
    pages = Pages.read(home / NAME)
    cells = [cell for cell in pages.cells() if cell.rowid and len(cell.values) == len(COLUMNS)]
    page = cells[len(cells) // 2].page
    gone = sorted(cell.rowid for cell in cells if cell.page == page)
    assert len(gone) > 1
    content = bytearray((home / NAME).read_bytes())
    content[(page - 1) * pages.size : page * pages.size] = bytes(pages.size)
    (home / NAME).write_bytes(content)
    report = repair(home, system_clock)
    assert await found(home, system_clock) == [task for task in TASKS if task.id not in gone]
    assert named(report, gone[:SHOWN], len(gone) - SHOWN)
    assert report.kept["task"] == len(TASKS) - len(gone)


@pytest.mark.spec("otp-D3")
@pytest.mark.timeout(240)
async def test_flipped_bytes_cost_only_the_tasks_that_they_hit(home: Path, system_clock: Clock, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    original = {task.id: task for task in TASKS}
    for number in range(25):
        copy = shutil.copytree(home, tmp_path / str(number))
        content = bytearray((copy / NAME).read_bytes())
        hits = [rng.randrange(len(content)) for _ in range(5)]
        for at in hits:
            content[at] ^= rng.randrange(1, 256)
        (copy / NAME).write_bytes(content)
        report = repair(copy, system_clock)
        tasks = {task.id: task for task in await found(copy, system_clock)}
        assert tasks.keys() <= IDS, f"seed {seed}"
        for id, task in tasks.items():
            was = original[id]
            assert (task.queue, task.service, task.data) == (was.queue, was.service, was.data), f"seed {seed}"
        assert len(tasks) >= len(TASKS) - len(hits), f"seed {seed}: {sorted(IDS - tasks.keys())}"
        for lost in IDS - tasks.keys():
            assert any(str(lost) in line for line in report.lost), f"seed {seed}: {lost} {report.lost}"


async def test_a_task_whose_checksum_does_not_fit_is_noticed_and_lost_alone(home: Path, system_clock: Clock) -> None:
    change(home / NAME, f"UPDATE task SET data = 'other' WHERE id = {TASKS[5].id}")
    for attempt in (
        lambda: Home.open(home, system_clock, deep=True),
        lambda: Home.read(home).examine(deep=True),
    ):
        with pytest.raises(RefusedState, match=f"task {TASKS[5].id} is not what was put") as refused:
            attempt()
        assert refused.value.kind == "damaged"
    report = repair(home, system_clock)
    assert named(report, [TASKS[5].id])
    assert await found(home, system_clock) == [task for task in TASKS if task != TASKS[5]]


@pytest.mark.parametrize("harm", ["priority = 10", "due = -1", "max_attempts = 4", "created = 0.25", "timing = '{}'"])
async def test_a_task_that_is_not_what_was_asked_is_not_kept(home: Path, system_clock: Clock, harm: str) -> None:
    change(home / NAME, f"UPDATE task SET {harm} WHERE id = {TASKS[9].id}")
    (home / NAME).write_bytes(b"\xff" * 100 + (home / NAME).read_bytes()[100:])
    assert named(repair(home, system_clock), [TASKS[9].id])
    assert await found(home, system_clock) == [task for task in TASKS if task != TASKS[9]]


@pytest.mark.parametrize(
    "harm", ["state = 'gone'", "history = '[{'", "suspect = 7", "attempts = -1", "output = '8'", "fence = fence + 256"]
)
async def test_a_task_of_which_it_is_not_known_what_became_of_it_is_kept_as_dead(
    home: Path, system_clock: Clock, harm: str
) -> None:
    was = next(task for task in TASKS if task.state is State.DONE)
    change(home / NAME, f"UPDATE task SET {harm} WHERE id = {was.id}")
    with pytest.raises(RefusedState, match=f"task {was.id} is not what was put"):
        Home.read(home).examine(deep=True)
    report = repair(home, system_clock)
    assert report.lost == [f"{NAME}: what became of the task {was.id}: it is kept as dead"]
    kept = {task.id: task for task in await found(home, system_clock)}
    assert [task for task in TASKS if kept[task.id] != task] == [was]
    assert (kept[was.id].state, kept[was.id].reason, kept[was.id].data) == (State.DEAD, "damaged", was.data)
    async with opened(home, system_clock) as store:
        assert await store.revive([was.id], now=5.0) == [was.id]
        (again,) = [task for task in (await store.take([Want(queue="default", room=999)], owner="a", now=9e9)).tasks
                    if task.id == was.id]  # fmt: skip
    assert (again.reason, again.attempts, again.data) == ("", 0, was.data)


@pytest.mark.parametrize("table", ["lines", "definitions"])
def test_of_a_queue_and_a_scheduler_of_one_name_the_one_that_is_lost_is_told(
    home: Path, system_clock: Clock, table: str
) -> None:
    change(home / NAME, f"UPDATE {table} SET record = replace(record, 'name', 'mane')")
    report = repair(home, system_clock)
    assert report.lost == [f"{NAME}: one of the records 'default'"]
    assert (report.kept["lines"], report.kept["definitions"]) == ((0, 1) if table == "lines" else (1, 0))


LOG = """
import os, sys
from pathlib import Path
from typing import Any
from raptor.clock import SystemClock
from raptor.state.base import Want
from raptor.task import Move, State, Task
from tests.system.states import opened
async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as store:
        for number in range(40):
            await store.put([Task(service="work", due=0.0, data=str(number) * 100)], now=1.0)
        for one in (await store.take([Want(queue="default", room=20)], owner="a", now=2.0)).tasks[:10]:
            move = Move(id=one.id, fence=1, queue="default", state=State.DONE, due=0.0, attempts=0, ended=3.0)
            await store.settle([move], now=3.0)
        os.kill(os.getpid(), 9)
SystemClock().run(main)
"""


def test_what_stands_only_in_a_damaged_log_is_kept_as_it_was_last(tmp_path: Path, system_clock: Clock) -> None:
    home = tmp_path / "state"
    assert subprocess.run([sys.executable, "-c", LOG, str(home)], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    log = home / f"{NAME}-wal"
    content = bytearray(log.read_bytes())
    content[32 + 24 + 4000] ^= 1  # SQLite itself stops reading a log at the first frame that is broken
    log.write_bytes(content)
    with pytest.raises(RefusedState, match="older than what was acknowledged"):
        Home.open(home, system_clock)
    assert repair(home, system_clock).lost == []

    async def look() -> None:
        async with opened(home, system_clock) as store:
            states = [str(task.state) for task in await store.find(Query())]
        assert states == ["done"] * 10 + ["taken"] * 10 + ["ready"] * 20

    system_clock.run(look)


def row(**columns: object) -> Cell:
    """A row of a task, as it stands on a page."""
    values: dict[str, Any] = {
        "queue": "q", "service": "s", "data": "1", "state": "ready", "priority": 5, "due": 1.5, "created": 1,
        "attempts": 0, "reason": "", "fence": 0, "deaths": 0, "suspect": 0, "unwanted": 0,
    }  # fmt: skip
    page = columns.pop("page", 7)
    whole = values | columns
    asked, became = dict.fromkeys(ASKED) | values | {"id": 3}, dict.fromkeys(FATE) | whole
    whole = {"crc": asked_of(asked), "fate": fate_of(became)} | whole
    return Cell(int(str(page)), 3, tuple(whole.get(name) for name in COLUMNS))


def test_of_two_rows_of_a_task_the_one_that_an_index_knows_is_kept() -> None:
    rescue = Rescue()
    for cell in (row(state="taken", fence=2, page=-1), row(fence=1), Cell(9, 0, ("q", 0, 5, 1.5, 3))):
        rescue.see(cell)
    assert [(one["fence"], one["state"]) for one in rescue.rows.values()] == [(1, "ready")]
    assert rescue.losses == []


def test_without_an_index_the_one_that_was_taken_more_often_is_kept() -> None:
    rescue = Rescue()
    for cell in (row(state="taken", fence=2), row(state="done", fence=2, page=-1), row(fence=1)):
        rescue.see(cell)
    assert [(one["fence"], one["state"]) for one in rescue.rows.values()] == [(2, "done")]


def test_a_change_that_only_an_index_knows_of_is_told() -> None:
    rescue = Rescue()
    for cell in (row(), Cell(9, 0, ("q", "dead", 3))):
        rescue.see(cell)
    assert rescue.losses == ["the last change of the task 3: an older record is kept"]


def test_a_broken_row_that_no_index_knows_of_is_told_unless_it_has_an_id_that_never_was() -> None:
    rescue = Rescue()
    rescue.see(row(data="2"))
    assert (rescue.rows, rescue.losses) == ({}, ["the task 3"])
    rescue.see(Cell(5, 1, ("task", 2)))
    assert rescue.losses == []


def test_where_it_is_not_known_which_ids_were_used_many_are_passed_over() -> None:
    rescue = Rescue()
    assert rescue.last == 0
    rescue.see(row())
    assert rescue.last == 3 + GAP
    rescue.see(Cell(5, 1, ("task", 8)))
    assert rescue.last == 8


def test_a_long_list_of_losses_is_cut_and_counted() -> None:
    rescue = Rescue()
    for id in range(1, 31):
        rescue.see(Cell(9, 0, ("q", "taken", 5.0, id)))
    (told,) = rescue.losses
    assert told.startswith("the tasks 1, 2, 3, ")
    assert told.endswith(", 20 and 10 more")
