"""Design 000 on PostgreSQL, in Raptor's words: the table, the claim, workers that never talk to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from raptor import Node, service
from raptor.clock import Clock
from raptor.rows import LEASE_S
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.state.postgres import session
from raptor.state.postgres.address import read
from raptor.state.postgres.store import PostgresStore
from raptor.task import State
from raptor.testing.conformance.sample import NOW, task, want
from tests.postgres import Stores

WAIT_S = 40.0


UPDATES = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'SCHEMA' AND relname = 'task'"


def ask(address: str, statement: str) -> list[tuple[Any, ...]]:
    where = read(address)
    with psycopg.connect(where.url, autocommit=True) as connection:
        return connection.execute(statement.replace("SCHEMA", where.schema).encode()).fetchall()


@pytest.mark.spec("000-15", "000-16", "000-17", "000-18", "000-20", "000-21", "000-23", "000-26", "R0-03")
def test_the_table_has_its_columns_types_and_checks(pg_stores: Stores, pg_address: str) -> None:
    columns = {
        name: (kind, identity == "YES", null == "YES", default)
        for name, kind, identity, null, default in ask(
            pg_address,
            "SELECT column_name, data_type, is_identity, is_nullable, column_default FROM information_schema.columns"
            " WHERE table_schema = 'SCHEMA' AND table_name = 'task'",
        )
    }
    assert columns["id"][:3] == ("bigint", True, False)
    assert columns["due"][:3] == ("timestamp with time zone", False, False)
    assert columns["service"][2] is False
    assert columns["data"][0] == "jsonb"
    assert (columns["attempts"][3], columns["max_attempts"][3], columns["created"][3]) == ("0", "3", "now()")
    assert not [name for name, (kind, *_) in columns.items() if kind == "timestamp without time zone"]
    (key,) = ask(
        pg_address,
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)"
        " WHERE i.indrelid = 'SCHEMA.task'::regclass AND i.indisprimary",
    )
    assert key == ("id",)
    ((states,),) = ask(
        pg_address,
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'SCHEMA.task'::regclass"
        " AND conname = 'task_state_check'",
    )
    assert all(state.value in states for state in State)


@pytest.mark.spec("000-27", "R0-03")
async def test_what_waits_and_what_runs_have_partial_indexes_that_are_used(pg_stores: Stores, pg_address: str) -> None:
    found = dict(
        ask(pg_address, "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'SCHEMA' AND tablename = 'task'")
    )
    assert "due" in found["task_ready"]
    assert "WHERE (shelf = 'ready'::text)" in found["task_ready"]
    await pg_stores.store.put([task(due=4e9) for _ in range(2000)], now=NOW)
    await pg_stores.store.put([task()], now=NOW)
    plan = ask(
        pg_address,
        "EXPLAIN SELECT id FROM SCHEMA.task WHERE queue = 'default' AND NOT suspect AND priority = 5"
        " AND shelf = 'ready' AND state = 'ready' AND due <= now() ORDER BY due, id LIMIT 10",
    )
    assert "task_ready" in "\n".join(line for (line,) in plan)


async def test_a_take_changes_no_index(pg_stores: Stores, pg_address: str, system_clock: Clock) -> None:
    await pg_stores.store.put([task() for _ in range(100)], now=NOW)
    taken = await pg_stores.store.take([want()], owner="a", now=NOW)
    assert len(taken.tasks) == 100
    async with asyncio.timeout(WAIT_S):
        # The server tells of them a little later; before version 15 with what is asked next.
        while (updates := ask(pg_address, UPDATES)) != [(100, 100)]:
            assert updates == [(0, 0)]
            await system_clock.sleep(0.05)
            await pg_stores.store.take([want()], owner="a", now=NOW)


@pytest.mark.spec("000-33", "000-34")
async def test_while_a_task_runs_no_transaction_is_open_and_no_row_is_locked(
    pg_address: str, system_clock: Clock
) -> None:
    seen: dict[str, Any] = {}

    @service
    def job() -> None:
        seen["open"] = ask(
            pg_address,
            "SELECT application_name FROM pg_stat_activity WHERE application_name IN ('raptor tasks', 'raptor records')"
            " AND state LIKE 'idle in transaction%'",
        )
        seen["row"] = ask(pg_address, "SELECT state, owner FROM SCHEMA.task FOR UPDATE NOWAIT")

    async with Node(services=[job], store=pg_address, clock=system_clock, listen=False) as node:
        put = await node.put(job)
        assert (await node.call("wait", id=put.id, timeout_s=WAIT_S))["state"] == "done"
    assert seen["open"] == []
    assert [state for state, _ in seen["row"]] == ["taken"]


@pytest.mark.spec("000-14", "000-11")
async def test_one_process_runs_many_jobs_at_a_time_on_a_server_of_another(
    pg_address: str, system_clock: Clock
) -> None:
    together = asyncio.Barrier(60)

    @service
    async def job() -> None:
        await together.wait()  # nobody goes on until all sixty run

    async with Node(services=[job], store=pg_address, clock=system_clock, listen=False) as node:
        ids = await node.put_many(job, [None] * 60)
        for id in ids:
            assert (await node.call("wait", id=id, timeout_s=WAIT_S))["state"] == "done"


@pytest.mark.spec("000-10", "000-13")
async def test_workers_share_the_work_and_know_nothing_of_each_other(pg_address: str, system_clock: Clock) -> None:
    ran: list[tuple[str, int]] = []

    def worker(name: str) -> Any:
        @service(name="job")
        async def job(n: int) -> None:
            ran.append((name, n))

        return Node(services=[job], store=pg_address, clock=system_clock, listen=False)

    async with open_store(pg_address, system_clock) as store:
        tasks = [task(service="job", data=f'{{"n": {n}}}') for n in range(300)]
        placed = await store.put(tasks, now=NOW)
        async with worker("first") as first, worker("second"), worker("third"):
            for id, _ in placed:
                assert (await first.call("wait", id=id, timeout_s=WAIT_S))["state"] == "done"
        assert sorted(n for _, n in ran) == list(range(300))
        assert {one.fence for one in await store.find(Query(limit=400))} == {1}


@pytest.mark.spec("000-12", "000-44")
async def test_a_look_is_one_statement_a_second_however_much_there_is(
    pg_address: str, system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session.POLL_S == 1.0
    monkeypatch.setattr(session, "POLL_S", 0.02)
    async with open_store(pg_address, system_clock) as store:
        assert isinstance(store, PostgresStore)
        await store.put([task(queue=f"q{number}", due=4e9) for number in range(50)], now=NOW)
        look, enough, looks = store.session.earliest, asyncio.Event(), 0
        asked: list[object] = []
        rows = store._rows  # pyright: ignore[reportPrivateUsage]

        async def counted(statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
            asked.append(statement)
            return await rows(statement, values)

        async def looked() -> Mapping[str, float]:
            nonlocal looks
            found = await look()
            looks += 1
            assert len(found) == 50
            if looks == 5:
                enough.set()
            return found

        monkeypatch.setattr(store, "_rows", counted)
        store.session.earliest = looked
        bell = store.listen()
        async with asyncio.timeout(WAIT_S):
            await enough.wait()
        assert len(asked) == looks
        bell.close()


@pytest.mark.spec("000-32", "000-40", "000-42", "R0-06")
async def test_what_a_dead_worker_left_comes_back_and_counts_once(pg_address: str, system_clock: Clock) -> None:
    @service
    async def job() -> str:
        return "ran"

    async with open_store(pg_address, system_clock) as store:
        long_ago = system_clock.now() - LEASE_S - 300.0
        placed = await store.put([task(service="job"), task(service="job", max_attempts=1)], now=NOW)
        ask(
            pg_address,
            f"UPDATE SCHEMA.task SET state = 'taken', fence = 1, owner = 'gone', started = to_timestamp({long_ago}),"
            f" lease = to_timestamp({long_ago + LEASE_S}) RETURNING id",
        )
        async with Node(services=[job], store=pg_address, clock=system_clock, listen=False) as node:
            ends = [await node.call("wait", id=id, timeout_s=WAIT_S) for id, _ in placed]
        assert [(one["state"], one["reason"]) for one in ends] == [("done", ""), ("dead", "lapsed")]
        first, last = await store.find(Query())
        assert (first.attempts, last.attempts) == (1, 1)
