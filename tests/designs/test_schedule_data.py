"""A service that needs data is for tasks: no scheduler has any for it."""

from pathlib import Path

import pytest

from raptor import Node, service
from raptor.errors import BadInput


@service(every="1h")
async def mail(to: str, subject: str = "") -> None: ...


@service(every="1h")
async def report(title: str = "weekly") -> None: ...


@pytest.mark.asyncio
async def test_a_service_that_needs_data_is_not_scheduled(tmp_path: Path) -> None:
    async with Node(tmp_path / "state", services=[mail, report], listen=False) as node:
        with pytest.raises(BadInput, match="it needs to: put it as a task"):
            await node.schedule("main", ["mail"])
        assert (await node.schedule("main", ["report"]))["scheduler"] == "main"
