"""start, schedule, status, stop over real processes: two terminals, signals, kill -9, the background."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cli import RAPTOR, SERVICES, Project, environment, eventually

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "a project")
    yield made
    made.close()


@pytest.mark.spec("004-33", "004-34", "004-35", "004-12")
def test_a_second_terminal_schedules_looks_and_stops(project: Project) -> None:
    node = project.start("main", "--interval", "1h")
    header = node.wait_for("raptor 0.1")
    assert "scheduler main · checks every 1h" in header
    assert f"state {project.home}" in header
    assert f"pid {node.pid}" in header
    node.wait_for("main has no services yet: raptor schedule main one")
    scheduled = project.ok("schedule", "main", "one", "two=24h")
    assert f"scheduled on main (running, pid {node.pid})" in scheduled
    assert "one due now (never run)" in scheduled
    node.wait_for("one ▶ started (attempt 1)")
    assert "✓ ok in" in node.wait_for("one ✓")
    node.wait_for("cycle done: 2 ok, 0 failed · next check")
    status = project.ok("status")
    assert "main ● running" in status
    again = project.ok("schedule", "main", "one", "two=24h")
    assert "two not due: ran" in again
    assert "every 24h → " in again
    stopped = project.run("stop", "main")
    assert (stopped.returncode, stopped.stderr) == (0, "stopped main\n")
    assert node.end() == 0  # the last scheduler takes the node with it
    assert "○ stopped" in project.ok("status")
    assert project.ran == ["one", "two"]


def test_what_is_scheduled_without_a_node_runs_at_the_next_start(project: Project) -> None:
    said = project.ok("schedule", "main", "three", "one=24h")
    assert "scheduled on main (not running: raptor start main runs it)" in said
    node = project.start("main", "--interval", "1h", "--cycles", "1")
    node.wait_for("cycle done: 2 ok")
    assert node.end() == 0
    assert project.ran == ["three", "one"]


@pytest.mark.spec("004-21", "004-22", "X4-1", "X4-2", "X4-3")
def test_after_kill_9_the_cycle_goes_on_and_the_screen_says_so(project: Project) -> None:
    project.ok("schedule", "main", "one", "gated", "two")
    node = project.start("main", "--interval", "1h")
    node.wait_for("gated ▶ started")
    assert "◌" not in project.ok("status")
    node.signal(signal.SIGKILL)
    node.end()
    cut = project.ok("status")
    assert "main ◌ interrupted 1/3 done" in cut
    assert "Hint: raptor start main finishes the cycle" in cut
    (project.folder / "gate").touch()
    node = project.start("main")
    assert "checks every 1h" in node.wait_for("raptor 0.1")
    resuming = node.wait_for("↻ resuming the cycle of ")
    assert resuming.endswith("1 of 3 done before the crash (one), 2 left")
    node.wait_for("cycle done: 3 ok")
    assert project.ran == ["one", "gated", "gated", "two"]
    node.signal(signal.SIGTERM)
    assert node.end() == 0


def test_a_scheduler_that_runs_already_is_refused_with_its_process(project: Project) -> None:
    node = project.start("main", "--interval", "1h")
    node.wait_for("raptor 0.1")
    refused = project.run("start", "main")
    assert refused.returncode == 5
    assert f"raptor: scheduler main already runs (pid {node.pid}): raptor status main shows it" in refused.stderr
    node.signal(signal.SIGTERM)
    assert node.end() == 0


def test_another_scheduler_joins_the_node_and_ctrl_c_leaves_it_running(project: Project) -> None:
    node = project.start("main", "--interval", "1h")
    node.wait_for("raptor 0.1")
    project.ok("schedule", "night", "two=1s")
    follower = project.start("night", "--interval", "1s")
    follower.wait_for(f"started night on the node that runs here (pid {node.pid})")
    follower.wait_for("two ✓ ok in")
    follower.signal(signal.SIGINT)
    follower.wait_for(f"detached: night goes on in process {node.pid}; raptor stop night stops it")
    assert follower.end() == 0
    running = {one["name"]: one["pid"] for one in project.json("status")["schedulers"]}
    assert running == {"main": node.pid, "night": node.pid}
    node.signal(signal.SIGINT)
    node.wait_for("stopping main, night")
    assert node.end() == 0


def test_a_follower_ends_with_the_node(project: Project) -> None:
    node = project.start("main", "--interval", "1h")
    node.wait_for("raptor 0.1")
    follower = project.start("night", "--interval", "1h")
    follower.wait_for("started night on the node")
    assert project.run("stop").returncode == 0
    assert node.end() == 0
    follower.wait_for(f"the node (pid {node.pid}) has stopped")
    assert follower.end() == 0


def test_ctrl_c_lets_the_current_service_finish(project: Project) -> None:
    project.ok("schedule", "main", "gated", "two")
    node = project.start("main", "--interval", "1h")
    node.wait_for("gated ▶ started")
    node.signal(signal.SIGINT)
    node.wait_for("stopping main: gated may finish within 30s")
    (project.folder / "gate").touch()
    node.wait_for("gated ✓ ok")
    assert node.end() == 0
    assert "two" not in project.ran
    node = project.start("main")
    assert node.wait_for("↻ resuming").endswith("1 of 2 done before the stop (gated), 1 left")
    node.wait_for("two ✓ ok")
    node.signal(signal.SIGINT)
    assert node.end() == 0


def test_the_second_signal_breaks_it_off(project: Project) -> None:
    project.ok("schedule", "main", "gated")
    node = project.start("main", "--interval", "1h")
    node.wait_for("gated ▶ started")
    node.signal(signal.SIGINT)
    node.wait_for("stopping main: gated")
    node.signal(signal.SIGINT)
    assert node.end() == 130
    assert "gated ◌ interrupted" in node.text


def test_a_grace_that_is_over_breaks_it_off(project: Project) -> None:
    project.ok("schedule", "main", "gated")
    node = project.start("main", "--interval", "1h", "--grace", "100ms")
    node.wait_for("gated ▶ started")
    node.signal(signal.SIGTERM)
    node.wait_for("gated ◌ interrupted")
    assert node.end() == 0


def test_stop_now_breaks_off_what_runs(project: Project) -> None:
    project.ok("schedule", "main", "gated")
    node = project.start("main", "--interval", "1h")
    node.wait_for("gated ▶ started")
    assert project.run("stop", "--now").stderr == f"stopped the node (pid {node.pid})\n"
    assert node.end() == 0
    assert "gated ◌ interrupted" in node.text


def test_failures_show_their_retries_and_their_end(project: Project) -> None:
    project.ok("schedule", "main", "broken", "one")
    node = project.start("main", "--interval", "1h", "--cycles", "2")
    failed = node.wait_for("✗ failed in")
    assert ": ConnectionError: db refused" in failed
    assert "→ retry 2/2 in" in failed
    node.wait_for("cycle done: 1 ok, 1 failed, 1 to retry · next check")
    node.wait_for("broken ▶ started (attempt 2/2)")
    assert "→ gave up after 2 attempts; next: " in node.wait_for("✗ failed in")
    assert node.end() == 1  # --cycles: the last one had a failure
    status = project.ok("status")
    assert "✗ failed" in status
    assert "Hint: raptor logs broken --failed" in status
    shown = project.ok("logs", "broken", "--failed")
    assert "ConnectionError: db refused" in shown
    assert shown.count("== broken") == 2


def test_detach_returns_when_the_node_answers(project: Project) -> None:
    project.ok("schedule", "main", "one", "two=1h")
    started = project.run("start", "main", "--interval", "1h", "--detach")
    assert started.returncode == 0, started.stderr
    assert started.stderr.startswith("started main in the background (pid ")
    [main] = project.json("status")["schedulers"]
    assert main["state"] == "running"
    assert main["pid"] != os.getpid()
    assert os.getsid(main["pid"]) == main["pid"]
    eventually(lambda: "cycle done: 2 ok" in project.ok("logs"), "the log never told of the cycle")
    eventually(lambda: "| printed by one" in project.ok("logs"), "what was printed is not in the log")
    assert project.run("stop").returncode == 0
    assert project.run("status", "main").returncode == 0
    assert project.run("stop").returncode == 3


def test_what_keeps_a_node_from_starting_is_said_before_detach_returns(project: Project) -> None:
    (project.folder / "services.py").write_text("import nothing_of_that_name\n")
    refused = project.run("start", "main", "--interval", "1h", "--detach")
    assert refused.returncode == 1
    assert "raptor: services did not import" in refused.stderr
    assert "No module named 'nothing_of_that_name'" in refused.stderr


def test_start_all_brings_every_scheduler_back(project: Project) -> None:
    project.ok("schedule", "main", "one=1h")
    project.ok("schedule", "night", "two=1h")
    node = project.start("--all")
    node.wait_for("schedulers main (checks when something is due), night (")
    node.wait_for("main/one")
    node.wait_for("night/two")
    node.signal(signal.SIGTERM)
    assert node.end() == 0


def test_starts_at_the_same_moment_have_one_winner(project: Project) -> None:
    starts = [project.start("main", "--interval", "1h") for _ in range(6)]
    pid = eventually(
        lambda: next((one["pid"] for one in project.json("status")["schedulers"] if one["pid"]), None), "nobody won"
    )
    losers = [process for process in starts if process.pid != pid]
    assert [process.end() for process in losers] == [5] * 5
    [winner] = [process for process in starts if process.pid == pid]
    winner.signal(signal.SIGTERM)
    assert winner.end() == 0


def test_hangup_reads_the_settings_anew_and_a_wrong_file_changes_nothing(project: Project) -> None:
    project.ok("schedule", "main", "one=1h")
    node = project.start("main")
    node.wait_for("cycle done")
    file = project.folder / "raptor.toml"
    file.write_text('module = "services"\n[services.disk]\ncommand = ["true"]\n')
    node.signal(signal.SIGHUP)
    node.wait_for("reloaded: 6 services")
    file.write_text("module = \n")
    node.signal(signal.SIGHUP)
    node.wait_for("not reloaded, nothing has changed")
    refused = project.run("reload")
    assert refused.returncode == 2
    file.write_text('module = "services"\n')
    assert "disk" in project.ok("status")
    assert project.run("reload").stderr.startswith("reloaded: 5 services")
    assert "disk" not in project.ok("status")
    node.signal(signal.SIGTERM)
    assert node.end() == 0


def test_a_reload_reads_the_modules_of_the_command_line_anew(project: Project) -> None:
    module = project.folder / "more.py"
    module.write_text('from raptor import service\n\n@service(every="1h")\ndef extra():\n    return "old"\n')
    node = project.start("main", "--interval", "1h", "-m", "more")
    node.wait_for("raptor schedule main extra")
    project.ok("schedule", "main", "extra")
    node.wait_for("✓ ok in")
    module.write_text(module.read_text().replace("old", "a new one"))
    assert project.run("reload").stderr.startswith("reloaded: 1 services")
    assert project.json("run", "extra")["info"] == "a new one"
    module.write_text("import nothing_of_that_name\n")
    refused = project.run("reload")
    assert refused.returncode == 1
    assert "more did not import" in refused.stderr
    assert project.json("run", "extra")["info"] == "a new one"
    node.signal(signal.SIGTERM)
    assert node.end() == 0


def test_systemd_is_told_of_ready_life_and_stop(project: Project, tmp_path: Path) -> None:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.settimeout(30)
    heard.bind(str(tmp_path / "notify"))
    with heard:
        node = project.start("main", "--interval", "1h", NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="200000")
        first = heard.recv(4096).decode()
        assert first.startswith("READY=1\nSTATUS=running main")
        assert [heard.recv(4096) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        node.signal(signal.SIGTERM)
        while (said := heard.recv(4096)) != b"STOPPING=1":
            assert said == b"WATCHDOG=1"
    assert node.end() == 0


def test_json_lines_are_for_programs(project: Project) -> None:
    thread = 'import threading; threading.Thread(target=print, args=("printed by a thread",)).start()'
    text = SERVICES.replace('print("printed by one")', f'print("printed by one"); {thread}')
    (project.folder / "services.py").write_text(text)
    project.ok("schedule", "main", "one=1h")
    node = project.start("main", "--log-format", "json", "--cycles", "1")
    assert node.end() == 0
    events = [json.loads(line) for line in node.lines]
    assert [event["event"] for event in events if event["event"].startswith("service")] == [
        "service_started",
        "service_ended",
    ]
    assert all(event["at"].endswith("Z") for event in events)
    assert "printed by one\n" in (project.home / "logs" / "one.log").read_text()  # in its output, not among the JSON
    assert "printed by a thread" in [event.get("text") for event in events]  # and for the node, as an event
    ended = next(event for event in events if event["event"] == "service_ended")
    assert ended["outcome"] == "ok"
    assert ended["took_s"] >= 0


@pytest.mark.skipif(sys.platform != "linux", reason="process namespaces are Linux's")
def test_as_process_1_it_reaps_and_stops_in_order(project: Project) -> None:
    # As in a container: process 1 of its own namespace.
    probe = subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.fail(f"unshare --pid needs root: {probe.stderr.decode()}")
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(0.2)\n"
    (project.folder / "orphan.py").write_text(script)
    (project.folder / "raptor.toml").write_text(
        f'module = "services"\n[services.orphan]\ncommand = ["{sys.executable}", "orphan.py"]\nevery = "1h"\n'
    )
    project.ok("schedule", "main", "orphan")
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", *RAPTOR, "start", "main", "--cycles", "1"],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cycle done: 1 ok" in done.stdout
