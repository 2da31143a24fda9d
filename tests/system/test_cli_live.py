"""`raptor run` shows what a service prints while it runs, whether the command runs it or a node does."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli import PATIENCE_S, RAPTOR, Process, Project, environment

pytestmark = pytest.mark.timeout(120)

SERVICES = """
import asyncio, pathlib, sys, time
from raptor import service

HERE = pathlib.Path(__file__).parent

def gated():
    while not (HERE / "gate").exists():
        time.sleep(0.02)

@service(every="1h")
def thread():
    print("first line")
    gated()
    print("second line")
    print("no newline", end="")
    return "done"

@service(every="1h")
async def loop():
    print("first line", file=sys.stderr)
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.02)
    print("second line")
    print("no newline", end="")
    return "done"

@service(every="1h")
def quiet():
    return "nothing to say"

@service(every="1h")
def endless():
    for number in range(20_000):
        print("line", number)
"""

TOML = """
module = "services"

[services.command]
command = ["sh", "command.sh"]
"""

COMMAND = """
echo first line
until test -e gate; do sleep 0.02; done
echo second line
printf 'no newline'
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path, TOML, SERVICES)
    (tmp_path / "command.sh").write_text(COMMAND)
    yield made
    made.close()


@pytest.fixture(params=["alone", "node"])
def anywhere(request: pytest.FixtureRequest, project: Project) -> Project:
    if request.param == "node":
        project.start("main", "--interval", "1h").wait_for("raptor 0.1")
    return project


def begin(project: Project, *words: str) -> Process:
    process = Process([*RAPTOR, *words], project.folder, {})
    project.processes.append(process)
    return process


@pytest.mark.parametrize("service", ["thread", "loop", "command"])
def test_lines_are_shown_as_they_come_and_the_result_last(anywhere: Project, service: str) -> None:
    run = begin(anywhere, "run", service)
    run.wait_for("first line")
    assert not (anywhere.folder / "gate").exists()  # it cannot have ended
    (anywhere.folder / "gate").touch()
    assert run.end() == 0
    assert run.lines[:3] == ["first line", "second line", "no newline"]
    assert run.lines[3].startswith(f"{service} ✓ ok in")
    assert len(run.lines) == 4


def test_what_earlier_runs_printed_is_not_shown_again(anywhere: Project) -> None:
    (anywhere.folder / "gate").touch()
    for _ in range(2):
        assert anywhere.run("run", "thread", check=True).stdout == "first line\nsecond line\nno newline\n"
    assert anywhere.run("run", "quiet", check=True).stdout == ""


def test_json_has_the_output_in_its_answer_and_nowhere_else(anywhere: Project) -> None:
    (anywhere.folder / "gate").touch()
    answer = anywhere.json("run", "thread")
    assert (answer["outcome"], answer["tail"]) == ("ok", "first line\nsecond line\nno newline")


def test_a_long_output_is_shown_whole_up_to_what_the_file_keeps(project: Project) -> None:
    shown = project.run("run", "endless", check=True).stdout.splitlines()
    assert shown == [f"line {number}" for number in range(20_000)]


def test_where_no_log_can_be_written_the_end_of_the_output_is_shown(project: Project) -> None:
    (project.folder / "gate").touch()
    project.run("run", "quiet", check=True)
    (project.home / "logs").write_text("in the way")
    done = project.run("run", "thread", check=True)
    assert done.stdout == "first line\nsecond line\nno newline\n"


def test_ctrl_c_on_a_run_in_the_node_leaves_it_there(project: Project) -> None:
    project.start("main", "--interval", "1h").wait_for("raptor 0.1")
    run = begin(project, "run", "loop")
    run.wait_for("first line")
    run.signal(signal.SIGINT)
    run.wait_for("loop goes on in the node: raptor history loop shows its result")
    assert run.end() == 130


def test_a_reader_that_has_seen_enough_is_no_error(project: Project) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", *RAPTOR, "run", "endless"],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == "line 0\n"
    assert "Traceback" not in done.stderr
