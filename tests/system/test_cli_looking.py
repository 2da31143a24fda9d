"""What commands show: the same data for people, for pipes and for programs."""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.system.cli import RAPTOR, Process, Project, environment, eventually

pytestmark = pytest.mark.timeout(120)

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "project")
    yield made
    made.close()


@pytest.fixture
def node(project: Project) -> Process:
    """A node after one cycle with a failure in it."""
    project.ok("schedule", "main", "one=24h", "two", "broken")
    process = project.start("main", "--interval", "1h")
    process.wait_for("gave up after 2 attempts")
    process.wait_for("cycle done")
    return process


def test_init_writes_a_project_that_runs(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    refused = project.run("init")
    assert refused.returncode == 6
    assert "raptor.toml is there already, and is left alone" in refused.stderr
    for name in ("raptor.toml", "services.py"):
        (project.folder / name).unlink()
    assert project.ok("init") == "wrote raptor.toml\nwrote services.py"
    process = project.start("main", "--interval", "10s", "--cycles", "1")
    process.wait_for("cycle done: 3 ok, 0 failed")
    assert process.end() == 0


@pytest.mark.spec("004-13", "R4-02")
def test_status_as_json_keeps_the_keys_of_the_original(project: Project, node: Process) -> None:
    status = project.json("status")
    assert RFC3339.fullmatch(status["now"])
    [main] = status["schedulers"]
    original = {"current_service", "remaining_services", "completed_count", "results"}
    periodic = {"periodic_enabled", "periodic_services", "periodic_interval_ms"}
    assert {"name", "state", "pid", "interval_s", "next_check", *original, *periodic} <= main.keys()
    assert (main["name"], main["state"], main["pid"], main["interval_s"]) == ("main", "running", node.pid, 3600.0)
    assert main["periodic_services"] == ["one", "two", "broken"]
    assert main["periodic_interval_ms"] == 3_600_000
    assert RFC3339.fullmatch(main["next_check"])
    services = {one["name"]: one for one in status["services"]}
    assert isinstance(services["one"]["last_run_timestamp"], int)
    assert services["one"]["every_s"] == 86400.0
    assert RFC3339.fullmatch(services["one"]["next_due"])
    assert services["broken"]["last_result"] == "failed"
    assert services["gated"]["scheduler"] is None


@pytest.mark.usefixtures("node")
def test_every_reading_command_has_a_versioned_json(project: Project) -> None:
    runs = project.json("history", "broken")["runs"]
    assert [(run["outcome"], run["attempt"]) for run in runs] == [("failed", 2), ("failed", 1)]
    assert all(RFC3339.fullmatch(run["start"]) and run["took_s"] >= 0 for run in runs)
    assert [run["service"] for run in project.json("history", "--failed", "-n", "1")["runs"]] == ["broken"]
    assert len(project.json("next", "30 2 * * *", "-n", "3")["times"]) == 3
    assert project.json("next", "one")["target"] == "one"
    assert {one["name"] for one in project.json("next")["services"]} >= {"one", "two"}
    why = project.json("why", "broken")
    assert (why["verdict"], len(why["runs"])) == ("failed", 2)
    assert project.json("tree")["tree"]["name"] == "node"
    assert project.json("config")["settings"][0]["name"] == "config"
    assert project.json("doctor")["ok"] is True
    assert project.json("state", "dump", "service_timing", "one")["tables"]["service_timing"]["one"]["interval_seconds"]
    assert project.json("logs")["logs"][0]["event"] == "started"
    assert project.json("run", "one")["outcome"] == "ok"
    assert project.json("schedule", "main", "one=24h")["running"] is True


@pytest.mark.usefixtures("node")
def test_screens_in_a_pipe_are_plain_and_whole(project: Project) -> None:
    for words in (["status"], ["next"], ["history"], ["tree"], ["config", "--explain"], ["doctor"], ["logs"]):
        shown = project.run(*words, COLUMNS="40", check=True).stdout
        assert "\x1b" not in shown
        assert not re.search("[│┃┏┌].*[│┃┓┐]$", shown, re.M)
        assert "…" not in shown
    status = project.ok("status")
    assert "SERVICE LAST RESULT LAST RUN TOOK NEXT RUN EVERY" in status
    assert re.search(r"^one ✓ ok .* ago .* tomorrow \d\d:\d\d(:\d\d)? \(in 24h\) 24h$", status, re.M)
    assert re.search(r"^broken ✗ failed", status, re.M)
    assert "gated never run - - not scheduled 1h" in status
    coloured = project.run("status", "--color", "always").stdout
    assert "\x1b[" in coloured


def test_why_tells_the_story_of_a_slot(project: Project, node: Process) -> None:
    said = project.ok("why", "broken", "--at", "now")
    assert "✗ failed, and was given up: ConnectionError: db refused" in said
    assert "attempt 1 began" in said
    assert "attempt 2 began" in said
    assert "✓ ran, and succeeded" in project.ok("why", "one", "--at", "1s ago")
    assert "not yet due: it runs at" in project.ok("why", "one", "--at", "tomorrow 12:00")


def test_logs_are_merged_and_followed(project: Project, node: Process) -> None:
    merged = project.ok("logs")
    assert "two | INFO two was here" in merged
    assert "broken ✗ failed in" in merged
    assert "INFO two was here" in project.ok("logs", "two", "--since", "1h")
    follower = Process([*RAPTOR, "logs", "-f"], project.folder, {})
    project.processes.append(follower)
    follower.wait_for("cycle done: 0 ok, 1 failed, 1 retried")
    project.ok("run", "two")
    follower.wait_for("two | INFO two was here")
    follower.signal(signal.SIGINT)
    assert follower.end() == 130


def test_run_shows_output_and_result_and_exits_by_it(project: Project) -> None:
    good = project.run("run", "two")
    assert good.returncode == 0
    assert good.stdout == "INFO two was here\n"
    assert re.fullmatch(r"two  ✓ ok in \S+ m?s\n", good.stderr)
    bad = project.run("run", "broken")
    assert bad.returncode == 1
    assert "✗ failed in" in bad.stderr
    assert "ConnectionError: db refused" in bad.stderr
    assert "never run" in project.ok("status")  # its timing is left alone
    assert len(project.json("history")["runs"]) == 2


def test_a_run_interrupted_by_hand_is_130(project: Project) -> None:
    process = Process([*RAPTOR, "run", "gated"], project.folder, {})
    project.processes.append(process)
    eventually(lambda: project.ran == ["gated"], "it never ran")
    process.signal(signal.SIGINT)
    assert process.end() == 130


def test_pause_and_resume_reach_the_running_scheduler(project: Project, node: Process) -> None:
    assert "paused one in main: raptor resume one" in project.run("pause", "one").stderr
    assert "one ✓ ok" in project.ok("status", "main")
    assert " paused 24h" in project.ok("status", "main")
    assert "resumed one in main" in project.run("resume", "one").stderr
    project.run("pause", "main", "--note", "maintenance")
    assert "◑ paused" in project.ok("status")
    project.run("resume", "main")
    assert "● running" in project.ok("status")


@pytest.mark.spec("R4-12", "004-31")
def test_a_reset_service_is_due_and_its_record_stays(project: Project, node: Process) -> None:
    before = project.ran.count("one")
    assert project.run("state", "reset", "one").stderr == "one is due now\n"
    project.ok("schedule", "main", "one=24h")
    eventually(lambda: project.ran.count("one") == before + 1, "it did not run again")
    refused = project.run("state", "reset", "--scheduler", "main")
    assert refused.returncode == 5
    with sqlite3.connect(f"file:{project.home}/service_timing.sqlite?mode=ro", uri=True) as table:
        assert table.execute("SELECT count(*) FROM service_timing WHERE key = 'one'").fetchone() == (1,)
    table.close()


def test_the_home_may_be_named_anywhere(project: Project, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    project.ok("--home", str(home), "schedule", "main", "one")
    assert "main ○ stopped" in project.ok("status", "--home", str(home))
    assert "main ○ stopped" in project.ok("status", RAPTOR_HOME=str(home))
    assert "main ○" not in project.ok("status")
    explained = project.ok("config", "--explain", "--home", str(home))
    assert f"home {home} --home" in explained


PROGRAMS = """
[services.one]
command = ["true"]
every = "1h"

[services.two]
command = ["true"]
cron = "30 2 * * *"

[schedulers.main]
services = ["one", "two"]
"""
LOADED = """
import sys
from raptor.cli.main import main
main(sys.argv[1:], standalone_mode=False)
print("loaded:", *sys.modules)
"""


@pytest.mark.parametrize("words", [["status"], ["next"], ["config", "--explain"], ["state", "dump"]], ids=" ".join)
def test_whoever_only_looks_loads_no_engine(tmp_path: Path, words: list[str]) -> None:
    project = Project(tmp_path / "project", toml=PROGRAMS, services="")
    project.ok("schedule", "main", "one", "two")
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.partition("loaded:")[2].split())
    assert "raptor.glance" in loaded  # it did look
    assert not loaded & {"asyncio", "apscheduler", "raptor.actor", "raptor.runners", "raptor.state.files"}


def test_an_interval_is_previewed_like_a_cron_expression(project: Project) -> None:
    times = [datetime.fromisoformat(at) for at in project.json("next", "10m", "-n", "3")["times"]]
    assert [later - earlier for earlier, later in pairwise(times)] == [timedelta(minutes=10)] * 2
    assert "no service named '10x'" in project.run("next", "10x").stderr


def test_times_are_shown_in_the_zone_that_was_asked_for(project: Project) -> None:
    assert "02:30:00 EET" in project.ok("next", "30 2 1 1 *", "--tz", "Europe/Sofia")
    asked = project.run("next", "30 2 1 1 *", "--tz", "Europe/Sofia")
    assert "in Europe/Sofia" in asked.stderr


def test_units_and_completions_are_printed(project: Project) -> None:
    unit = project.ok("systemd-unit", "main", "--interval", "1h")
    assert "Type=notify" in unit
    assert f"--home {project.home}" in unit
    assert "start main --grace 30s --interval 1h" in unit
    for shell in ("bash", "zsh", "fish"):
        assert "_RAPTOR_COMPLETE" in project.ok("completion", shell)
    completed = project.run(COMP_WORDS="raptor sta", COMP_CWORD="1", _RAPTOR_COMPLETE="bash_complete")
    assert {"plain,start", "plain,status", "plain,state"} <= set(completed.stdout.split())


def test_status_starts_fast(project: Project, node: Process) -> None:
    """Within 3x of importing click and rich, both measured as processor time here and now."""

    def cost(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, cwd=project.folder, env=environment(), capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    script = os.path.join(os.path.dirname(sys.executable), "raptor")
    rounds = [(cost(script, "status"), cost(sys.executable, "-c", "import click, rich")) for _ in range(7)]
    ratio = min(status for status, _ in rounds) / min(floor for _, floor in rounds)
    assert ratio <= 3.0, f"{ratio:.2f}x"


def test_every_command_and_option_is_documented() -> None:
    from raptor.cli.main import COMMANDS, main

    page = (Path(__file__).resolve().parents[2] / "docs/commands.md").read_text(encoding="utf-8")
    import click

    context = click.Context(main)
    for name in COMMANDS:
        found = main.get_command(context, name)
        assert found is not None
        assert found.help, name
        assert f"`raptor {name}" in page, name
        commands = [found, *(found.commands.values() if isinstance(found, click.Group) else ())]
        for one in commands:
            for option in one.params:
                if isinstance(option, click.Option) and not option.hidden:
                    assert option.help, f"{name} {option.name}"
                    assert any(word in page for word in option.opts), f"{name} {option.opts}"


def test_the_commands_of_the_readme_work_as_they_stand(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    lines = [line.partition(" #")[0].split() for block in blocks for line in block.splitlines()]
    commands = [words[1:] for words in lines if words[:1] == ["raptor"]]
    assert [words[0] for words in commands[:2]] == ["init", "start"]
    project = Project(tmp_path / "p")
    for file in ("raptor.toml", "services.py"):
        (project.folder / file).unlink()
    project.ok(*commands[0])
    node = project.start(*commands[1][1:])
    try:
        node.wait_for("cycle done: 3 ok, 0 failed")
        for words in commands[2:]:
            project.ok(*words)
        assert node.end() == 0
    finally:
        project.close()
