"""A node whose loop hangs: told while it does, a line of the ledger afterwards."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

from raptor.clock import Clock
from raptor.events import Event
from raptor.node import Node
from raptor.service import Service
from raptor.tree import tree
from raptor.watchdog import Watch

PATIENCE_S = 30.0


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.came = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self.came.set()


async def test_a_service_that_blocks_the_loop_is_named_and_the_stall_is_in_the_ledger(
    system_clock: Clock, tmp_path: Path
) -> None:
    told = Told()

    async def rude() -> None:
        assert told.came.wait(PATIENCE_S)

    logging.getLogger("raptor.watchdog").addHandler(told)
    try:
        services = [Service(name="rude", function=rude)]
        watch = Watch(limit_s=0.05)
        async with Node(tmp_path, services, clock=system_clock, listen=False, watch=watch) as node:
            heard: list[Event] = []
            node.runtime.events.subscribe(heard.append, "loop_resumed")
            await node.run("rude")
            async with asyncio.timeout(PATIENCE_S):
                while not (lines := await node._store().slots("node", since=0, until=2**40)):
                    await system_clock.sleep(0.005)
    finally:
        logging.getLogger("raptor.watchdog").removeHandler(told)
    assert "in rude" in told.text
    assert lines[0].verdict == "failed"
    assert lines[0].reason.startswith("the event loop stalled for ")
    assert lines[0].recorded == heard[0].at


def children(node: Node) -> str:
    return repr(tree(node.root))


async def test_a_node_watches_its_loop_unless_told_not_to(system_clock: Clock, tmp_path: Path) -> None:
    async with Node(tmp_path / "a", clock=system_clock, listen=False) as node:
        assert "LoopWatch" in children(node)
        assert watchers() == 1
    async with Node(tmp_path / "b", clock=system_clock, listen=False, watch=None) as node:
        assert "LoopWatch" not in children(node)


async def test_nobody_watches_simulated_time(clock: Clock, tmp_path: Path) -> None:
    assert Node(tmp_path, clock=clock)._watch is None


def watchers() -> int:
    return sum(thread.name == "raptor-watchdog" for thread in threading.enumerate())


async def test_the_thread_ends_with_the_node(system_clock: Clock, tmp_path: Path) -> None:
    async with Node(tmp_path, clock=system_clock, listen=False):
        [thread] = [thread for thread in threading.enumerate() if thread.name == "raptor-watchdog"]
    await system_clock.offload(thread.join, PATIENCE_S)
    assert not thread.is_alive()
