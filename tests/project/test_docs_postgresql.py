"""docs/postgresql.md and the SQL of the README: every statement and every command is run, on a real server."""

from __future__ import annotations

import configparser
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.project.conftest import Run
from tests.servers import Server

pytestmark = pytest.mark.timeout(120)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def commands(text: str) -> list[list[str]]:
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture
def page(root: Path) -> Path:
    return root / "docs/postgresql.md"


def test_every_command_works_as_it_stands(page: Path, run: Run, own_server: Server, tmp_path: Path) -> None:
    store = {"RAPTOR_STORE": own_server.url, "NO_COLOR": "1"}
    run(sys.executable, "-m", "raptor", "init", cwd=tmp_path)
    ran: list[str] = []
    for words in commands("\n".join(blocks(page, "sh"))):
        match words:
            case ["raptor", *rest]:
                ran.append(run(sys.executable, "-m", "raptor", *rest, cwd=tmp_path, **store).stdout)
            case ["export", setting]:
                assert setting.startswith("RAPTOR_STORE=postgresql://")
            case ["pip", "install", extra]:
                assert extra == "raptor-scheduler[postgres]"
            case _:
                raise AssertionError(words)
    assert "(there was none)" in ran[0]
    assert "all that a node needs" in ran[1]
    assert ran[-1].splitlines() == re.findall(r"^(?:GRANT|ALTER).*;$", "\n".join(blocks(page, "sql")), re.M)


@pytest.mark.spec("R0-08")
def test_every_statement_works_as_it_stands(page: Path, root: Path, run: Run, own_server: Server) -> None:
    run(sys.executable, "-m", "raptor", "store", "migrate", cwd=root, RAPTOR_STORE=own_server.url)
    told: dict[str, list[tuple[Any, ...]]] = {}
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        for text in [*blocks(page, "sql"), *blocks(root / "README.md", "sql")]:
            for statement in filter(None, (part.strip() for part in text.split(";\n"))):
                comment = re.match(r"-- (.*)", statement)
                cursor = connection.execute(statement.encode())
                told[comment[1] if comment else statement] = cursor.fetchall() if cursor.description else []
    assert told["by state"] == [("ready", 3)]
    assert told["stuck: taken, and the lease has lapsed for a minute; a node takes them back by itself"] == [(0,)]
    assert {line.split(":")[0].split(",")[0] for line in told if not line[0].isupper()} == {
        "by state",
        "stuck",
        "overdue",
        "success rate of the last hour",
        "near their last attempt",
        "average lateness by service",
        "nodes",
    }


@pytest.mark.spec("R0-08")
def test_the_monitoring_queries_count_what_they_say(page: Path, root: Path, run: Run, own_server: Server) -> None:
    run(sys.executable, "-m", "raptor", "store", "migrate", cwd=root, RAPTOR_STORE=own_server.url)
    text = next(text for text in blocks(page, "sql") if "-- by state" in text)
    rows = (
        "('a', 'done', now() - interval '10 s', now() - interval '8 s', now() - interval '7 s', 0, NULL, NULL)",
        "('a', 'done', now() - interval '10 s', now() - interval '6 s', now() - interval '5 s', 0, NULL, NULL)",
        "('b', 'done', now() - interval '10 s', now() - interval '9 s', now() - interval '5 s', 0, NULL, NULL)",
        "('b', 'dead', now() - interval '10 s', now() - interval '9 s', now() - interval '5 s', 3, NULL, NULL)",
        "('c', 'taken', now() - interval '1 h', now() - interval '1 h', NULL, 2, 'gone', now() - interval '1 h')",
        "('d', 'ready', now() - interval '1 h', NULL, NULL, 0, NULL, NULL)",
    )
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        insert = "INSERT INTO raptor.task (service, state, due, started, ended, attempts, owner, lease) VALUES "
        connection.execute((insert + ", ".join(rows)).encode())
        told = {
            part.strip().partition("\n")[0][3:]: connection.execute(part.encode()).fetchall()
            for part in text.split(";\n")
            if part.strip()
        }
    found = {words.split(":")[0].split(",")[0]: rows for words, rows in told.items()}
    assert sorted(found["by state"]) == [("dead", 1), ("done", 3), ("ready", 1), ("taken", 1)]
    assert found["stuck"] == [(1,)]
    assert [row[:2] for row in found["overdue"]] == [("default", 1)]
    assert [float(row[0]) for row in found["success rate of the last hour"]] == [75.0]
    assert [row[1:4] for row in found["near their last attempt"]] == [("c", 2, 3)]
    assert [(row[0], float(row[1]), row[2]) for row in found["average lateness by service"]] == [
        ("a", 3.0, 2),
        ("b", 1.0, 1),
    ]


def test_the_python_of_the_page_does_what_it_says(page: Path, root: Path, run: Run, own_server: Server) -> None:
    run(sys.executable, "-m", "raptor", "store", "migrate", cwd=root, RAPTOR_STORE=own_server.url)
    (text,) = blocks(page, "python")
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, str(page), "exec"), names)
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (name text PRIMARY KEY)")
        names["register"](own_server.url, "ann")
        with pytest.raises(psycopg.errors.UniqueViolation):
            names["register"](own_server.url, "ann")
        assert connection.execute("SELECT service, queue, key FROM raptor.task").fetchall() == [
            ("send_email", "mail", "welcome-ann")
        ]


def test_the_extra_of_the_page_exists(root: Path) -> None:
    config = configparser.ConfigParser()
    config.read(root / "setup.cfg", encoding="utf-8")
    assert "psycopg" in config["options.extras_require"]["postgres"]
