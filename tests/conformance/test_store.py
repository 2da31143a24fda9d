"""The suite over the stores of one process: in memory, and in the files of a state directory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.state.base import Query, Store
from raptor.state.memory import MemoryStore
from raptor.task import Task
from raptor.testing.conformance import (
    TestBells,
    TestCancel,
    TestCounts,
    TestCrowd,
    TestDrop,
    TestExtend,
    TestFind,
    TestKeys,
    TestLapse,
    TestLedger,
    TestLimits,
    TestModel,
    TestNews,
    TestPresence,
    TestPut,
    TestRevive,
    TestRights,
    TestSettle,
    TestShed,
    TestSuccessors,
    TestTables,
    TestTake,
)
from tests.conformance.conftest import Files

__all__ = [
    "TestBells",
    "TestCancel",
    "TestCounts",
    "TestCrowd",
    "TestDrop",
    "TestExtend",
    "TestFind",
    "TestKeys",
    "TestLapse",
    "TestLedger",
    "TestLimits",
    "TestModel",
    "TestNews",
    "TestPresence",
    "TestPut",
    "TestRevive",
    "TestRights",
    "TestSettle",
    "TestShed",
    "TestSuccessors",
    "TestTables",
    "TestTake",
]


@pytest.fixture(params=["memory", "shared memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path, system_clock: Clock) -> Iterator[Store]:
    if request.param != "files":
        yield MemoryStore(exclusive=request.param == "memory")
        return
    files = Files(tmp_path / "state", system_clock)
    yield files.store
    asyncio.run(files.close())


@pytest.mark.spec("003-23")
async def test_what_is_in_memory_is_of_one_store_alone() -> None:
    await MemoryStore().put([Task(service="work", due=0.0)], now=0.0)
    assert await MemoryStore().find(Query()) == []


async def test_a_key_that_nobody_holds_any_more_takes_no_memory() -> None:
    store = MemoryStore()
    ((id, _),) = await store.put([Task(service="work", due=0.0, key="once")], now=0.0)
    await store.cancel([id], now=0.0, reason="enough")
    await store.drop([id])
    assert not store._keyed  # pyright: ignore[reportPrivateUsage]
