"""`raptor torture` for real: short, with a seed; nothing of the user's is touched, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from raptor.cli.torturing import WORDS
from raptor.testing.torture.campaign import COUNTED
from tests.system.cli import RAPTOR, Process, Project, eventually, squeeze

pytestmark = pytest.mark.timeout(180)

LIAR = '''
import os
from raptor import service

@service(every="1s")
def liar():
    """Writes the first line of the ledger once more."""
    ledger = os.environ["TORTURE_LEDGER"]
    with open(ledger) as lines:
        first = next(line for line in lines if line.strip())
    with open(ledger, "a") as out:
        out.write("\\n" + first)
'''
OWN = '''
import os
import pathlib
import time
from raptor import service

def note(name):
    with open(pathlib.Path(__file__).with_name("ran"), "a") as out:
        out.write(name + "\\n")

@service(every="500ms")
def timed():
    note("timed")

@service(isolate=True)
def apart():
    note("apart")
    time.sleep(0.1)

@service
async def needy(name: str):
    """Nobody gives it a name."""
    note("needy")

@service(every="1s", max_attempts=2)
def broken():
    raise ConnectionError("db refused")
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "a project", services=OWN)
    yield made
    made.close()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """With a short name, for sockets."""
    with TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@pytest.fixture
def begin(project: Project) -> Callable[..., Process]:
    def begin(*words: str, **env: str) -> Process:
        process = Process([*RAPTOR, *words], project.folder, env)
        project.processes.append(process)
        return process

    return begin


def left(scratch: Path) -> list[Path]:
    return list(scratch.iterdir())


def processes(scratch: Path) -> list[str]:
    """Those that were started for a torture there."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(scratch) in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_a_torture_says_what_was_done_and_that_all_was_sound(project: Project, scratch: Path) -> None:
    done = project.run("torture", "--for", "6s", "--seed", "1", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stdout + done.stderr
    said = squeeze(done.stdout)
    assert "kill -9 of a node" in said
    assert "✓ sound" in said
    assert "raptor torture --seed 1" in said
    assert left(scratch) == []
    assert processes(scratch) == []
    assert not project.home.exists()


def test_your_own_services_run_on_scratch_state_and_yours_is_untouched(project: Project, scratch: Path) -> None:
    project.home.mkdir(mode=0o700)
    (project.home / "mine").write_text("untouched")
    answer = project.run("torture", "--for", "6s", "--seed", "2", "-m", "services", "--json", TMPDIR=str(scratch))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    told = json.loads(answer.stdout)
    assert (told["ok"], told["violations"], told["seed"]) == (True, [], 2)
    assert told["counts"]["kills"] > 0
    assert told["counts"]["runs"] > 0
    assert set(project.ran) == {"timed", "apart"}
    assert [file.name for file in project.home.iterdir()] == ["mine"]
    assert left(scratch) == []


def test_a_broken_promise_is_told_with_its_meaning_and_its_traces_are_kept(project: Project, scratch: Path) -> None:
    (project.folder / "liar.py").write_text(LIAR)
    done = project.run("torture", "--for", "6s", "--seed", "3", "-m", "liar", TMPDIR=str(scratch))
    assert done.returncode == 1, done.stdout + done.stderr
    said = squeeze(done.stdout)
    assert "✗ duplicate" in said
    assert "duplicate: two runs have the same id" in said
    (kept,) = left(scratch)
    assert f"are kept in {kept}" in said
    assert list(kept.glob("round-*/history"))
    assert processes(scratch) == []


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_with_a_verdict_and_a_second_one_at_once(
    project: Project, scratch: Path, begin: Callable[..., Process], times: int
) -> None:
    process = begin("torture", "--for", "5m", "--seed", "4", TMPDIR=str(scratch))
    eventually(lambda: list(scratch.glob("*/round-*/ledger")), "nothing runs")
    process.signal(signal.SIGINT)
    process.wait_for("stopping")
    if times == 2:
        process.signal(signal.SIGINT)
    assert process.end() == (0 if times == 1 else 130)
    assert ("✓ sound" in process.text) == (times == 1), process.text
    assert left(scratch) == []
    eventually(lambda: processes(scratch) == [], "something still runs")


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["--for", "soon"], 2, "soon"),
        (["--store", "sqlite:///srv/state"], 2, "postgresql://"),
        (["-m", "nowhere"], 4, "nowhere"),
    ],
)
def test_what_cannot_be_tortured_is_refused_before_anything_starts(
    project: Project, scratch: Path, words: list[str], code: int, complaint: str
) -> None:
    done = project.run("torture", *words, TMPDIR=str(scratch))
    assert done.returncode == code
    assert complaint in done.stderr
    assert left(scratch) == []


def test_a_server_that_does_not_answer_is_told_as_elsewhere(project: Project, scratch: Path) -> None:
    done = project.run("torture", "--store", "postgresql://nobody@127.0.0.1:1/none", TMPDIR=str(scratch))
    assert done.returncode == 3, done.stdout + done.stderr
    assert left(scratch) == []


def test_on_postgresql_it_has_a_schema_of_its_own_which_goes(project: Project, scratch: Path, server_url: str) -> None:
    done = project.run("torture", "--for", "8s", "--seed", "5", "--store", server_url, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ sound" in done.stdout
    with psycopg.connect(server_url) as connection:
        query = b"SELECT nspname FROM pg_namespace WHERE nspname LIKE 'raptor%'"
        assert [name for (name,) in connection.execute(query) if name.startswith("raptor_torture")] == []
    assert left(scratch) == []


def test_whatever_is_counted_has_words_for_the_verdict() -> None:
    assert set(WORDS) == set(COUNTED)
