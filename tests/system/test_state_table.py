"""sqlitedict, used the safe way: what it does wrong as shipped, it does right here."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlitedict import SqliteDict

from raptor.clock import Clock
from raptor.errors import NotWritten, RefusedState
from raptor.rows import ServiceTiming
from raptor.state.front import Front
from raptor.state.seal import BrokenSeal
from raptor.state.tables import Table
from tests.system.states import ask, change, timing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "service_timing.sqlite"


@pytest.fixture
def table(path: Path) -> Iterator[Table[ServiceTiming]]:
    table = Table(path, ServiceTiming, state="s")
    yield table
    if table.conn is not None:
        table.close()


def test_every_new_connection_syncs_fully_and_waits_for_locks(table: Table[ServiceTiming], path: Path) -> None:
    assert isinstance(table, SqliteDict)
    for _ in range(2):
        asked = {
            name: table.conn.select_one(f"PRAGMA {name}") for name in ("synchronous", "journal_mode", "busy_timeout")
        }
        assert asked == {"synchronous": (2,), "journal_mode": ("wal",), "busy_timeout": (5000,)}
        table.close()
        with table:  # reopens, where sqlitedict as shipped forgets
            table["a"] = timing(1)
        table.__enter__()
        asyncio.run(table.put("b", timing(2)))
        assert asyncio.run(table.load()) == {"a": timing(1), "b": timing(2)}


@pytest.mark.spec("004-02")
async def test_a_row_is_json_that_the_sqlite3_shell_reads(
    table: Table[ServiceTiming], path: Path, system_clock: Clock
) -> None:
    await table.put("backup", ServiceTiming(next_due=7.5, last_run_timestamp=1_700_000_000, interval_seconds=3600.0))
    query = (
        "SELECT key, typeof(value), value ->> 'last_run_timestamp', value ->> '$.interval_seconds' FROM service_timing"
    )
    assert ask(path, query) == [("backup", "text", 1_700_000_000, 3600.0)]


def test_it_is_a_dict_too(table: Table[ServiceTiming]) -> None:
    table["a"], table["b"] = timing(1), timing(2)
    table["a"] = timing(3)
    assert table["a"] == timing(3)
    assert dict(table.items()) == {"a": timing(3), "b": timing(2)}
    assert list(table.values()) == [timing(2), timing(3)]
    assert (len(table), list(table), "b" in table) == (2, ["b", "a"], True)
    del table["b"]
    with pytest.raises(KeyError):
        table["b"]
    with pytest.raises(NotImplementedError, match="not atomic"):
        table.update({"c": timing(1)})


@pytest.mark.spec("R4-04")
async def test_a_write_is_in_the_file_when_it_returns(
    table: Table[ServiceTiming], path: Path, system_clock: Clock
) -> None:
    for number in range(10):
        await table.put("a", timing(number))
        assert ask(path, "SELECT value ->> 'next_due' FROM service_timing") == [(float(number),)]
    await table.delete("a")
    assert ask(path, "SELECT count(*) FROM service_timing") == [(0,)]


async def test_writes_that_wait_together_share_a_commit(table: Table[ServiceTiming], system_clock: Clock) -> None:
    before = table.commits.sequence
    for _ in range(10):
        await asyncio.gather(*(table.put(f"s{n}", timing(n)) for n in range(50)))
    assert table.commits.sequence == before + 10
    assert await table.load() == {f"s{n}": timing(n) for n in range(50)}


async def test_reading_commits_nothing(table: Table[ServiceTiming], system_clock: Clock) -> None:
    before = table.commits.sequence
    await table.load()
    assert "a" not in table
    assert table.commits.sequence == before


def test_a_planted_pickle_is_not_run(table: Table[ServiceTiming], path: Path) -> None:
    ran = path.with_name("ran")

    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (ran,))

    table.close()
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO service_timing VALUES ('a', ?)", (pickle.dumps(Bomb()),))
    connection.close()
    with Table(path, ServiceTiming, state="s") as table, pytest.raises((BrokenSeal, AttributeError)):
        table["a"]
    assert not ran.exists()


async def test_a_lock_that_another_holds_is_an_error_and_not_a_hang(
    table: Table[ServiceTiming], path: Path, system_clock: Clock
) -> None:
    table.commits.connection.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(NotWritten, match="another program") as failed:
        await table.put("a", timing(1))
    assert failed.value.reason == "busy"
    with pytest.raises(NotWritten):
        table["a"] = timing(1)
    with pytest.raises(NotWritten):
        table.clear()
    other.execute("ROLLBACK")
    other.close()
    await table.put("a", timing(1))
    assert await table.load() == {"a": timing(1)}


async def test_the_fault_of_one_write_is_not_that_of_its_neighbours(
    table: Table[ServiceTiming], path: Path, system_clock: Clock
) -> None:
    trigger = (
        "CREATE TRIGGER no BEFORE INSERT ON service_timing WHEN NEW.key = 's3' BEGIN SELECT raise(ABORT, 'no'); END"
    )
    change(path, trigger)
    done = await asyncio.gather(*(table.put(f"s{n}", timing(n)) for n in range(6)), return_exceptions=True)
    assert [type(answer) for answer in done] == [type(None)] * 3 + [sqlite3.IntegrityError] + [type(None)] * 2
    assert set(await table.load()) == {"s0", "s1", "s2", "s4", "s5"}


async def test_a_record_that_could_not_be_read_back_is_not_written(
    table: Table[ServiceTiming], system_clock: Clock
) -> None:
    with pytest.raises(ValueError, match="next_due"):
        await table.put("a", ServiceTiming(next_due=float("inf")))
    with pytest.raises(UnicodeEncodeError):
        await table.put("a\ud800", timing(1))
    await table.put("b", timing(1))
    assert set(await table.load()) == {"b"}


def test_a_file_that_cannot_be_opened_is_an_error_at_once(path: Path) -> None:
    path.write_bytes(b"this is no database, and long enough to be sure of that " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        Table(path, ServiceTiming, state="s")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_is_refused_and_does_not_hang(table: Table[ServiceTiming]) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child() -> None:
        front: Front[sqlite3.Connection] = table._front
        for attempt in (lambda: table["a"], lambda: asyncio.run(front.ask(lambda _: None))):
            try:
                attempt()
            except (RuntimeError, RefusedState) as error:
                answers.put(str(error))

    process = context.Process(target=child)
    process.start()
    process.join(20)
    process.kill()  # should it hang
    process.join()
    assert process.exitcode == 0
    assert "forked child would wait for ever" in answers.get(timeout=5)
    assert "not by this child" in answers.get(timeout=5)
