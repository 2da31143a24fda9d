"""A service in a process of its own puts tasks as any other does."""

from pathlib import Path

import pytest

from raptor import Node
from tests.system import putting_apart


@pytest.mark.asyncio
@pytest.mark.spec("003-37")
@pytest.mark.parametrize(("name", "state"), [("branch", "done"), ("async_branch", "delayed")])
async def test_a_task_in_a_process_of_its_own_puts_another(tmp_path: Path, name: str, state: str) -> None:
    services = [putting_apart.leaf, putting_apart.branch, putting_apart.async_branch]
    async with Node(tmp_path / "state", services=services) as node:
        parent = await node.put(name, {"number": 7})
        child = await parent.result(30)
        if state == "done":
            await node.call("wait", id=child, timeout_s=30)
        found = await node.call("task", id=child)
        assert (found["service"], found["data"], found["parent"]) == ("leaf", {"number": 7}, parent.id)
        assert found["state"] == state
