"""Who sent a SIGKILL: the kernel for want of memory, or somebody else. Cgroups are folders of text here."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.runners import oom
from raptor.runners.oom import count, counter
from raptor.service import Service
from raptor.task import Outcome, Result
from tests.unit.runs import run, shell

OOM = "killed by the kernel: out of memory"
V1 = "31 23 0:28 / {point} rw - cgroup cgroup rw,memory\n"
V2 = "41 31 0:38 {root} {point} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
EVENTS = "low 0\nhigh 0\nmax 12\noom 1\noom_kill {kills}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"


def proc(folder: Path, *, cgroup: str, mounts: str) -> Path:
    made = folder / "proc"
    made.mkdir()
    (made / "cgroup").write_text(cgroup)
    (made / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\nrubbish\n" + mounts)
    return made


def group(folder: Path, file: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    return folder / file


def test_the_counter_of_cgroup_v2_is_found(tmp_path: Path) -> None:
    file = group(tmp_path / "cg/system.slice/raptor.service", "memory.events", EVENTS.format(kills=3))
    mounts = V2.format(root="/", point=tmp_path / "cg")
    assert counter(proc(tmp_path, cgroup="0::/system.slice/raptor.service\n", mounts=mounts)) == file
    assert count(file) == 3


def test_the_counter_of_cgroup_v1_is_found_beside_a_v2_without_memory(tmp_path: Path) -> None:
    file = group(tmp_path / "memory/a", "memory.oom_control", CONTROL.format(kills=1))
    (tmp_path / "unified").mkdir()
    mounts = V2.format(root="/", point=tmp_path / "unified") + V1.format(point=tmp_path / "memory")
    places = "5:devices:/x\n4:memory:/a\n1:name=systemd:/a\n0::/\n"
    assert counter(proc(tmp_path, cgroup=places, mounts=mounts)) == file
    assert count(file) == 1


@pytest.mark.parametrize("place", ["/docker/abc", "/docker/abc/inner"])
def test_in_a_container_the_root_of_the_mount_is_left_out_of_the_path(tmp_path: Path, place: str) -> None:
    file = group(tmp_path / ("cg" + place.removeprefix("/docker/abc")), "memory.events", EVENTS.format(kills=0))
    mounts = V2.format(root="/docker/abc", point=tmp_path / "cg")
    assert counter(proc(tmp_path, cgroup=f"0::{place}\n", mounts=mounts)) == file


def test_a_path_that_is_not_seen_from_here_leads_to_the_mount_itself(tmp_path: Path) -> None:
    file = group(tmp_path / "cg", "memory.events", EVENTS.format(kills=0))
    mounts = V2.format(root="/", point=tmp_path / "cg")
    assert counter(proc(tmp_path, cgroup="0::/../../elsewhere\n", mounts=mounts)) == file


@pytest.mark.parametrize("cgroup", ["", "0::/\n", "4:memory:/\n", "no colons\n"])
def test_where_nothing_counts_there_is_no_counter(tmp_path: Path, cgroup: str) -> None:
    assert counter(proc(tmp_path, cgroup=cgroup, mounts=V2.format(root="/", point=tmp_path / "none"))) is None
    assert counter(tmp_path / "no proc here") is None


@pytest.mark.parametrize("text", ["", "oom_kill", "oom_kill many", "oom 1\n", "\0\xff"])
def test_a_file_that_does_not_count_is_nobodys_word(tmp_path: Path, text: str) -> None:
    assert count(group(tmp_path, "memory.events", text)) is None


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A counter that a command can raise, as the kernel would."""
    file = group(tmp_path / "cg", "memory.events", EVENTS.format(kills=4))
    monkeypatch.setattr(oom, "_own_counter", lambda: file)
    return file


def killed_by_the_kernel() -> None:
    Path(os.environ["COUNTER"]).write_text("oom_kill 5\n")
    os.kill(os.getpid(), signal.SIGKILL)


def facts(result: Result) -> tuple[Outcome, str, str | None, bool]:
    return result.outcome, result.info, result.error, result.died


async def test_a_command_that_the_kernel_killed_says_so(system_clock: Clock, kernel: Path) -> None:
    result = await run(system_clock, shell(f"echo oom_kill 5 > {kernel}; kill -9 $$"))
    assert facts(result) == (Outcome.FAILED, OOM, OOM, True)


async def test_and_so_does_an_isolated_function(system_clock: Clock, kernel: Path) -> None:
    service = Service(name="s", function=killed_by_the_kernel, isolate=True, env={"COUNTER": str(kernel)})
    assert facts(await run(system_clock, service)) == (Outcome.FAILED, OOM, OOM, True)


async def test_a_shell_tells_of_its_child_by_a_status(system_clock: Clock, kernel: Path) -> None:
    result = await run(system_clock, shell(f"echo oom_kill 5 > {kernel}; exit 137"))
    assert facts(result) == (Outcome.FAILED, f"exit status 137: {OOM}", f"exit status 137: {OOM}", False)


@pytest.mark.usefixtures("kernel")
async def test_a_kill_that_the_kernel_did_not_count_was_somebody_elses(system_clock: Clock) -> None:
    why = "killed by signal 9 (not by raptor)"
    result = await run(system_clock, shell("echo so far; kill -9 $$"))
    assert facts(result) == (Outcome.FAILED, f"{why}: so far", why, True)


@pytest.mark.usefixtures("kernel")
async def test_status_137_alone_says_nothing_of_the_kernel(system_clock: Clock) -> None:
    assert (await run(system_clock, shell("exit 137"))).error == "exit status 137"


async def test_another_failure_is_not_put_down_to_memory(system_clock: Clock, kernel: Path) -> None:
    assert (await run(system_clock, shell(f"echo oom_kill 5 > {kernel}; exit 3"))).error == "exit status 3"
    assert (await run(system_clock, shell(f"echo oom_kill 6 > {kernel}; kill -15 $$"))).error == "killed by SIGTERM"


async def test_without_a_cgroup_a_kill_is_told_all_the_same(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oom, "_own_counter", lambda: None)
    assert (await run(system_clock, shell("kill -9 $$"))).error == "killed by signal 9 (not by raptor)"


async def test_a_counter_that_went_away_meanwhile_is_no_error(system_clock: Clock, kernel: Path) -> None:
    assert (await run(system_clock, shell(f"rm {kernel}; kill -9 $$"))).error == "killed by signal 9 (not by raptor)"


async def test_our_own_kill_is_a_timeout_and_nothing_else(system_clock: Clock, kernel: Path) -> None:
    result = await run(system_clock, shell(f"trap '' TERM; echo oom_kill 5 > {kernel}; sleep 60", timeout_s=0.2))
    assert (result.outcome, OOM in result.info) == (Outcome.TIMED_OUT, False)
