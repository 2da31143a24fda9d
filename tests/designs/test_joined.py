"""A program that joins a node has what it has from a node of its own."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raptor import running, service
from raptor.errors import TaskFailed
from raptor.joined import Joined


@service(every="1h")
async def double(number: int = 1) -> int:
    return number * 2


@service(max_attempts=1)
async def broken() -> None:
    raise ValueError("no")


@service
async def unscheduled() -> None:
    """Nobody else runs it: by hand it is never refused as running already."""


def test_a_joined_program_has_the_methods_of_a_node(tmp_path: Path) -> None:
    with (
        running(tmp_path / "state", [double, broken, unscheduled]),
        running(tmp_path / "state", [double], join=True) as node,
    ):
        assert isinstance(node, Joined)
        assert node.put(double, {"number": 4}).result(30) == 8
        assert node.put("double", {"number": 3}, in_=timedelta(0)).result(30) == 6
        assert double.put(number=5).result(30) == 10  # type: ignore[attr-defined]
        with pytest.raises(TaskFailed, match="no"):
            node.put("broken").result(30)
        later = node.put(double, {"number": 1}, at=datetime(2100, 1, 1, tzinfo=UTC), key="k")
        assert (later.new, node.put(double, {"number": 1}, in_="1h", key="k").new) == (True, False)
        assert len(node.put_many(double, [{"number": n} for n in range(3)], in_="1h")) == 3
        node.start("main", timedelta(hours=1))
        node.schedule("main", ["double"])
        node.pause("main")
        assert node.status("main")["schedulers"][0]["state"] == "paused"
        node.resume("main")
        assert node.run("unscheduled")["outcome"] == "ok"
        node.stop("main")


def test_leaving_a_joined_node_leaves_it_running(tmp_path: Path) -> None:
    with running(tmp_path / "state", [double]) as own:
        with running(tmp_path / "state", join=True):
            pass
        assert own.put(double, {"number": 1}).result(30) == 2
