"""Issue 5: commands where no node runs, on a store that nodes share."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from raptor import service
from raptor.clock import Clock
from raptor.commands.running import MARGIN_S
from raptor.config import Config
from raptor.connect import Connection, connect
from raptor.errors import AlreadyRunning, BadInput, NotRunning, NotWritten
from raptor.state import opening
from raptor.state.base import Store
from raptor.state.memory import MemoryStore
from raptor.testing.conformance.rights import node


@service(every="1h")
def greet() -> str:
    return "hello"


def settings(folder: Path, address: str) -> Config:
    flags = {"home": str(folder / "home"), "store": address}
    return Config.load(flags, environ={}, cwd=folder, user_file=folder / "none")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore(exclusive=False)

    @asynccontextmanager
    async def shared(rest: str, clock: Clock) -> AsyncGenerator[Store]:
        if rest == "//down":
            raise NotWritten("unreachable", "the store", "nobody answers")
        yield store

    monkeypatch.setitem(opening.STORES, "shared", shared)
    return store


@pytest.fixture
def anywhere(store: MemoryStore, tmp_path: Path) -> Connection:
    return connect(settings(tmp_path, "shared://"), [greet])


def test_commands_go_to_the_store_itself_and_leave_no_directory(anywhere: Connection, tmp_path: Path) -> None:
    answer = anywhere.call("schedule", name="main", services=["greet"])
    assert (answer["running"], [one["name"] for one in answer["services"]]) == (False, ["greet"])
    id = anywhere.call("put", service="greet", in_=60)["id"]
    assert anywhere.call("cancel", ids=[id])["cancelled"] == [id]
    anywhere.call("queue", name="default", paused=True)
    assert anywhere.call("queues")["queues"][0]["paused"]
    status = anywhere.call("status")
    assert [one["state"] for one in status["schedulers"]] == ["stopped"]
    assert (status["nodes"], status["degraded"]) == ([], None)
    assert anywhere.call("run", service="greet")["outcome"] == "ok"
    assert not list((tmp_path / "home").glob("*.sqlite"))


def test_what_needs_a_node_says_so(anywhere: Connection) -> None:
    anywhere.call("schedule", name="main", services=["greet"])
    for command, params in {"stop": {}, "start": {"name": "main"}, "reload": {}}.items():
        with pytest.raises(NotRunning):
            anywhere.call(command, **params)
    with pytest.raises(NotRunning, match="main does not run"):
        anywhere.call("stop", name="main")


def test_a_scheduler_of_another_node_is_named(anywhere: Connection, store: MemoryStore, system_clock: Clock) -> None:
    anywhere.call("schedule", name="main", services=["greet"])
    now = system_clock.now()

    async def other() -> None:
        await store.appear(node("a", now), now=now)
        await store.claim(["scheduler:main"], owner="a", now=now, lease_s=60.0)

    system_clock.run(other)
    assert anywhere.call("schedule", name="main", services=["greet"])["owner"] == "a:1"
    with pytest.raises(AlreadyRunning, match="on a:1"):
        anywhere.call("reset", scheduler="main")
    told = {"stopped": "main", "owner": "a:1", "ended": False}
    assert anywhere.call("stop", name="main", grace_s=-MARGIN_S) == told  # it does not hear
    assert not anywhere.call("dump", table="definitions")["tables"]["definitions"]["main"]["should_run"]


def test_a_store_that_does_not_answer_is_said(store: MemoryStore, tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match="nobody answers"):
        connect(settings(tmp_path, "shared://down"), [greet]).call("status")


def test_an_unknown_address_is_refused_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        connect(settings(tmp_path, "postgrs://ann:secret@host/db"), [greet]).call("status")
    assert "secret" not in str(refused.value)
