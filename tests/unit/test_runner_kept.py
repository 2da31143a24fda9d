"""What a run finds in a process that has taken others, and what becomes of what those left."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.runners import Progress, family, group
from raptor.runners.child import found
from raptor.runners.functions import MAIN
from raptor.runners.output import Capture
from raptor.task import Outcome
from tests.system.hostile import kept
from tests.unit.runs import alive
from tests.unit.series import Series


async def test_each_run_has_its_own_environment_and_folder(system_clock: Clock, tmp_path: Path) -> None:
    async with Series(system_clock, cwd=str(tmp_path)) as series:
        for number in (1, 2, 3):
            facts: dict[str, Any] = {
                "run_id": f"{tmp_path.name}-{number}",
                "attempt": number,
                "planned": 0.0,
                "key": f"k{number}",
            }
            result = await series.run("tell_place", **facts)
            slot = "1970-01-01T00:00:00Z"
            said = f"{facts['run_id']} kept {number} {slot} k{number} {tmp_path} False"
            assert result.tail == f"{said}\nchild of {facts['run_id']}\n"
        assert (await series.one())[1] == 4


async def test_each_run_has_its_own_output(system_clock: Clock, tmp_path: Path) -> None:
    async with Series(system_clock, env={"PYTHONUNBUFFERED": ""}) as series:
        for number in (1, 2):
            result = await series.run("print_by_all_means", tmp_path / f"{number}.log")
            assert result.outcome is Outcome.OK
            assert result.tail == "a line\nraw\nINFO logged\nhalf a linefrom C\n"  # C's own buffer comes last
            body = (tmp_path / f"{number}.log").read_text().partition("\n")[2]
            assert body == result.tail
        assert (await series.run()).tail == ""


async def test_output_that_was_not_read_before_the_answer_is_read_then(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Capture):
        def __init__(self, fd: int, take: Any) -> None:
            super().__init__(fd, take)
            asyncio.get_running_loop().remove_reader(fd)

    monkeypatch.setattr(group, "Capture", Late)
    async with Series(system_clock) as series:
        for _ in range(2):
            trial = series.trial("print_into_large_pipe")
            assert (await trial.run()).outcome is Outcome.OK
            assert trial.log.total == 900_000
        assert (await series.one())[1] == 3


async def test_what_an_earlier_run_says_late_is_not_said_by_the_next(system_clock: Clock) -> None:
    told: list[Progress] = []
    async with Series(system_clock) as series:
        await series.run("leave_late_thread")
        result = await series.run("await_late_thread", on_progress=told.append)
        assert (result.outcome, result.tail, told) == (Outcome.OK, "", [Progress(1, None, "own")])
        assert (await series.one())[1] == 3


async def test_a_thread_that_prints_without_end_holds_nothing_up(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        assert await series.stays_after("print_from_thread_for_ever")


async def test_an_error_has_the_traceback_of_the_function(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        result = await series.run("raise_error")
        assert (result.outcome, result.info, result.died) == (Outcome.FAILED, "ValueError: an ordinary one", False)
        assert (result.error or "").splitlines()[1].endswith("in work")


async def test_an_alarm_of_one_run_does_not_end_the_next(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        await series.one("set_alarm")
        assert (await series.one("outlast_alarm"))[1] == 2


async def test_a_run_is_found_by_its_id_and_only_while_it_runs(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        pid, _ = await series.one()
        assert alive(series.ids[0]) == {}
        trial = series.trial("leave_daemon_and_hang")
        task = trial.start()
        daemon = int((await trial.log.hears("hanging")).split()[1])
        found = {member.pid for member in family.of_run({family.RUN_ID: trial.context.run_id})}
        assert found == {pid, daemon}
        assert family.of_run({family.RUN_ID: series.ids[0]}) == set()
        task.cancel()
        await asyncio.wait({task})


async def test_an_id_that_has_no_room_gets_a_process_of_its_own(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        await series.one()
        trial = series.trial("hang", run_id="r" * 1000)
        task = trial.start()
        pid = int((await trial.log.hears("hanging")).split()[1])
        assert [member.pid for member in family.of_run({family.RUN_ID: "r" * 1000})] == [pid]
        task.cancel()
        await asyncio.wait({task})
        assert (await series.one())[1] == 2


async def test_an_answer_that_is_too_long_is_cut(system_clock: Clock) -> None:
    async with Series(system_clock, function=kept.much) as series:
        for _ in range(2):
            result = await series.run()
            assert result.outcome is Outcome.OK
            assert result.value.startswith('["xxx')
            assert len(result.value) < 20_000


async def test_data_that_cannot_be_sent_is_refused(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        await series.one()
        assert (await series.run(object())).info.startswith("its data cannot be sent to another process")
        assert (await series.one())[1] == 2


def test_the_program_itself_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_text("def work(): ...")
    monkeypatch.setitem(sys.modules, MAIN, sys)  # and so it is not left there
    name = {"module": MAIN, "file": str(file), "qualname": "work"}
    assert found(batch=False, **name)[0] is found(batch=False, **name)[0]


async def test_an_answer_of_the_functions_own_making_is_not_believed(system_clock: Clock) -> None:
    async with Series(system_clock) as series:
        await series.one()
        assert (await series.one("forge"))[1] == 2
