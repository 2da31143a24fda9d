"""How long tasks are kept that have ended."""

import asyncio
from pathlib import Path

import pytest

from raptor import Node, service
from raptor.config import Config
from raptor.state.base import Query

seen: list[int] = []


@service
async def note(number: int) -> None:
    seen.append(number)


@pytest.mark.asyncio
@pytest.mark.parametrize(("kept", "left"), [("24h", 1), ("0", 0)])
@pytest.mark.spec("003-04", "001-38")
async def test_a_task_that_is_done_is_kept_for_a_while_or_not_at_all(tmp_path: Path, kept: str, left: int) -> None:
    config = Config.load({"home": str(tmp_path / "state"), "retention.tasks": kept}, environ={}, cwd=tmp_path)
    async with Node(services=[note], config=config, listen=False) as node:
        ended = asyncio.Event()
        node.events.subscribe(lambda _: ended.set(), "task_ended")
        await node.put(note, {"number": left})
        await asyncio.wait_for(ended.wait(), 30)
        store = node.site.workshop.timetable.store
        assert len(await store.find(Query(service="note"))) == left
    assert seen[-1] == left
