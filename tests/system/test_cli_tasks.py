"""put, work, tasks, task, wait, cancel, retry, dead, drop, queues over real processes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from raptor.client import ask
from tests.system.cli import RAPTOR, Process, Project, environment, eventually, squeeze

pytestmark = pytest.mark.timeout(180)

SERVICES = '''
import asyncio, pathlib
from raptor import service

HERE = pathlib.Path(__file__).parent

def note(name):
    with open(HERE / "ran", "a") as out:
        out.write(name + "\\n")

@service
def add(a: int, b: int = 2):
    note(f"add{a}")
    print("adding", a, b)
    return {"sum": a + b, "at": 5}

@service
async def quick(n: int = 0):
    return n

@service
async def gated():
    """Runs until the file `gate` is there."""
    note("gated")
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.02)
    return "open"

@service(max_attempts=1)
def broken(why: str = "db refused"):
    note("broken")
    raise ConnectionError(why)

@service(queue="mail")
def letter(to: str):
    note(to)

@service
async def parent(ctx):
    await ctx.put("add", {"a": 7})

@service(every="1h")
async def hourly():
    note("hourly")
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.02)
'''


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path / "a project", services=SERVICES)
    yield made
    made.close()


def work(project: Project, *words: str) -> Process:
    process = Process([*RAPTOR, "work", *words], project.folder, {})
    project.processes.append(process)
    return process


def node(project: Project, *words: str) -> Process:
    process = work(project, *words)
    process.wait_for("raptor 0.1")
    return process


def put(project: Project, *words: str) -> int:
    return int(project.json("put", *words)["id"])


def shown(project: Project, id: int) -> dict[str, Any]:
    return project.json("task", str(id))


def state(project: Project, id: int) -> str:
    return str(shown(project, id)["state"])


def test_what_is_put_without_a_node_waits_for_work(project: Project) -> None:
    said = project.run("put", "add", "a=3", check=True)
    assert said.stdout == "put as task 1 on queue default, due now\n"
    assert said.stderr == "no node runs here: raptor work runs what is due\n"
    assert "1 add ● ready" in project.ok("tasks")
    later = put(project, "add", "a=4", "--in", "30m")
    burst = work(project, "--burst")
    assert "all queues · 100 tasks at a time" in burst.wait_for("raptor 0.1")
    burst.wait_for("add #1 ▶ started (attempt 1/3)")
    burst.wait_for("add #1 ✓ ok in ")
    assert burst.end() == 0
    assert project.ran == ["add3"]
    done = shown(project, 1)
    assert (done["state"], done["data"], done["output"]) == ("done", {"a": 3, "b": 2}, {"sum": 5, "at": 5})
    assert done["ended"].endswith("Z")  # a moment of ours; the one in the output is theirs
    assert state(project, later) == "delayed"
    assert "✓ done" in project.ok("task", "1")
    assert '{"sum": 5, "at": 5}' in project.ok("task", "1")


def test_a_put_reaches_the_running_node_at_once(project: Project) -> None:
    running = node(project)
    said = project.run("put", "add", "--data", '{"a": 1}', "--wait", check=True)
    assert json.loads(said.stdout) == {"sum": 3, "at": 5}
    assert "add ✓ done in " in squeeze(said.stderr)
    running.wait_for("add #1 ✓ ok in ")
    assert "no node" not in project.run("put", "gated").stderr
    running.wait_for("gated #2 ▶ started")
    late = project.run("wait", "2", "--timeout", "100ms")
    assert (late.returncode, late.stderr) == (124, "raptor: task 2 has not ended within 0.1 s\n")
    assert project.run("put", "gated", "--wait-for", "100ms").returncode == 124
    failed = project.run("put", "broken", "--wait")
    assert failed.returncode == 1
    assert "✗ dead in" in failed.stderr
    assert "failed: ConnectionError: db refused" in failed.stderr
    waiting = Process([*RAPTOR, "wait", "2"], project.folder, {})
    project.processes.append(waiting)
    eventually(lambda: is_waited_for(waiting), "it did not ask")
    waiting.signal(signal.SIGINT)
    assert (waiting.end(), waiting.text) == (130, "task 2 goes on: raptor task 2 shows it")
    (project.folder / "gate").touch()
    waited = project.run("wait", "2", check=True)
    assert waited.stdout == "open\n"
    assert project.json("wait", "2")["output"] == "open"
    assert "adding 1 2" in project.ok("logs", "add")
    assert "add #1 ✓ ok in" in project.ok("logs")


def is_waited_for(process: Process) -> bool:
    """Whether it sits on a socket: it has asked, and has no answer yet."""
    try:
        links = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
    except OSError:
        return False  # a descriptor was closed meanwhile
    return any(link.startswith("socket:") for link in links)


def test_data_come_as_json_from_a_file_from_a_pipe_or_field_by_field(project: Project) -> None:
    (project.folder / "data.json").write_text('{"a": 1}')
    put(project, "add", "--data", "@data.json")
    piped = subprocess.run(
        [*RAPTOR, "put", "add", "--data", "-"], cwd=project.folder, env=environment(), input='{"a": 2}', text=True,
        check=True, capture_output=True,
    )  # fmt: skip
    assert "put as task 2" in piped.stdout
    put(project, "letter", "to=a@b=c")
    found = {task["id"]: task["data"] for task in project.json("tasks")["tasks"]}
    assert found == {1: {"a": 1, "b": 2}, 2: {"a": 2, "b": 2}, 3: {"to": "a@b=c"}}
    for words, problem in {
        ("--data", '{"a":\n 1;}'): "--data: not JSON: Expecting ',' delimiter at line 2, column 3",
        ("--data", "hello"): "--data: not JSON: Expecting value at line 1, column 1; a text stands in quotes",
        ("--data", "NaN"): "--data: not JSON: NaN is no number of JSON",
        ("--data", "@none"): "--data: none: No such file or directory",
        ("--data", "{}", "a=1"): "give one of --data and NAME=VALUE",
        ("a",): "'a': data are given as NAME=VALUE, or with --data",
        ("a=x",): "data: Expected `int`, got `str` - at `$.a`",
        ("c=1",): "data: ",
    }.items():
        refused = project.run("put", "add", *words)
        assert refused.returncode == 2, words
        assert problem in refused.stderr, words
    assert len(project.json("tasks")["tasks"]) == 3


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["put", "addd"], 4, "no service named 'addd': did you mean 'add'?"),
        (["put", "add", "a=1", "--in", "30"], 2, "in: "),
        (["put", "add", "a=1", "--in", "1m", "--at", "12:51"], 2, "give one of `at` and `in`"),
        (["put", "add", "a=1", "--at", "soon"], 2, "time 'soon': not understood; write 02:30, yesterday 02:30"),
        (["put", "gated", "a=1"], 2, "the service takes no data: have its function take parameters, or `ctx`"),
        (["put", "add", "a=1", "--cron", "every day"], 2, "cron"),
        (["put", "add", "a=1", "--every", "10m", "--cron", "@daily"], 2, "give one of `cron` and `every`"),
        (["put", "add", "a=1", "--timezone", "UTC"], 2, "timezone: goes with cron"),
        (["put", "add", "a=1", "--anchor", "end"], 2, "anchor: goes with every"),
        (["put", "add", "a=1", "--priority", "10"], 2, "not in the range 0<=x<=9"),
        (["put", "add", "a=1", "--max-attempts", "many"], 2, "max_attempts: "),
        (["put", "add", "a=1", "--key-for", "1h"], 2, "key_for: goes with key"),
        (["put", "add", "a=1", "--queue", "a b"], 2, "a b"),
        (["put", "add", "a=1", "--wait"], 3, "no node runs here that would run it: `raptor work` starts one"),
        (["wait", "1"], 3, ""),
        (["task", "99"], 4, "no task named '99': `raptor tasks` lists them"),
        (["task", "x"], 2, "'x' is not a valid integer"),
        (["task", str(2**63)], 2, "not in the range"),
        (["cancel", "99"], 4, "no task named '99'"),
        (["cancel"], 2, "ID"),
        (["retry"], 2, "name tasks by their ids, or give --all"),
        (["retry", "1", "--all"], 2, "name tasks by their ids, or give --all"),
        (["retry", "1"], 2, "task 1 is ready: only one that has ended can be retried"),
        (["drop", "1", "--queue", "default"], 2, "--queue and --service go with --all"),
        (["drop", "99"], 4, "no task named '99'"),
        (["tasks", "--state", "sleeping"], 2, "sleeping"),
        (["tasks", "--service", "addd"], 4, "no service named 'addd': did you mean 'add'?"),
        (["put", "add", "a=1", "--queue", "mial"], 4, "no queue named 'mial': did you mean 'mail'?"),
        (["dead", "--queue", "mial"], 4, "no queue named 'mial': did you mean 'mail'?"),
        (["retry", "--all", "--queue", "mial"], 4, "no queue named 'mial'"),
        (["drop", "--all", "--service", "addd"], 4, "no service named 'addd'"),
        (["queues", "defualt"], 4, "no queue named 'defualt': did you mean 'default'?"),
        (["queues", "--rate", "1/s"], 2, "name the queue that is to be set"),
        (["queues", "default", "--pause"], 2, "`raptor pause default` holds a queue"),
        (["queues", "--resume"], 2, "`raptor resume NAME` lets it go on"),
        (["queues", "default", "--rate", "fast"], 2, "rate: so many starts in a time"),
        (["queues", "default", "--concurrency", "0"], 2, "concurrency: a whole number from 1, not 0"),
        (["queues", "default", "--lease", "60"], 2, "60"),
        (["pause", "nothing"], 4, "no scheduler or service named 'nothing'"),
        (["pause", "defalt"], 4, "no scheduler, service or queue named 'defalt': did you mean 'default'?"),
        (["pause", "letter"], 4, "no scheduler lists that service; `raptor pause mail` holds the queue of its tasks"),
        (["work", "a b"], 2, "a b"),
        (["work", "--processors", "0"], 2, "processors"),
        (["work", "--metrics", "9464"], 2, "--metrics: a host and a port such as 127.0.0.1:9464 are"),
        (["work", "--grace", "5"], 2, "5"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_changes_nothing(
    words: list[str], code: int, problem: str, standing: Project
) -> None:
    refused = standing.run(*words)
    assert (refused.returncode, problem in refused.stderr) == (code, True), refused.stderr
    assert refused.stderr.startswith("raptor: ")
    assert refused.stdout == ""
    with closing(sqlite3.connect(f"file:{standing.home}/raptor.sqlite?mode=ro", uri=True)) as file:
        assert file.execute("SELECT id, state FROM task").fetchall() == [(1, "ready")]
        assert file.execute("SELECT count(*) FROM lines").fetchone() == (0,)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one task that waits."""
    made = Project(tmp_path_factory.mktemp("standing"), services=SERVICES)
    made.ok("put", "add", "a=1")
    return made


def test_what_nobody_can_run_is_told_as_not_run(project: Project) -> None:
    put(project, "nobody", "--force")
    burst = work(project, "--burst")
    line = burst.wait_for("nobody #1 ")
    assert "✗ not run: there is no service nobody here → dead: unknown service; raptor task 1" in line
    assert burst.end() == 1


def test_a_time_that_has_passed_is_due_now_and_that_is_said(project: Project) -> None:
    said = project.ok("put", "quick", "--at", "2001-02-03 04:05")
    assert said == "put as task 1 on queue default, due now (2001-02-03 04:05 has passed)"
    assert project.ok("put", "quick", "--at", "now") == "put as task 2 on queue default, due now"


def test_a_key_that_is_held_is_said(project: Project) -> None:
    project.ok("put", "add", "a=1", "--key", "k", "--in", "1h")
    again = project.ok("put", "add", "a=2", "--key", "k")
    assert again.startswith("already there: task 1 on queue default, due in 1h (")
    assert again.endswith("nothing was put")
    assert project.ok("put", "add", "a=3", "--key", "k", "--replace") == "replaced: task 1 on queue default, due now"
    assert [(task["id"], task["data"]["a"]) for task in project.json("tasks", "--key", "k")["tasks"]] == [(1, 3)]
    project.ok("put", "quick", "--key", "q", "--key-for", "1h")
    assert work(project, "--burst").end() == 0
    assert "already there: task 2 on queue default, done" in project.ok("put", "quick", "--key", "q")


def test_one_that_repeats_says_so_and_comes_again(project: Project) -> None:
    assert project.ok("put", "quick", "--every", "10m").endswith("due now, then every 10m")
    nightly = project.ok("put", "quick", "--cron", "0 2 * * *", "--timezone", "Europe/Sofia")
    assert nightly.endswith("then 0 2 * * * in Europe/Sofia")
    burst = work(project, "--burst")
    assert "next: " in burst.wait_for("quick #1 ✓ ok")
    assert burst.end() == 0
    (again,) = [task for task in project.json("tasks", "--state", "delayed")["tasks"] if task["parent"] == 1]
    assert again["timing"]["every_s"] == 600
    assert "repeats every 10m" in project.ok("task", str(again["id"]))
    assert "repeats 0 2 * * * in Europe/Sofia" in project.ok("task", "2")
    project.ok("cancel", str(again["id"]), "2")
    assert project.json("tasks", "--state", "delayed")["tasks"] == []


def test_a_time_is_read_in_the_zone_of_the_terminal(project: Project) -> None:
    project.ok("put", "quick", "--at", "2029-07-01 12:51", "--tz", "Europe/Sofia")
    assert shown(project, 1)["due"] == "2029-07-01T09:51:00Z"


def test_a_task_that_runs_can_be_cancelled(project: Project) -> None:
    running = node(project)
    put(project, "gated")
    running.wait_for("gated #1 ▶ started")
    assert "1 gated ▶ taken" in project.ok("tasks")
    assert project.ok("cancel", "1") == "task 1 runs, and is broken off"
    running.wait_for("gated #1 ○ cancelled")
    again = project.run("cancel", "1")
    assert (again.returncode, again.stderr) == (1, "task 1 had ended: it is cancelled\n")
    waits = put(project, "gated", "--in", "1h")
    assert project.ok("cancel", str(waits), "--reason", "not needed") == f"task {waits} is cancelled"
    running.wait_for(f"gated #{waits} ○ cancelled: not needed")
    assert "○ cancelled: not needed" in project.ok("task", str(waits))
    assert project.json("queues")["queues"][0]["cancelled"] == 2


def test_dead_ones_are_listed_retried_and_dropped(project: Project) -> None:
    put(project, "broken")
    put(project, "broken", "--queue", "other", "--force")
    burst = work(project, "--burst")
    assert "→ dead; raptor task 1" in burst.wait_for("broken #1 ✗ failed")
    assert burst.end() == 1  # as `run` does
    listed = project.run("dead", check=True)
    assert "1 broken default" in squeeze(listed.stdout)
    assert "1/1 failed ConnectionError: db refused" in squeeze(listed.stdout)
    assert listed.stderr == "Hint: raptor task 2, raptor retry 2 or --all, raptor drop 2 or --all\n"
    status = project.ok("status")
    assert "default ● open 1 dead" in status
    assert "Hint: raptor dead" in status
    assert project.ok("retry", "1") == "task 1 is ready again"
    assert work(project, "--burst").end() == 1
    life = project.ok("task", "1")
    assert "ConnectionError: db refused" in life
    assert project.ran.count("broken") == 3
    assert project.ok("retry", "--all", "--queue", "other") == "1 task ready again"
    assert [task["id"] for task in project.json("dead")["tasks"]] == [1]
    assert project.ok("drop", "1") == "task 1 dropped"
    assert project.run("task", "1").returncode == 4
    assert work(project, "--burst").end() == 1
    assert project.ok("drop", "--all") == "1 task dropped"
    assert project.ok("drop", "--all") == project.ok("retry", "--all") == "no dead tasks"
    assert project.run("dead").stderr == "no dead tasks\n"


def test_a_retry_is_refused_where_another_has_the_key(project: Project) -> None:
    put(project, "broken", "--key", "k")
    assert work(project, "--burst").end() == 1
    put(project, "broken", "--key", "k")
    refused = project.run("retry", "1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "task 1 stays as it is: another task has its key by now" in refused.stderr


def test_settings_of_a_queue_hold(project: Project) -> None:
    assert project.run("queues").stderr == "no queues yet: raptor put SERVICE makes one\n"
    project.ok("queues", "mail", "--concurrency", "2", "--rate", "100/min", "--lease", "30s", "--max-attempts", "5")
    set_so = "2 at a time, 100/min, lease 30s, 5 attempts"
    assert f"mail 0 0 0 0 0 - - {set_so}" in project.ok("queues")
    put(project, "letter", "to=a")
    assert shown(project, 1)["max_attempts"] == 5
    running = node(project)
    assert set_so in project.ok("queues", "mail")
    project.ok("queues", "mail", "--rate", "none", "--concurrency", "none", "--processors", "1", "--batch-size", "3")
    assert "1 processor, batches of 3, lease 30s, 5 attempts" in project.ok("queues", "mail")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    (mail,) = project.json("queues", "mail")["queues"]
    assert (mail["rate"], mail["processors"], mail["lease_s"], mail["done"]) == (None, 1, 30.0, 1)


def test_queues_of_the_settings_file_are_shown(project: Project) -> None:
    (project.folder / "raptor.toml").write_text('module = "services"\n[queues.slow]\nrate = "5/10min"\n')
    assert "slow 0 0 0 0 0 - - 5/10m" in project.ok("queues")
    node(project)
    assert "slow 0 0 0 0 0 - - 5/10m" in project.ok("queues")


def test_the_rate_of_a_queue_is_shown_while_its_worker_runs(project: Project) -> None:
    put(project, "quick")
    assert "QUEUE READY TAKEN DELAYED DONE DEAD RATE LATE LIMITS" in project.ok("queues")
    assert project.json("queues")["queues"][0]["done_per_s"] is None
    running = node(project)
    running.wait_for("quick #1 ✓ ok")
    eventually(lambda: re.search(r"default 0 0 0 1 0 (\d+/min|1.0/s) - -", project.ok("queues")), "no rate")
    assert 0 < project.json("queues")["queues"][0]["done_per_s"] <= 1


def test_what_a_reload_read_of_the_worker_is_for_the_next(project: Project) -> None:
    settings = 'module = "services"\n[worker]\nqueues = ["{}"]\nprocessors = {}\n'
    (project.folder / "raptor.toml").write_text(settings.format("default", 7))
    node(project)
    (project.folder / "raptor.toml").write_text(settings.format("mail", 9))
    project.run("reload", check=True)
    assert project.json("queues")["worker"] == {"processors": 7, "queues": ["default"]}
    refused = project.run("work", "mail", "--processors", "7", "--detach")
    assert (refused.returncode, "turns only default: `raptor stop` ends it; start it again" in refused.stderr) == (
        6,
        True,
    )


def test_history_and_failures_say_where_the_runs_of_tasks_are(project: Project) -> None:
    project.run("run", "quick", check=True)
    assert project.run("history").stderr == ""
    put(project, "add", "a=1")
    put(project, "broken")
    assert work(project, "--burst").end() == 1
    said = project.run("history", "add")
    assert said.stdout == ""
    assert said.stderr == (
        "no runs by a scheduler or by hand yet\nHint: raptor tasks --service add has what ran as a task\n"
    )
    assert project.run("history").stderr == "Hint: raptor tasks has what ran as a task\n"
    assert project.run("history", "quick").stderr == ""
    assert project.run("logs", "--failed", "broken").stderr == (
        "no failed runs\nHint: raptor dead --service broken has what ran as a task\n"
    )
    assert project.run("history", "add", "--failed").stderr == "no failed runs\n"
    assert project.json("history", "add")["has_tasks"] is True


def test_a_paused_queue_keeps_its_tasks(project: Project) -> None:
    running = node(project)
    assert project.run("pause", "mail", "--queue", "--note", "moving").stderr.startswith("paused mail (a queue)")
    put(project, "letter", "to=a")
    put(project, "add", "a=1")
    running.wait_for("add #2 ✓ ok")
    assert "mail 1 0 0 0 0 " in project.ok("queues", "mail")
    assert "◑ paused: moving" in project.ok("queues", "mail")
    assert "mail ◑ paused 1 ready" in project.ok("status")
    assert project.run("resume", "mail").stderr == "resumed mail (a queue)\n"
    running.wait_for("letter #1 ✓ ok")
    project.run("pause", "mail", check=True)
    assert work(project, "mail", "--burst").end() == 0
    project.run("resume", "mail", check=True)
    assert "paused" not in project.ok("queues")


@pytest.mark.parametrize("words", [["work"], ["start", "main", "--interval", "1h"]], ids=lambda words: words[0])
def test_metrics_are_answered_where_a_flag_says(project: Project, words: list[str]) -> None:
    process = Process([*RAPTOR, *words, "--metrics", "127.0.0.1:0"], project.folder, {})
    project.processes.append(process)
    url = process.wait_for("metrics on http://127.0.0.1:").removeprefix("metrics on ")
    assert not url.endswith(":0/metrics")
    assert b"raptor_queue_running_workers 1.0" in urlopen(url, timeout=20).read()
    project.run("reload", check=True)
    refused = project.run("start", "other", "--metrics", "127.0.0.1:1")
    assert refused.returncode == 6
    assert "answers for metrics on 127.0.0.1:0: `raptor stop`, and start it again" in refused.stderr
    assert project.run("work", "--detach", "--metrics", "127.0.0.1:0").returncode == 0  # as it has them


def test_a_detached_node_has_the_flag_too_and_one_without_metrics_says_so(project: Project) -> None:
    project.run("work", "--detach", check=True)
    refused = project.run("work", "--metrics", "127.0.0.1:0")
    assert (refused.returncode, "answers for no metrics" in refused.stderr) == (6, True)
    project.run("stop", check=True)
    project.run("work", "--detach", "--metrics", "127.0.0.1:0", check=True)
    assert "metrics on http://127.0.0.1:" in project.ok("logs")


def test_after_kill_9_the_task_runs_again(project: Project) -> None:
    first = node(project)
    put(project, "gated")
    first.wait_for("gated #1 ▶ started (attempt 1/3)")
    first.signal(signal.SIGKILL)
    first.end()
    assert state(project, 1) == "taken"
    (project.folder / "gate").touch()
    second = work(project, "--burst")
    second.wait_for("gated #1 ◌ lapsed")
    second.wait_for("gated #1 ▶ started (attempt 2/3)")
    second.wait_for("gated #1 ✓ ok")
    assert second.end() == 0
    assert project.ran == ["gated", "gated"]
    life = project.ok("task", "1")
    assert "its lease lapsed" in life
    assert "✓ ok in" in life


def test_one_that_a_crash_left_running_can_be_cancelled_before_the_next_start(project: Project) -> None:
    first = node(project)
    put(project, "gated")
    first.wait_for("gated #1 ▶ started")
    first.signal(signal.SIGKILL)
    first.end()
    assert project.ok("cancel", "1") == "task 1 is not taken up again"
    assert work(project, "--burst").end() == 0
    assert state(project, 1) == "cancelled"
    assert project.ran == ["gated"]


def test_ctrl_c_lets_tasks_finish_and_takes_no_more(project: Project) -> None:
    running = node(project)
    put(project, "gated")
    running.wait_for("gated #1 ▶ started")
    running.signal(signal.SIGINT)
    running.wait_for("stopping work: 1 task may finish within 30s")
    (project.folder / "gate").touch()
    running.wait_for("gated #1 ✓ ok")
    assert running.end() == 0
    assert state(project, 1) == "done"


@pytest.mark.parametrize("how", ["a second signal", "the grace"])
def test_what_does_not_finish_goes_back_to_its_queue(project: Project, how: str) -> None:
    running = node(project, "--grace", "100ms" if how == "the grace" else "1m")
    put(project, "gated")
    running.wait_for("gated #1 ▶ started")
    running.signal(signal.SIGINT)
    running.wait_for("stopping work: 1 task may finish")
    if how == "a second signal":
        running.signal(signal.SIGINT)
    assert running.end() == (130 if how == "a second signal" else 0)
    assert "gated #1 ◌ interrupted" in running.text
    back = shown(project, 1)
    assert (back["state"], back["attempts"]) == ("ready", 0)


def test_work_beside_a_node_joins_it_and_ctrl_c_leaves_it_running(project: Project) -> None:
    main = project.start("main", "--interval", "1h")
    main.wait_for("raptor 0.1")
    follower = work(project)
    follower.wait_for(f"the node that runs here (pid {main.pid}) turns the queues")
    put(project, "add", "a=1")
    main.wait_for("add #1 ✓ ok in ")
    follower.wait_for("add #1 ✓ ok in ")
    follower.signal(signal.SIGINT)
    follower.wait_for(f"detached: the queues go on in process {main.pid}")
    assert follower.end() == 0
    put(project, "broken")
    main.wait_for("broken #2 ✗ failed in")
    put(project, "broken")
    put(project, "gated")
    burst = work(project, "--burst")
    burst.wait_for("turns the queues")
    (project.folder / "gate").touch()
    assert burst.end() in (0, 1)  # whether the broken one died before it looked
    refused = project.run("work", "--processors", "7")
    assert refused.returncode == 6
    assert "runs 100 tasks at a time: `raptor queues NAME --processors 7` limits one queue" in refused.stderr
    main.signal(signal.SIGTERM)
    assert main.end() == 0


def test_a_burst_on_a_node_that_stops_says_whether_tasks_are_left(project: Project) -> None:
    main = project.start("main", "--interval", "1h", "--grace", "10ms")
    main.wait_for("raptor 0.1")
    put(project, "gated")
    main.wait_for("gated #1 ▶ started")
    burst = work(project, "--burst")
    burst.wait_for("turns the queues")
    main.signal(signal.SIGTERM)
    burst.wait_for("tasks are left: raptor work --burst takes them up")
    assert (main.end(), burst.end()) == (0, 3)
    assert state(project, 1) == "ready"


def test_a_burst_whose_last_task_ends_while_its_node_stops_is_through(project: Project) -> None:
    main = project.start("main", "--interval", "1h")
    main.wait_for("raptor 0.1")
    put(project, "gated")
    main.wait_for("gated #1 ▶ started")
    burst = work(project, "--burst")
    burst.wait_for("turns the queues")
    main.signal(signal.SIGTERM)
    main.wait_for("stopping")
    (project.folder / "gate").touch()
    assert (main.end(), burst.end()) == (0, 0)
    assert "tasks are left" not in burst.text


@pytest.mark.parametrize("hears", [False, True])
@pytest.mark.parametrize("words", [["work", "--burst"], ["start", "main", "--interval", "1h", "--cycles", "1"]])
def test_what_would_join_a_node_that_ends_just_then_is_the_node_itself(
    project: Project, words: list[str], hears: bool
) -> None:
    project.ok("schedule", "main", "quick=1h")
    put(project, "add", "a=1")
    path = project.folder / ".raptor" / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ending:
        ending.bind(str(path))
        ending.listen()

        def end() -> None:
            """It takes one connection, the look whether it is there, or a question as well, and answers nothing."""
            for _ in range(1 + hears):
                ending.accept()[0].close()
            ending.close()

        with ThreadPoolExecutor() as threads:
            ended = threads.submit(end)
            project.ok(*words)
            ended.result(5)
    assert state(project, 1) == "done" or words[0] == "start"


def test_a_node_for_some_queues_leaves_the_others(project: Project) -> None:
    put(project, "add", "a=1")
    put(project, "letter", "to=a")
    burst = work(project, "mail", "--burst", "--processors", "1")
    assert "queue mail · one task at a time" in burst.wait_for("raptor 0.1")
    assert burst.end() == 0
    assert project.ran == ["a"]
    strange = node(project, "mial")
    assert strange.wait_for("! no service is on queue").endswith("mial. did you mean 'mail'?")
    strange.signal(signal.SIGTERM)
    assert strange.end() == 0
    running = node(project, "mail")
    refused = project.run("work", "default")
    assert refused.returncode == 6
    assert f"the node that runs here (pid {running.pid}) turns only mail" in refused.stderr
    assert "Hint: the node takes nothing from default" in project.run("queues").stderr
    assert project.run("work", "mail", "--detach").returncode == 0


def test_work_starts_no_scheduler_and_forgets_none(project: Project) -> None:
    project.ok("schedule", "main", "hourly")
    main = project.start("main", "--interval", "1h")
    main.wait_for("hourly ▶ started")
    while project.ran != ["hourly"]:  # which is said just before it begins
        time.sleep(0.01)
    main.signal(signal.SIGKILL)
    main.end()
    running = node(project)
    running.wait_for("! cut off by an unclean end, and left so: main; raptor start main takes it up")
    put(project, "add", "a=1")
    running.wait_for("add #1 ✓ ok")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert project.ran == ["hourly", "add1"]
    (project.folder / "gate").touch()
    other = project.start("other", "--interval", "1h")
    other.wait_for("↻ back after an unclean end: main")
    other.wait_for("hourly ✓ ok")


def test_a_scheduler_joins_a_node_that_works(project: Project) -> None:
    running = node(project)
    (project.folder / "gate").touch()
    project.ok("schedule", "main", "hourly")
    assert project.run("start", "main", "--detach").returncode == 0
    running.wait_for("hourly ✓ ok")
    assert project.run("stop", "main").returncode == 0
    put(project, "add", "a=1")
    running.wait_for("add #1 ✓ ok")
    assert project.run("stop").returncode == 0
    assert running.end() == 0


def test_in_the_background(project: Project) -> None:
    started = project.run("work", "--detach", check=True)
    assert "started work in the background (pid " in started.stderr
    assert project.run("put", "quick", "n=5", "--wait", check=True).stdout == "5\n"
    assert project.run("stop").returncode == 0


def test_a_flood_is_counted_and_not_told_one_by_one(project: Project) -> None:
    running = node(project)
    ids = ask(project.home, "put", {"service": "quick", "many": [{"n": n} for n in range(2000)]})["ids"]
    assert len(ids) == 2000
    counted = running.wait_for("tasks, not told one by one: ")
    assert " started, " in counted
    assert " ok" in counted
    eventually(lambda: project.json("queues", "default")["queues"][0]["done"] == 2000, "they did not end")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert len([line for line in running.lines if "quick #" in line]) <= 100
    lines = [json.loads(line) for line in (project.home / "raptor.log").read_text().splitlines()]
    told = sum(line["event"] == "task_ended" for line in lines)
    assert told + sum(line.get("ok", 0) for line in lines if line["event"] == "tasks_counted") == 2000


def test_children_and_parents_know_each_other(project: Project) -> None:
    put(project, "parent")
    assert work(project, "--burst").end() == 0
    assert shown(project, 1)["children"] == [2]
    assert "children 2" in project.ok("task", "1")
    assert ", by task 1" in project.ok("task", "2")


def test_no_text_of_a_task_speaks_to_the_terminal(project: Project) -> None:
    put(project, "broken", "--data", json.dumps({"why": "[red]\x1b[2J"}), "--key", "k\x1b[2J")
    assert work(project, "--burst").end() == 1
    for words in (["tasks"], ["dead"], ["task", "1"], ["logs"]):
        text = project.run(*words, check=True).stdout
        assert "\x1b" not in text
        assert "[red]\\x1b[2J" in text or "\\u001b[2J" in text, words


def test_looking_at_the_status_of_queues_loads_no_engine(project: Project) -> None:
    put(project, "add", "a=1")
    (project.folder / "raptor.toml").write_text('[services.add]\ncommand = ["true"]\n')
    script = (
        "import sys; from raptor.cli.main import main; main(['status'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=project.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "default ● open 1 ready" in squeeze(done.stdout)
    assert not set(done.stdout.split()) & {"asyncio", "raptor.actor", "raptor.runners", "raptor.state.files"}
    (queue,) = project.json("status")["queues"]
    assert queue == {"queue": "default", "ready": 1, "delayed": 0, "taken": 0, "dead": 0, "paused": False}


def test_completion_knows_them(project: Project) -> None:
    completed = project.run(COMP_WORDS="raptor ta", COMP_CWORD="1", _RAPTOR_COMPLETE="bash_complete")
    assert set(completed.stdout.split()) == {"plain,tasks", "plain,task"}


def test_lists_are_narrowed_and_cut(project: Project) -> None:
    for number in range(3):
        put(project, "add", f"a={number}")
    put(project, "letter", "to=a", "--priority", "0")
    assert [task["id"] for task in project.json("tasks", "-n", "2")["tasks"]] == [4, 3]
    assert [task["id"] for task in project.json("tasks", "--queue", "mail")["tasks"]] == [4]
    assert [task["id"] for task in project.json("tasks", "--service", "add")["tasks"]] == [3, 2, 1]
    assert project.run("tasks", "--state", "dead").stderr == "no such tasks\n"


def test_on_a_narrow_terminal_the_last_column_is_cut_and_no_row_is_folded(project: Project) -> None:
    for why in ("x" * 200, "short"):
        put(project, "broken", "--data", json.dumps({"why": why}))
    assert work(project, "--burst").end() == 1
    for words in ("tasks", "dead"):
        lines = on_a_terminal(project, words, columns=80)
        assert [line.split()[0] for line in lines] == ["ID", "2", "1"]
        assert {len(line) for line in lines if line.endswith("...")} == {80}
        assert "x" * 200 in project.ok(words)


def on_a_terminal(project: Project, *words: str, columns: int) -> list[str]:
    """The lines of standard output on a terminal of that width."""
    near, far = pty.openpty()
    try:
        subprocess.run(
            [*RAPTOR, *words],
            cwd=project.folder,
            env=environment(COLUMNS=str(columns)),
            stdout=far,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return os.read(near, 65536).decode().splitlines()
    finally:
        os.close(near)
        os.close(far)
