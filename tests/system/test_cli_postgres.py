"""Issue 5: what is wrong with a PostgreSQL is said by every command in a line, with an exit code and no password."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from raptor.state.postgres.migration import VERSION
from tests.servers import Server, spare_port
from tests.system.places import Place, Places

COMMANDS = (("status",), ("put", "one"), ("schedule", "main", "one"), ("queues",), ("start", "main"), ("work",))


def change(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def refused(place: Place, code: int, *texts: str, commands: tuple[tuple[str, ...], ...] = COMMANDS) -> None:
    """Each of the commands ends with that code and with one line that has all of the texts."""
    for words in commands:
        done = place.run(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert_told(done, *texts)


def assert_told(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("raptor: ")]
    assert all(text in line for text in texts), line
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_without_a_node_and_without_the_database_the_reason_is_told(tmp_path: Path) -> None:
    with Places(tmp_path, f"postgresql://raptor:s3cret@127.0.0.1:{spare_port()}/postgres") as places:
        refused(places.place("here"), 3, "refused")


@pytest.mark.timeout(180)
def test_a_server_that_does_not_let_us_in_says_what_is_missing(tmp_path: Path, own_server: Server) -> None:
    change(own_server.url, "CREATE ROLE worker LOGIN PASSWORD 'right'")
    rules = "host all raptor 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    (own_server.data / "pg_hba.conf").write_text(rules)
    change(own_server.url, "SELECT pg_reload_conf()")
    at, few = f"127.0.0.1:{own_server.port}", (("status",), ("put", "one"), ("start", "main"))
    with (
        Places(tmp_path / "a", f"postgresql://worker:s3cret@{at}/postgres") as wrong,
        Places(tmp_path / "b", f"postgresql://raptor:s3cret@{at}/nowhere") as absent,
        Places(tmp_path / "c", f"postgresql://worker:right@{at}/postgres") as unable,
        Places(tmp_path / "d", own_server.url) as able,
    ):
        refused(wrong.place("here"), 6, "user and password")
        refused(absent.place("here"), 6, "createdb", commands=few)
        refused(unable.place("here"), 6, "GRANT", commands=few)  # to create the schema
        place = able.place("here")
        place.ok("put", "one")
        refused(unable.place("there"), 6, "GRANT USAGE ON SCHEMA raptor", commands=few)
        change(
            own_server.url,
            "GRANT USAGE ON SCHEMA raptor TO worker",
            "GRANT SELECT ON ALL TABLES IN SCHEMA raptor TO worker",
        )
        refused(unable.place("there"), 6, "GRANT SELECT, INSERT", commands=(("put", "one"), ("start", "main")))
        change(own_server.url, f"INSERT INTO raptor.version (version) VALUES ({VERSION + 2})")
        refused(place, 6, "newer Raptor", "upgrade", commands=few)
