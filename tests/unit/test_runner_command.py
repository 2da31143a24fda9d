"""Commands: what they get, what their end means, and how they are ended."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

import raptor.runners
from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.runners import family, group
from raptor.service import Service
from raptor.task import Outcome
from tests.unit.runs import Trial, left_behind, run, shell


def command(*argv: str, **options: Any) -> Service:
    return Service(name="c", kind="command", argv=argv, **options)


async def test_status_zero_is_success_and_the_output_is_kept(system_clock: Clock, tmp_path: Path) -> None:
    result = await run(system_clock, shell("echo out; echo err >&2"), tmp_path / "c.log")
    assert (result.outcome, result.info, result.error, result.died) == (Outcome.OK, "err", None, False)
    assert result.tail == "out\nerr\n"
    assert (tmp_path / "c.log").read_text().endswith("Z\nout\nerr\n")


async def test_another_status_is_a_failure_with_the_last_line(system_clock: Clock) -> None:
    result = await run(system_clock, shell("echo no such host; exit 3"))
    assert (result.outcome, result.error, result.died) == (Outcome.FAILED, "exit status 3", False)
    assert result.info == "exit status 3: no such host"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGSEGV"])
async def test_a_signal_is_named(system_clock: Clock, name: str) -> None:
    result = await run(system_clock, shell(f"kill -{name[3:]} $$"))
    assert (result.outcome, result.error, result.died) == (Outcome.FAILED, f"killed by {name}", True)


async def test_a_signal_without_a_name_is_numbered(system_clock: Clock) -> None:
    assert (await run(system_clock, shell("kill -40 $$"))).error == "killed by signal 40"


async def test_no_shell_looks_at_the_words(system_clock: Clock) -> None:
    words = ("$HOME", "a b", "*", ";", "`id`")
    result = await run(system_clock, command("printf", "%s\\n", *words))
    assert result.tail.splitlines() == list(words)


async def test_the_environment_tells_of_the_run(system_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    facts: dict[str, Any] = {"run_id": "r1-unique", "attempt": 2, "planned": 0.0, "key": "k"}
    wanted = command("env", env={"OWN": "mine", "RAPTOR_KEY": "not this"})
    seen = dict(line.split("=", 1) for line in (await run(system_clock, wanted, **facts)).tail.splitlines())
    assert seen["INHERITED"] == "yes"
    assert seen["OWN"] == "mine"
    assert seen["RAPTOR_RUN_ID"] == "r1-unique"
    assert seen["RAPTOR_SERVICE"] == "c"
    assert seen["RAPTOR_ATTEMPT"] == "2"
    assert seen["RAPTOR_SLOT"] == "1970-01-01T00:00:00Z"
    assert seen["RAPTOR_KEY"] == "k"
    assert "NOTIFY_SOCKET" not in seen


async def test_it_has_a_folder_a_session_and_nothing_to_read(system_clock: Clock, tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd(), os.getsid(0) == os.getpid() == os.getpgrp(), repr(sys.stdin.read()))"
    result = await run(system_clock, command("python3", "-c", script, cwd=str(tmp_path)))
    assert result.info == f"{tmp_path} True ''"


async def test_no_file_of_the_node_is_open_in_it(system_clock: Clock) -> None:
    held = os.open("/dev/null", os.O_RDONLY)
    os.dup2(held, 500, inheritable=True)
    result = await run(system_clock, shell("ls /proc/$$/fd"))
    os.close(held)
    os.close(500)
    assert "0\n1\n2\n" in result.tail
    assert "500" not in result.tail


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: command("no-such-program"), "'no-such-program' was not found: give its full path"),
        (lambda folder: command(str(folder / "nothing")), "nothing' was not found"),
        (lambda folder: command(str(folder / "plain")), "plain' may not be executed: chmod [+]x it"),
        (lambda folder: command(str(folder)), "may not be executed"),
        (lambda folder: command(str(folder / "orphan")), "interpreter that its first line names is not"),
        (lambda folder: command(str(folder / "rubbish")), "is not a program: begin it with a #! line"),
        (lambda folder: command("true", cwd=str(folder / "nowhere")), "working directory .*nowhere' cannot be used"),
        (lambda folder: command("true", cwd=str(folder / "plain")), "working directory .*plain' cannot be used"),
        (lambda folder: command("true", "nul\0"), "could not be started: embedded null byte"),
        (lambda folder: command("true", "x" * 10_000_000), "could not be started: .*Argument list too long"),
        (lambda folder: command("true", env={"a=b": "c"}), "could not be started: illegal environment variable name"),
        (lambda folder: command(), "'' could not be started"),
    ],
)
async def test_what_cannot_be_started_has_failed(system_clock: Clock, tmp_path: Path, make: Any, said: str) -> None:
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    (tmp_path / "orphan").write_text("#!/no/such/interpreter\n")
    (tmp_path / "rubbish").write_bytes(b"\x01\x02\x03")
    for name in ("orphan", "rubbish"):
        (tmp_path / name).chmod(0o755)
    before = os.listdir("/proc/self/fd")
    result = await run(system_clock, make(tmp_path))
    assert (result.outcome, result.died) == (Outcome.FAILED, False)
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(result.error)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (command(), "is empty"),
        (command(""), "is empty"),
        (command("true", "\0"), "NUL"),
        (command("true", cwd="\0"), "NUL"),
        (command("true", env={"A": "\0"}), "NUL"),
        (command("true", env={"A=B": ""}), "no name of a variable"),
    ],
)
def test_a_command_that_could_never_start_is_refused(wanted: Service, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        raptor.runners.check(wanted)


def test_a_command_that_may_start_is_accepted() -> None:
    raptor.runners.check(command("no-such-program-yet", cwd="/not/there/yet"))


async def test_a_command_that_takes_too_long_is_ended(system_clock: Clock) -> None:
    trial = Trial(system_clock, shell("sleep 1000", timeout_s=0.5))
    result = await trial.run()
    assert (result.outcome, result.error, result.died) == (Outcome.TIMED_OUT, "timed out after 0.5 s", False)
    assert left_behind(trial.context.run_id) == {}


async def test_an_interrupted_command_may_clean_up(
    system_clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "TERM_GRACE_S", 30.0)
    monkeypatch.setattr(group, "DRAIN_S", 0.01)
    # The shell dies of the signal at once; its child, which holds the output, takes its time.
    child = f"trap 'sleep 0.3; touch {tmp_path}/cleaned; exit' TERM; echo ready; while :; do sleep 0.05; done"
    trial = Trial(system_clock, shell(f'sh -c "{child}" & wait'))
    task = trial.start()
    await trial.log.hears("ready")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tmp_path / "cleaned").exists()
    assert left_behind(trial.context.run_id) == {}


async def test_one_that_ignores_sigterm_is_killed_with_its_group(system_clock: Clock) -> None:
    trial = Trial(system_clock, shell("trap '' TERM; sleep 1000 & while :; do sleep 0.1; done", timeout_s=2))
    result = await trial.run()
    assert result.error == "timed out after 2 s; it ignored SIGTERM and was killed"
    assert left_behind(trial.context.run_id) == {}


async def test_zero_is_no_time_limit_and_none_is_an_hour(system_clock: Clock) -> None:
    assert raptor.runners.time_limit(command("true")) == 3600
    assert raptor.runners.time_limit(command("true", timeout_s=0)) is None
    assert (await run(system_clock, command("true", timeout_s=0))).outcome is Outcome.OK


async def test_an_interrupt_ends_the_whole_family_first(system_clock: Clock) -> None:
    trial = Trial(system_clock, shell("setsid sleep 1000 & sleep 1000 & echo begun; wait"))
    task = trial.start()
    await trial.log.hears("begun")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_behind(trial.context.run_id) == {}


async def test_a_second_interrupt_does_not_wait_for_the_grace(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "TERM_GRACE_S", 1000.0)
    deaf = "trap '' TERM; echo begun; while :; do sleep 0.05; done"
    script = 'trap "echo asked" TERM; setsid sh -c "$DEAF" & while :; do sleep 0.05; done'
    trial = Trial(system_clock, shell(script, env={"DEAF": deaf}))
    task = trial.start()
    await trial.log.hears("begun")
    task.cancel()
    await trial.log.hears("asked")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_behind(trial.context.run_id) == {}


async def test_what_a_command_leaves_running_ends_with_it(system_clock: Clock) -> None:
    trial = Trial(system_clock, shell("sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & echo done"))
    result = await trial.run()
    assert (result.outcome, result.tail) == (Outcome.OK, "done\n")
    assert left_behind(trial.context.run_id) == {}


async def test_an_escaped_process_cannot_hold_the_run_by_its_output(system_clock: Clock) -> None:
    trial = Trial(system_clock, shell("(setsid sh -c 'echo escaped; exec sleep 1000' &) ; echo done"))
    result = await trial.run()
    assert result.outcome is Outcome.OK
    assert set(result.tail.splitlines()) == {"escaped", "done"}
    assert left_behind(trial.context.run_id) == {}


async def test_an_escaped_process_without_its_mark_is_found_by_descent(system_clock: Clock) -> None:
    words = f"sleep 98765.{uuid.uuid4().int}"
    trial = Trial(system_clock, shell(f"env -i setsid sh -c 'echo escaped; exec {words}' & wait"))
    task = trial.start()
    await trial.log.hears("escaped")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left_behind(words.partition(".")[2]) == {}


async def test_two_runs_with_one_id_leave_each_other_alone(system_clock: Clock) -> None:
    first = Trial(system_clock, shell("echo begun; sleep 1000"), run_id="same")
    task = first.start()
    await first.log.hears("begun")
    assert (await run(system_clock, shell("true"), run_id="same")).outcome is Outcome.OK
    assert (await run(system_clock, shell("sleep 1000", timeout_s=0.1), run_id="same")).outcome is Outcome.TIMED_OUT
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_where_there_are_no_handles_processes_are_polled(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(family, "_pids", list)
    assert (await run(system_clock, shell("echo hello; exit 3"))).info == "exit status 3: hello"
    assert (await run(system_clock, shell("sleep 1000", timeout_s=0.2))).outcome is Outcome.TIMED_OUT


async def test_a_strangers_process_with_the_number_is_left_alone(system_clock: Clock) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    (member,) = (each for each in family.of_run(family.marks("none"), os.getpid()) if each.pid == process.pid)
    family.send([member._replace(began=member.began - 1)], signal.SIGTERM)
    family.send([member], signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL


async def test_what_a_dead_node_left_can_be_swept_by_its_run_id(system_clock: Clock) -> None:
    env = os.environ | {"RAPTOR_RUN_ID": "left-by-a-dead-node"}
    process = await asyncio.create_subprocess_exec("sleep", "1000", env=env, start_new_session=True)
    assert family.sweep_after_crash("another-run") == 0
    assert family.sweep_after_crash("") == 0
    assert family.sweep(family.marks("left-by-a-dead-node")) == 0  # another run with that id
    assert family.sweep_after_crash("left-by-a-dead-node") == 1
    assert await process.wait() == -signal.SIGKILL
