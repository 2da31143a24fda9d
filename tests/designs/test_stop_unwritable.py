"""A node ends within its grace though its store cannot write what its tasks came to."""

from collections.abc import Sequence
from typing import Any

from raptor import Node, VirtualClock, service
from raptor.errors import NotWritten, RefusedState
from raptor.state.memory import MemoryStore
from raptor.task import Move

GRACE_S = 3.0
LONGEST_TRY_S = 5.0


class Full(MemoryStore):
    """Takes everything but results."""

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        raise NotWritten("full", "raptor.sqlite", "the disk is full; free some space")


class Broken(MemoryStore):
    """Takes nothing any more, once it is broken: only a new start helps."""

    is_broken = False

    async def amend(self, *args: Any) -> bool:
        if self.is_broken:
            raise RefusedState("broken", "raptor.sqlite", "could not be written", "start again")
        return await super().amend(*args)


@service
async def work() -> None: ...


def test_a_store_that_cannot_write_does_not_hold_up_the_end_of_a_worker() -> None:
    clock = VirtualClock()

    async def live() -> float:
        failing: list[object] = []
        async with Node(store=Full(), services=[work], clock=clock, grace_s=GRACE_S) as node:
            node.events.subscribe(failing.append, "store_failing")
            await node.put(work)
            while not failing:
                await clock.sleep(0.1)
            asked = clock.monotonic()
        return clock.monotonic() - asked

    assert clock.run(live) <= GRACE_S + LONGEST_TRY_S


def test_a_node_whose_store_is_broken_ends_all_the_same() -> None:
    clock = VirtualClock()

    async def live() -> bool:
        store = Broken()
        async with Node(store=store, services=[work], clock=clock, grace_s=GRACE_S) as node:
            await node.start("main", "1h")
            store.is_broken = True
        return node.root.alive

    assert not clock.run(live)
