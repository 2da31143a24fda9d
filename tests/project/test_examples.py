"""Every example runs, and does what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.project.conftest import Run

pytestmark = pytest.mark.timeout(120)

RUN_HERE = {
    "hello.py", "mixed_intervals.py", "crash_and_resume.py", "shared_service.py", "web_app.py", "custom_tree.py",
    "supervised_tree.py", "from_toml", "first_project", "send_later.py", "retry_and_dead.py", "batches.py",
    "own_tests.py", "two_nodes.py", "order_with_mail.py", "from_sql.py",
}  # fmt: skip


def clean() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAPTOR_", "MAKE", "MFLAGS"))}
    return kept | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "TZ": "UTC"}


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """The first line with the text in it; the timeout of the test is the deadline."""
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}:\n" + "".join(seen))


def test_no_example_is_left_out(root: Path) -> None:
    there = {path.name for path in (root / "examples").iterdir() if not path.name.startswith(("__", "."))}
    assert there == RUN_HERE


def test_every_example_explains_itself_at_its_top(root: Path) -> None:
    for file in (root / "examples").rglob("*.py"):
        assert file.read_text(encoding="utf-8").startswith('"""'), file
    for file in (root / "examples").rglob("raptor.toml"):
        assert file.read_text(encoding="utf-8").startswith("# "), file


@pytest.mark.spec("004-36")
def test_hello_greets_three_times(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/hello.py", cwd=root).stdout.split("\n")
    assert said.count("world") >= 3
    assert said.count("hello") >= 3
    assert said[-2] == "stopped, in order"


@pytest.mark.spec("004-05", "004-25", "004-26", "X4-5", "X4-9", "X4-10")
def test_mixed_intervals_run_the_daily_report_once_a_day(root: Path, run: Run) -> None:
    lines = run(sys.executable, "examples/mixed_intervals.py", cwd=root).stdout.splitlines()
    assert lines[0] == "Mon 10:00 hourly_check daily_report"
    assert lines[1:24] == [f"{'Mon' if hour < 24 else 'Tue'} {hour % 24:02}:00 hourly_check" for hour in range(11, 34)]
    assert lines[24] == "Tue 10:00 hourly_check daily_report"


@pytest.mark.spec("004-21", "004-22", "004-30")
def test_crash_and_resume_repeats_only_what_was_cut_off(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/crash_and_resume.py", cwd=root).stdout
    assert "1 of 3 done before the crash (first), 2 left" in said
    assert said.endswith("what ran: first, second begins, second begins, second ends, third\n")


@pytest.mark.spec("004-28")
def test_a_shared_service_runs_once_for_each_slot(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/shared_service.py", cwd=root).stdout
    assert said.splitlines() == [
        "only_here: 3 runs in 3 hours",
        "only_there: 3 runs in 3 hours",
        "refresh_cache: 3 runs in 3 hours",
    ]


def test_a_custom_tree_brings_the_scheduler_back(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/custom_tree.py", cwd=root).stdout
    assert said.count("connected") == 2
    assert "restarts of the connection: 1, of the scheduler: 1" in said


def test_the_actor_demo_runs(root: Path, run: Run) -> None:
    assert run(sys.executable, "examples/supervised_tree.py", "--seconds", "1", cwd=root).stdout


def test_a_delayed_task_comes_later_and_a_key_holds_one_task(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/send_later.py", cwd=root).stdout.splitlines()
    assert said[:3] == ["sending 'hello' to ann@example.com", "sent to ann@example.com", "the same task: True"]
    assert said.count("sending 'welcome' to cy@example.com") == 1
    assert said[-2:] == ["sending 'hello' to bob@example.com", "sent to bob@example.com"]


def test_a_task_that_fails_is_tried_again_dies_and_is_revived(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/retry_and_dead.py", cwd=root).stdout.splitlines()
    assert said == [
        "  0 s: trying to buy bread",
        "  1 s: trying to buy bread",
        "  3 s: trying to buy bread",
        "dead (failed)",
        "dead: ['buy']",
        "  3 s: trying to buy bread",
        "bought bread",
    ]


def test_a_batch_is_one_call_and_a_bad_row_is_found_alone(root: Path, run: Run) -> None:
    said = run(sys.executable, "examples/batches.py", cwd=root).stdout.splitlines()
    assert said[:3] == ["30 rows at once", "row 49", "3 rows: refused, 13 is among them"]
    assert [line for line in said if ": " in line][1:] == ["12: done", "13: dead", "14: done"]


def test_the_tests_of_a_program_pass_alone_and_with_pytest(root: Path, run: Run) -> None:
    assert len(run(sys.executable, "examples/own_tests.py", cwd=root).stdout.splitlines()) == 3
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/own_tests.py", cwd=root)
    assert "3 passed" in done.stdout


def test_of_two_nodes_one_takes_over(root: Path, run: Run, pg_address: str) -> None:
    said = run(sys.executable, "examples/two_nodes.py", pg_address, cwd=root).stdout.splitlines()
    assert said == [
        "one of two nodes runs the scheduler: True",
        "the owner is killed",
        "the other has taken over: True",
    ]


def test_sql_puts_tasks(root: Path, run: Run, pg_address: str) -> None:
    said = run(sys.executable, "examples/from_sql.py", cwd=root, RAPTOR_STORE=pg_address).stdout.splitlines()
    assert sorted(said) == ["[('default', 3)]", "hello ann", "hello bob", "hello cy", "refused: task_priority_check"]


def test_an_order_and_its_mail_are_one_transaction(root: Path, pg_address: str) -> None:
    words = [sys.executable, "examples/order_with_mail.py", pg_address, "--port", "0"]
    process = subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True, env=clean())
    try:
        url = wait_for(process, "http://").strip()
        body = json.dumps({"item": "book", "to": "ann@example.com"}).encode()
        with urllib.request.urlopen(url, data=body, timeout=20) as answer:
            assert (answer.status, json.load(answer)) == (201, {"order": 1})
        assert wait_for(process, "mail to") == "mail to ann@example.com: order 1 is on its way\n"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url, data=b'{"item": "book"}', timeout=20)
        with caught.value as refused:
            assert "$.to" in refused.read().decode()
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert json.load(answer) == {"orders": [[1, "book"]]}
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=40)[0] == "stopped\n"
    finally:
        process.kill()
        process.communicate()


def test_programs_run_from_raptor_toml(root: Path, run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(root / "examples/from_toml", tmp_path / "p", ignore=shutil.ignore_patterns(".raptor"))
    done = run(sys.executable, "-m", "raptor", "start", "main", "--cycles", "1", cwd=folder)
    assert re.search(r"greet +✓ ok in .*: hello world", done.stdout)
    assert "cycle done: 2 ok, 0 failed" in done.stdout
    assert "hello world" in run(sys.executable, "-m", "raptor", "logs", "greet", cwd=folder).stdout


def test_a_web_app_answers_while_its_services_run(root: Path) -> None:
    words = [sys.executable, "examples/web_app.py", "--port", "0"]
    process = subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True, env=clean())
    try:
        url = wait_for(process, "http://").strip()
        counted = 0
        while counted < 2:
            with urllib.request.urlopen(url, timeout=20) as answer:
                counted = json.load(answer)["counted"]
        with urllib.request.urlopen(f"{url}status", timeout=20) as answer:
            assert json.load(answer)["schedulers"][0]["name"] == "web"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=40)[0] == "stopped\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_make_run_shows_the_first_project_and_ends_cleanly_on_ctrl_c(root: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(root / "examples/first_project", tmp_path / "p", ignore=shutil.ignore_patterns(".raptor"))
    recipe = re.search(r"^run: .*\n\t@cd examples/first_project && exec \S+/bin/raptor (.+)$", _makefile(root), re.M)
    assert recipe is not None
    words = [sys.executable, "-m", "raptor", *recipe[1].split()]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True, env=clean())
    try:
        wait_for(process, "scheduler main · checks every 5s")
        wait_for(process, "hello, world")
        wait_for(process, "cycle done: ")
        process.send_signal(signal.SIGINT)
        wait_for(process, "stopped main")
        assert process.wait(40) == 0
    finally:
        process.kill()
        process.communicate()


def _makefile(root: Path) -> str:
    return (root / "Makefile").read_text(encoding="utf-8")
