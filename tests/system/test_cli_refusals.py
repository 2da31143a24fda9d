"""Bad input: one line that says what to do, on stderr, and the exit code of its kind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli import RAPTOR, Project, environment

pytestmark = pytest.mark.timeout(120)

# All is imported first: the interpreter itself may lie where only root can read.
AS_NOBODY = """
import asyncio.base_events, difflib, os, sys, sqlite3, tempfile, tomllib, uvloop, zoneinfo
import raptor.alone, raptor.embedded, raptor.glance, raptor.commands
import raptor.cli.foreground, raptor.cli.looking, raptor.cli.running, raptor.cli.screens, raptor.cli.overview
import raptor.cli.starting, raptor.runners.python, raptor.runners.command, raptor.cli.firstprocess
from raptor.cli.main import main
raptor.commands.load_all()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
main(sys.argv[1:])
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "project")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "oen"], 4, "no service named 'oen': did you mean 'one'"),
        (["schedule", "main", "twoo"], 4, "no service named 'twoo': did you mean 'two'?"),
        (["history", "brokn"], 4, "no service named 'brokn': did you mean 'broken'?"),
        (["why", "brokn"], 4, "did you mean 'broken'?"),
        (["status", "nightly"], 4, "no scheduler named 'nightly': `raptor status` lists them"),
        (["state", "dump", "service_timings"], 4, "did you mean 'service_timing'"),
        (["state", "dump", "service_timing", "nobody"], 4, "no row named 'nobody'"),
        (["state", "reset", "nobody"], 4, "no timing record named 'nobody'"),
        (["pause", "nobody"], 4, "no scheduler or service named 'nobody'"),
        (["start", "main", "--interval", "10"], 2, "a number without a unit; did you mean 10s or 10ms?"),
        (["start", "main", "--interval", "1 parsec"], 2, "unknown unit 'parsec'"),
        (["start", "main", "--grace", "soon"], 2, "not a duration; write 500ms, 90s, 1h30m"),
        (["start", "main", "--cycles", "0"], 2, "--cycles"),
        (["start"], 2, "name one scheduler, or give --all"),
        (["schedule", "main", "one=10"], 2, "a cron expression is one='cron 30 2 * * *'"),
        (["schedule", "main", "one=cron 99 * * * *"], 2, "bad minute; write 5 fields"),
        (["schedule", "main", "one=cron 0 0 30 2 *"], 2, "cron '0 0 30 2 *'"),
        (["next", "61 * * * *"], 2, "bad minute"),
        (["next", "@daily", "--tz", "Europe/Sofa"], 2, "did you mean Europe/Sofia"),
        (["why", "one", "--at", "25:00"], 2, "not understood; write 02:30"),
        (["stat"], 2, "no command named 'stat': did you mean"),
        (["status", "--wach"], 2, "--wach"),
        (["start", "../../etc"], 2, "name '../../etc': a name has 1 to 100 of the letters"),
        (["start", "[red]main[/red]"], 2, "name '[red]main[/red]'"),
        (["start", "a\x1b[31mb"], 2, r"name 'a\x1b[31mb'"),
        (["logs", "../../../etc/passwd"], 2, "name '../../../etc/passwd'"),
        (["status", "--home", "raptor.toml"], 6, "raptor.toml: Not a directory"),
        (["start", "main", "--home", "raptor.toml"], 6, "choose another with --home"),
        (["stop"], 3, "No node runs on this state directory: `raptor start NAME` starts one"),
        (["stop", "main"], 3, "No node runs"),
        (["tree"], 3, "No node runs"),
        (["reload"], 3, "No node runs"),
        (["start", "main", "-m", "servises"], 4, "no module named 'servises': did you mean 'services'?"),
        (["--config", "nowhere.toml", "status"], 2, "nowhere.toml: cannot be read"),
    ],
    ids=lambda value: " ".join(value).replace("\x1b", "ESC") if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_a_code(project: Project, words: list[str], code: int, said: str) -> None:
    done = project.run(*words)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("raptor: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('module = "services"\n[services.x\n', "raptor.toml:2: "),
        ("[services.x]\ncomand = []\n", "raptor.toml: services.x.comand: no such key: did you mean 'command'"),
        ('[services.x]\ncommand = ["a"]\nevery = 10\n', "raptor.toml: services.x.every: duration 10: a number without"),
        ('[services."../x"]\ncommand = ["a"]\n', "raptor.toml: services: name '../x'"),
        ('[schedulers.main]\ninterval = "soon"\n', "raptor.toml: schedulers.main.interval: "),
    ],
)
def test_a_wrong_file_is_told_with_its_place(project: Project, toml: str, said: str) -> None:
    (project.folder / "raptor.toml").write_text(toml)
    for words in (["status"], ["start", "main"], ["doctor"]):
        done = project.run(*words)
        assert done.returncode == (1 if words == ["doctor"] else 2)
        assert said in done.stdout + done.stderr


def test_a_module_that_fails_shows_its_traceback_and_nothing_is_lost(project: Project) -> None:
    project.ok("schedule", "main", "one")
    good = (project.folder / "services.py").read_text()
    (project.folder / "services.py").write_text(good + "\nraise RuntimeError('no database')\n")
    done = project.run("start", "main")
    assert done.returncode == 1
    assert "raptor: services did not import, and nothing of it was taken:" in done.stderr
    assert "services.py" in done.stderr
    assert "RuntimeError: no database" in done.stderr
    assert "raptor/cli" not in done.stderr  # the user's frames, not ours
    (project.folder / "services.py").write_text(good)
    assert "one" in project.ok("status", "main")


def test_a_stale_socket_stops_nobody(project: Project) -> None:
    project.ok("schedule", "main", "one")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(project.home / "control.sock"))
    assert "○ stopped" in project.ok("status")
    assert project.run("stop").returncode == 3
    node = project.start("main", "--cycles", "1")
    node.wait_for("cycle done: 1 ok")
    assert node.end() == 0


def test_what_keeps_the_tree_from_starting_is_said_without_the_tree(project: Project) -> None:
    project.ok("schedule", "main", "one")
    (project.home / "control.sock").mkdir()
    refused = project.run("start", "main")
    assert refused.returncode == 6
    assert refused.stderr.endswith("control.sock: Is a directory: `raptor doctor` looks what is wrong\n")


def test_a_home_with_a_long_path_works(tmp_path: Path) -> None:
    project = Project(tmp_path / ("long" * 30) / "project")
    project.ok("schedule", "main", "one")
    node = project.start("main", "--interval", "1h")
    node.wait_for("cycle done")
    assert "● running" in project.ok("status")
    assert project.run("stop").returncode == 0
    assert node.end() == 0


@pytest.mark.parametrize("words", [["status"], ["start", "main"], ["schedule", "main", "x", "--force"], ["stop"]])
def test_a_directory_of_somebody_else_is_refused(words: list[str]) -> None:
    if os.getuid() != 0:
        pytest.fail("this test becomes another user, and has to be run as root")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = Path(folder) / "home"
        made = subprocess.run(
            [*RAPTOR, "--home", str(home), "schedule", "main", "x=1h", "--force"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, *words, "--home", str(home)],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 6, done.stdout + done.stderr
    assert done.stderr.startswith("raptor: ")
    assert done.stderr.count("\n") == 1


def test_a_file_of_settings_that_may_not_be_read_is_refused() -> None:
    if os.getuid() != 0:
        pytest.fail("this test becomes another user, and has to be run as root")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        file = Path(folder) / "raptor.toml"
        file.touch(mode=0o600)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, "status", "--config", str(file)],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 6, done.stdout + done.stderr
    assert done.stderr == f"raptor: {file} cannot be read; run as its owner, or name another with --config\n"


def test_damage_is_refused_and_repaired(project: Project) -> None:
    node = project.start("main", "--interval", "1h")
    node.wait_for("raptor 0.1")
    project.ok("schedule", "main", "one", "two")
    node.wait_for("cycle done")
    node.signal(signal.SIGTERM)
    assert node.end() == 0
    assert "nothing is wrong" in project.run("state", "repair").stderr
    (project.home / "service_timing.sqlite").write_bytes(b"")
    refused = project.run("start", "main")
    assert refused.returncode == 6
    assert "raptor state repair" in refused.stderr
    doctor = project.run("doctor")
    assert doctor.returncode == 1
    assert "✗ wrong  damage" in doctor.stdout
    repaired = project.run("state", "repair")
    assert repaired.returncode == 0, repaired.stderr
    assert "lost: service_timing.sqlite was missing or empty" in repaired.stdout
    assert project.run("doctor").returncode == 0
    assert "✓ ok" in project.ok("doctor")


def test_a_full_pipe_or_a_reader_that_leaves_is_no_error(project: Project) -> None:
    words = " ".join([sys.executable, "-m", "raptor", "status"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | true"],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
