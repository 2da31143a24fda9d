"""A node on a store that is not the files of its home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raptor import Node, service
from raptor.client import is_listening
from raptor.clock import Clock
from raptor.config import Config
from raptor.errors import AlreadyRunning, BadInput, NotRunning, RaptorError
from raptor.state.home import Home
from raptor.state.memory import MemoryStore


@service
async def greet(name: str) -> str:
    return f"hello {name}"


def settings(folder: Path) -> Config:
    return Config.load({"home": str(folder / "home")}, environ={}, cwd=folder, user_file=folder / "none")


async def test_without_a_home_nothing_is_written_and_nobody_listens(system_clock: Clock, tmp_path: Path) -> None:
    async with Node(store="memory:", services=[greet], config=settings(tmp_path), clock=system_clock) as node:
        assert await (await node.put(greet, {"name": "ann"})).result(20) == "hello ann"
        assert not is_listening(tmp_path / "home")
    assert os.listdir(tmp_path) == []


async def test_a_store_of_ones_own_outlives_the_node(system_clock: Clock, tmp_path: Path) -> None:
    store = MemoryStore()
    for _ in range(2):
        async with Node(store=store, services=[greet], config=settings(tmp_path), clock=system_clock) as node:
            await (await node.put(greet, {"name": "ann"})).result(20)
    assert [counts.done for counts in await store.stat(now=system_clock.now())] == [2]


async def test_with_a_home_it_has_its_lock_and_its_socket(system_clock: Clock, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Node(home, store="memory:", services=[greet], clock=system_clock):
        assert is_listening(home)
        with pytest.raises(AlreadyRunning):
            Home.open(home, system_clock)
    assert not list(home.glob("*.sqlite"))


async def test_an_address_is_opened_and_let_go(system_clock: Clock, tmp_path: Path) -> None:
    address = f"sqlite://{tmp_path}/state"
    for count in (1, 2):
        async with Node(store=address, services=[greet], config=settings(tmp_path), clock=system_clock) as node:
            await (await node.put(greet, {"name": "ann"})).result(20)
            assert len((await node.call("tasks"))["tasks"]) == count
    Home.open(tmp_path / "state", system_clock).close()


async def test_a_start_that_fails_lets_go_of_the_store(system_clock: Clock, tmp_path: Path) -> None:
    class Failing(Node):
        async def _opened(self, timetable: object) -> None:
            raise ValueError("not today")

    node = Failing(store=f"sqlite://{tmp_path}/state", config=settings(tmp_path), clock=system_clock)
    with pytest.raises(RaptorError, match="not today"):
        await node.__aenter__()
    Home.open(tmp_path / "state", system_clock).close()


async def test_an_unknown_address_is_refused_at_once(system_clock: Clock) -> None:
    with pytest.raises(BadInput, match="did you mean 'memory'"):
        Node(store="memry:", clock=system_clock)


async def test_a_start_while_the_tree_is_restarted_is_refused_in_plain_words(clock: Clock, tmp_path: Path) -> None:
    async with Node(store=MemoryStore(), services=[greet], config=settings(tmp_path), clock=clock) as node:
        schedulers = node.runtime.whereis("schedulers")
        assert schedulers is not None
        schedulers.kill()
        await schedulers.wait()
        assert node.runtime.whereis("schedulers") is None
        with pytest.raises(NotRunning, match="try again"):
            await node.start("main", "1h")
