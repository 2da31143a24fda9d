"""`raptor store` and what other commands say of a store on PostgreSQL, in real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from raptor.state.postgres.address import read
from raptor.state.postgres.migration import VERSION
from tests.servers import Server, running
from tests.system.cli import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    one = Project(tmp_path / "p")
    yield one
    one.close()


def change(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def as_role(server: Server, role: str, password: str = "right") -> str:
    return f"postgresql://{role}:{password}@127.0.0.1:{server.port}/postgres"


@pytest.fixture
def guarded(own_server: Server) -> Server:
    """A server that asks a worker for its password."""
    change(own_server.url, "CREATE ROLE worker LOGIN PASSWORD 'right'", "CREATE ROLE putter LOGIN PASSWORD 'right'")
    rules = "host all raptor 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (own_server.data / "pg_hba.conf").write_text(rules)
    change(own_server.url, "SELECT pg_reload_conf()")
    return own_server


def test_migrate_says_what_was_there_and_what_is(project: Project, pg_address: str) -> None:
    schema = read(pg_address).schema
    assert f"{schema} is not there: raptor store migrate" in project.run("store", "check", "--store", pg_address).stdout
    assert f"the schema has version {VERSION} (there was none)" in project.ok("store", "migrate", "--store", pg_address)
    assert f"nothing to do, the schema has version {VERSION}" in project.ok("store", "migrate", RAPTOR_STORE=pg_address)
    told = project.json("store", "migrate", "--store", pg_address)
    assert (told["before"], told["after"]) == (VERSION, VERSION)


def test_check_and_doctor_and_status_say_what_the_store_promises(project: Project, pg_address: str) -> None:
    project.ok("store", "migrate", "--store", pg_address)
    said = project.ok("store", "check", "--store", pg_address)
    for line in ("synchronous_commit=on", "fsync=on", "full_page_writes=on", "a primary", "all that a node needs"):
        assert line in said
    assert "commits: synchronous_commit=on" in project.ok("doctor", "--store", pg_address)
    project.ok("put", "one", "--store", pg_address)
    shown = project.ok("status", "--store", pg_address)
    assert f"store {read(pg_address).shown}, PostgreSQL" in shown
    assert project.json("status", "--store", pg_address)["store"]["durable"] is True
    pooled = project.ok("store", "check", "--store", f"{pg_address}&pooler=transaction")
    assert "no notifications: queues are looked at once a second; no session locks" in pooled


def test_a_server_that_promises_less_is_told_with_what_to_do(project: Project) -> None:
    with running("fsync=off", "full_page_writes=off", "synchronous_commit=off") as careless:
        project.ok("store", "migrate", "--store", careless.url)
        done = project.run("store", "check", "--store", careless.url)
        assert done.returncode == 1
        for line in ("fsync=off", "full_page_writes=off", "ALTER ROLE name SET synchronous_commit = on"):
            assert line in done.stdout
        project.ok("put", "one", "--store", careless.url)
        assert "! store postgresql://" in project.ok("status", "--store", careless.url)
        assert project.run("doctor", "--store", careless.url).returncode == 1


def test_a_role_with_the_printed_grants_runs_a_node_and_may_create_nothing(project: Project, guarded: Server) -> None:
    worker = as_role(guarded, "worker")
    refused = project.run("put", "one", "--store", worker)
    assert refused.returncode == 6
    assert "raptor store migrate" in refused.stderr
    assert "right" not in refused.stderr
    project.ok("store", "migrate", "--store", guarded.url)
    lacking = project.run("store", "check", "--store", worker)
    assert lacking.returncode == 1
    assert "GRANT USAGE ON SCHEMA raptor TO worker;" in lacking.stdout
    statements = project.ok("store", "grants", "worker").splitlines()
    change(guarded.url, *statements)
    assert "all that a node needs" in project.ok("store", "check", "--store", worker)
    id = project.json("put", "one", "--key", "k", "--store", worker)["id"]
    node = project.start("main", "--interval", "1h", "--store", worker)
    node.wait_for("scheduler main")
    project.ok("schedule", "main", "two", "--store", worker)
    node.wait_for("two ✓ ok")
    shown = project.json("wait", str(id), "--store", worker)
    assert shown["state"] == "done"
    project.ok("history", "two", "--store", worker)
    node.signal(signal.SIGTERM)
    assert node.end() == 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege), psycopg.connect(worker) as connection:
        connection.execute("CREATE TABLE raptor.mine ()")


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        ("USAGE ON SCHEMA raptor", "GRANT USAGE ON SCHEMA raptor TO worker;"),
        ("INSERT ON raptor.task", "GRANT INSERT ON raptor.task TO worker;"),
        ("SELECT, DELETE ON raptor.claim", "GRANT SELECT, DELETE ON raptor.claim TO worker;"),
    ],
)
def test_the_grant_that_is_missing_is_named(project: Project, guarded: Server, taken: str, named: str) -> None:
    worker = as_role(guarded, "worker")
    project.ok("store", "migrate", "--store", guarded.url)
    change(guarded.url, *project.ok("store", "grants", "worker").splitlines())
    change(guarded.url, f"REVOKE {taken} FROM worker")
    assert named in project.run("store", "check", "--store", worker).stdout
    if "claim" not in taken:
        put = project.run("put", "one", "--store", worker)
        assert put.returncode == 6
        assert "GRANT " in put.stderr
        assert taken.rpartition(" ")[2] in put.stderr


def test_a_role_that_may_put_puts_and_no_more(project: Project, guarded: Server) -> None:
    project.ok("store", "migrate", "--store", guarded.url)
    change(guarded.url, *project.ok("store", "grants", "putter", "--to", "put").splitlines())
    with psycopg.connect(as_role(guarded, "putter"), autocommit=True) as connection:
        connection.execute("SELECT raptor.put('one', '{}', in_seconds => 60, key => 'k')")
        connection.execute("INSERT INTO raptor.task (service) VALUES ('one')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM raptor.task")
    change(guarded.url, *project.ok("store", "grants", "putter", "--to", "look").splitlines())
    with psycopg.connect(as_role(guarded, "putter"), autocommit=True) as connection:
        assert connection.execute("SELECT ready, delayed FROM raptor.queue_status").fetchall() == [(1, 1)]


def test_names_are_quoted_and_another_schema_is_named(project: Project) -> None:
    said = project.ok("store", "grants", 'odd "name', "--store", "postgresql://host/db?schema=mine")
    assert 'GRANT USAGE ON SCHEMA mine TO "odd ""name";' in said


def test_what_is_no_store_of_many_is_refused(project: Project) -> None:
    for words in (("migrate",), ("check",)):
        done = project.run("store", *words)
        assert done.returncode == 2
        assert "--store postgresql://user@host/database" in done.stderr
    assert project.run("store", "migrate", "--store", "memory:").returncode == 2


def test_bad_addresses_say_what_to_do(project: Project, guarded: Server) -> None:
    wrong = project.run("status", "--store", as_role(guarded, "worker", "wrong"))
    assert (wrong.returncode, "check user and password" in wrong.stderr) == (6, True)
    assert "wrong@" not in wrong.stderr
    nowhere = project.run("put", "one", "--store", guarded.url.rpartition("/")[0] + "/nowhere")
    assert (nowhere.returncode, "createdb" in nowhere.stderr) == (6, True)
    guarded.stop()
    away = project.run("store", "check", "--store", guarded.url)
    assert (away.returncode, "does not answer: " in away.stderr) == (3, True)
    (guarded.data / "standby.signal").touch()
    guarded.start()
    replica = project.run("store", "migrate", "--store", guarded.url)
    assert (replica.returncode, "read-only replica" in replica.stderr) == (6, True)
