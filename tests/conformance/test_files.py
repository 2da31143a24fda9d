"""The part of the suite that is about surviving, and what only files can suffer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raptor.clock import Clock
from raptor.errors import RefusedState
from raptor.state import sqlite
from raptor.state.base import Counts, Query, Receipt, Store, Want
from raptor.state.files import ReadStore
from raptor.state.glance import Glance
from raptor.state.home import Home
from raptor.state.settling import settle
from raptor.state.sqlite import WAVE
from raptor.state.tasks import take_all
from raptor.task import State, Task
from raptor.testing.conformance import TestSurvival
from raptor.testing.conformance.sample import move
from raptor.testing.conformance.survival import OpenAgain
from tests.conformance.conftest import Files
from tests.system.states import change

__all__ = ["TestSurvival"]


@pytest.fixture
def files(tmp_path: Path, system_clock: Clock) -> Iterator[Files]:
    files = Files(tmp_path / "state", system_clock)
    yield files
    asyncio.run(files.close())


@pytest.fixture
def store(files: Files) -> Store:
    return files.store


@pytest.fixture
def open_again(files: Files) -> OpenAgain:
    return files.open_again


async def test_a_reader_finds_and_counts_and_can_change_nothing(files: Files, tmp_path: Path) -> None:
    await files.store.put([Task(service="work", due=5.0)], now=1.0)
    (task,) = await files.store.find(Query())
    reader = ReadStore(Home.read(tmp_path / "state"))
    assert await reader.find(Query()) == [task]
    assert await reader.stat(now=9.0) == await files.store.stat(now=9.0)
    assert await reader.queues() == ["default"]
    assert await reader.upcoming(["default"], after=1.0, limit=5) == [("default", 5.0)]
    for attempt in (
        reader.put([task], now=1.0),
        reader.take([Want(queue="default", room=1)], owner="a", now=9.0),
        reader.settle([], now=1.0),
        reader.extend([], until=1.0),
        reader.cancel([task.id], now=1.0, reason="x"),
        reader.revive([task.id], now=1.0),
        reader.drop([task.id]),
        reader.shed(before=9.0, limit=9),
    ):
        with pytest.raises(RefusedState, match="read only"):
            await attempt
    with pytest.raises(RefusedState, match="read only"):
        reader.listen()
    await reader.close()
    assert await files.store.find(Query()) == [task]


async def test_a_glance_counts_what_waits_and_what_is_dead_but_not_what_is_done(files: Files, tmp_path: Path) -> None:
    await files.store.put([Task(service="work", due=1.0) for _ in range(3)], now=1.0)
    given = (await files.store.take([Want(queue="default", room=2)], owner="a", now=1.0)).tasks
    await files.store.settle([move(given[0], State.DONE), move(given[1], State.DEAD)], now=1.0)
    with Glance(tmp_path / "state") as glance:
        assert await glance.stat(now=2.0) == [Counts(queue="default", ready=1, dead=1, oldest=1.0)]


@pytest.mark.parametrize(
    "harm", ["data = 'x'", "data = CAST(x'22ff22' AS TEXT)", "history = '[{'", "history = CAST(x'5bff5d' AS TEXT)"]
)
async def test_a_damaged_task_is_given_as_damaged_and_holds_up_nobody(files: Files, tmp_path: Path, harm: str) -> None:
    placed = await files.store.put([Task(service="work", due=float(number)) for number in range(3)], now=1.0)
    change(tmp_path / "state" / "raptor.sqlite", f"UPDATE task SET {harm} WHERE id = {placed[1].id}")
    given = (await files.store.take([Want(queue="default", room=9)], owner="a", now=9.0)).tasks
    assert [(task.id, task.reason) for task in given] == [
        (placed[0].id, ""), (placed[1].id, "damaged"), (placed[2].id, ""),
    ]  # fmt: skip
    assert len(await files.store.find(Query())) == 3


@pytest.mark.parametrize("harm", ["'[['", "CAST(x'5bff5d' AS TEXT)"])
async def test_a_rate_that_cannot_be_read_any_more_counts_as_used_up(files: Files, tmp_path: Path, harm: str) -> None:
    want = Want(queue="default", room=9, rate=2, per_s=10.0)
    await files.store.put([Task(service="work", due=0.0)] * 4, now=1.0)
    assert len((await files.store.take([want], owner="a", now=50.0)).tasks) == 2
    change(tmp_path / "state" / "raptor.sqlite", f"UPDATE pace SET starts = {harm}")
    for now in (70.0, 79.0):
        taken = await files.store.take([want], owner="a", now=now)
        assert (taken.tasks, taken.spent) == ([], {"default": 80.0})
    assert len((await files.store.take([want], owner="a", now=80.0)).tasks) == 2


def test_raptor_itself_needs_no_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None; import raptor.node, raptor.testing"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_of_puts_that_share_a_commit_one_that_cannot_be_stored_fails_alone(files: Files) -> None:
    def put(data: str) -> Awaitable[list[Receipt]]:
        return files.store.put([Task(service="work", due=1.0, data=data)], now=1.0)

    answers = await asyncio.gather(put('"a"'), put('"\ud800"'), put('"b"'), return_exceptions=True)
    assert isinstance(answers[1], UnicodeEncodeError)
    found = await files.store.find(Query())
    assert [task.data for task in found] == ['"a"', '"b"']
    assert [task.id for task in found] == [answer[0].id for answer in (answers[0], answers[2])]  # type: ignore[index]


@pytest.mark.parametrize(("ended", "is_here"), [(WAVE, True), (WAVE - 1, False), (1, False)])
def test_a_wave_is_written_in_the_callers_thread_and_a_few_results_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: int, is_here: bool
) -> None:
    threads: list[threading.Thread] = []

    def written(*given: Any) -> frozenset[int]:
        threads.append(threading.current_thread())
        return settle(*given)

    async def end() -> None:
        database = sqlite.Database(tmp_path / "raptor.sqlite", state="s", monotonic=lambda: 0.0)  # a disk that is quick
        await database.put([Task(service="work", due=1.0)] * ended, now=1.0, replace=False)
        want = Want(queue="default", room=ended)
        taken = await database.ask(lambda connection: take_all(connection, [want], "a", 2.0))
        assert await database.settle([move(task, State.DONE, ended=3.0) for task in taken.tasks], now=3.0) == set()
        await database.shut()

    monkeypatch.setattr(sqlite, "settle", written)
    asyncio.run(end())
    assert [thread is threading.main_thread() for thread in threads] == [is_here]
