"""A bit that flips in any column of a task is told, wherever the row is read: by a deep look, by a find, by a take."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from operator import attrgetter
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.errors import RefusedState
from raptor.node import Node
from raptor.service import Service
from raptor.state import anchor
from raptor.state.amending import cancel, extend
from raptor.state.base import Hold, Query, Want
from raptor.state.columns import ALL
from raptor.state.connection import lenient
from raptor.state.home import Home
from raptor.state.repair import repair
from raptor.state.salvage import Pages, _varint
from raptor.state.seal import BrokenSeal
from raptor.state.tasks import find, take_all
from raptor.task import State, Task
from tests.damage.campaign import scratch
from tests.damage.homes import Case, prepare
from tests.system.states import change, opened

NAME = "raptor.sqlite"
ROWID = 1  # what SQLite keeps there is not read: the id is the key of the row


@pytest.fixture(scope="module")
def closed() -> Iterator[Case]:
    with scratch() as folder:
        yield next(case for case in prepare(folder) if case.name == "closed")


def places(content: bytes) -> Iterator[tuple[int, int, str]]:
    """Of every byte of a task's row on its page: where it is, whose row, and of which column."""
    for number, image in Pages(content, b"").images.items():
        if number == 1 or image[0] != 13:
            continue
        for entry in range(8, 8 + 2 * int.from_bytes(image[3:5], "big"), 2):
            start = int.from_bytes(image[entry : entry + 2], "big")
            length, at = _varint(image, start)
            id, head = _varint(image, at)
            end, at = _varint(image, head)
            kinds: list[tuple[int, int, int]] = []
            while at < head + end:
                kind, after = _varint(image, at)
                kinds.append((kind, at, after))
                at = after
            if len(kinds) != len(ALL) or length > 4000:
                continue
            for name, (kind, first, after) in zip(ALL, kinds, strict=True):
                width = (kind - 12) // 2 if kind >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]
                yield from (
                    (4096 * (number - 1) + place, id, name) for place in (*range(first, after), *range(at, at + width))
                )
                at += width


def is_told(home: Path) -> bool:
    try:
        Home.read(home).examine(deep=True)
    except RefusedState as refused:
        return refused.kind == "damaged"
    return False


def table(path: Path) -> list[tuple[object, ...]] | None:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.text_factory = lenient
        try:
            return connection.execute("SELECT * FROM task NOT INDEXED ORDER BY id").fetchall()
        except sqlite3.DatabaseError:
            return None


@pytest.mark.spec("otp-D3")
@pytest.mark.timeout(240)
def test_a_bit_that_flips_in_any_column_of_a_task_is_told_by_a_deep_look(closed: Case, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    path = shutil.copytree(closed.path, tmp_path / "home") / NAME
    content, whole = path.read_bytes(), table(path)
    seen: dict[str, int] = dict.fromkeys(ALL, 0)
    for at, id, column in places(content):
        bit = rng.randrange(8)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([content[at] ^ 1 << bit]))
        if is_told(path.parent):
            seen[column] += 1
        else:
            assert table(path) == whole, f"seed {seed}: bit {bit} of byte {at}, {column} of task {id}"
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content[at : at + 1])
    assert min(seen.values()) > 3, seen


@pytest.mark.timeout(240)
def test_a_bit_that_flips_in_a_ready_task_is_told_by_its_take_and_holds_up_nobody(closed: Case, tmp_path: Path) -> None:
    """Whatever kind of value a column has then; unless SQLite itself sees that the row does not fit its index."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    path = shutil.copytree(closed.path, tmp_path / "home") / NAME
    content, told = path.read_bytes(), 0
    whole = {task.id: task for task in take(path)}
    for at, id, column in places(content):
        if id not in whole:
            continue
        bit = rng.randrange(8)
        where = f"seed {seed}: bit {bit} of byte {at}, {column} of task {id}"
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        try:
            given = {task.id: task for task in take(path)}
        except sqlite3.DatabaseError as error:
            is_corrupt = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT
            assert is_corrupt, where
            continue
        assert given.keys() == whole.keys(), where
        others = whole.keys() - {id}
        assert {one: given[one] for one in others} == {one: whole[one] for one in others}, where
        told += given[id].reason == "damaged"
        assert given[id].reason == "damaged" or given[id] == whole[id], where
    assert told > 100


def take(path: Path) -> list[Task]:
    """All that is ready; nothing of it stays."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.text_factory = lenient
        connection.execute("BEGIN")
        try:
            before = [task.reason for task in find(connection, Query(limit=99)) if task.state is State.READY]
        except BrokenSeal:  # in no state that there is: to a take it is ready, as its index says
            before = None
        wants = [Want(queue=name, room=100) for name in ("default", "other")]
        given = take_all(connection, wants, "me", 1e7).tasks
        extend(connection, [Hold(task.id, task.fence) for task in given], 2e7)
        cancel(connection, [task.id for task in given], 1e7, "no")
        connection.execute("ROLLBACK")
    assert before in (None, [task.reason for task in sorted(given, key=attrgetter("id"))])
    return given


CHANGES = {
    "priority": "1", "due": "due - 1", "created": "created + 1", "attempts": "1", "max_attempts": "NULL",
    "key": "'k'", "key_until": "1", "parent": "7", "active_s": "9", "timeout_s": "9", "timing": "'{}'",
    "started": "1", "previous": "1", "ended": "1", "output": "'1'", "error": "'e'", "reason": "'x'",
    "history": "'[]'", "fence": "3", "owner": "'o'", "lease": "5", "deaths": "1", "unwanted": "1",
    "service": "'walk'", "data": "'8'", "crc": "crc + 1", "fate": "1",
}  # fmt: skip


def test_every_column_but_those_that_say_where_a_task_is_has_its_change() -> None:
    assert tuple(name for name in ALL if name in {*CHANGES, "id", "queue", "state", "suspect"}) == ALL


@pytest.mark.parametrize("column", CHANGES)
@pytest.mark.parametrize("now", [9.0, 1_763_433_600.0])
async def test_a_changed_column_is_told_by_a_find_and_by_a_take_and_holds_up_nobody(
    tmp_path: Path, system_clock: Clock, column: str, now: float
) -> None:
    async with opened(tmp_path / "state", system_clock) as store:
        placed = await store.put([Task(service="work", due=now - 3 + number) for number in range(3)], now=now - 4)
        one = placed[1].id
        change(tmp_path / "state" / NAME, f'UPDATE task SET "{column}" = {CHANGES[column]} WHERE id = {one}')
        damaged = [(id, "damaged" if id == one else "") for id, _ in placed]
        assert [(task.id, task.reason) for task in await store.find(Query())] == damaged
        given = (await store.take([Want(queue="default", room=9)], owner="a", now=now)).tasks
        assert sorted((task.id, task.reason) for task in given) == damaged
        assert [task.reason for task in await store.find(Query(states=(State.TAKEN,), ids=(one,)))] == ["damaged"]


async def test_a_task_that_was_damaged_while_it_ran_is_set_aside_by_whoever_brings_it_back(
    tmp_path: Path, system_clock: Clock
) -> None:
    ran: list[str] = []
    other = asyncio.Event()

    async def work(data: str) -> None:
        ran.append(data)
        other.set()

    async with opened(tmp_path / "state", system_clock) as store:
        await store.put(
            [Task(service="work", due=0.0, data='"one"'), Task(service="work", due=0.0, data='"two"')], now=0.0
        )
        assert len((await store.take([Want(queue="default", room=9)], owner="gone", now=1.0)).tasks) == 2
        change(tmp_path / "state" / NAME, "UPDATE task SET attempts = 1 WHERE id = 1")
    async with Node(tmp_path / "state", [Service(name="work", function=work)], listen=False, clock=system_clock):
        async with asyncio.timeout(20):
            await other.wait()
    async with opened(tmp_path / "state", system_clock) as store:
        (task,) = await store.find(Query(ids=(1,)))
    assert ran == ["two"]
    assert (task.state, task.reason, task.error) == (State.DEAD, "bad payload", "the row is damaged")


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("mirrored", [False, True])
async def test_a_last_id_that_flipped_is_refused_and_no_id_is_used_again(
    closed: Case, tmp_path: Path, system_clock: Clock, bit: int, mirrored: bool
) -> None:
    home = shutil.copytree(closed.path, tmp_path / "home")
    known = anchor.read(home)
    assert known is not None
    content = bytearray((home / NAME).read_bytes())
    last = content.index(known.state.encode()) + 33  # after a sequence of one byte; its mirror comes behind
    assert (content[last], content[last + 1]) == (closed.last_id, 255 - closed.last_id)
    content[last + mirrored] ^= 1 << bit
    (home / NAME).write_bytes(content)
    with pytest.raises(RefusedState, match="was the last"):
        Home.open(home, system_clock)
    assert repair(home, system_clock).lost == []
    async with opened(home, system_clock) as store:
        ((id, _),) = await store.put([Task(service="new", due=0.0)], now=0.0)
    assert closed.last_id < id <= closed.last_id + 129


@pytest.mark.parametrize(
    ("was", "now"),
    [(b'"key" TEXT,', b'"kez" TEXT,'), (b"DEFAULT 'ready'", b"DEFAULT 'reedy'"), (b"fate INT", b"fape INT")],
)
def test_another_column_than_the_file_was_made_with_is_refused(
    closed: Case, tmp_path: Path, system_clock: Clock, was: bytes, now: bytes
) -> None:
    """SQLite takes an unknown name in quotes for a text, and a new task for what the default says."""
    home = shutil.copytree(closed.path, tmp_path / "home")
    content = (home / NAME).read_bytes()
    assert content.count(was) == 1
    (home / NAME).write_bytes(content.replace(was, now))
    with pytest.raises(RefusedState, match="what it says of task is not what it was made with"):
        Home.open(home, system_clock)
    assert repair(home, system_clock).lost == []
    Home.open(home, system_clock).close()
