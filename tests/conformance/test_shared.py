"""The part of the suite that is for stores of many nodes."""

from __future__ import annotations

import pytest

from raptor.rows import LEASE_S
from raptor.state.base import BEAT_S, Store
from raptor.state.memory import MemoryStore
from raptor.testing.conformance import TestManyOwners
from raptor.testing.conformance.rights import granted, node
from raptor.testing.conformance.sample import NOW

__all__ = ["TestManyOwners"]


@pytest.fixture
def store() -> Store:
    return MemoryStore(exclusive=False)


async def test_one_whose_connection_is_gone_is_gone_after_a_beat() -> None:
    store = MemoryStore(exclusive=False)
    await store.appear(node("a"), now=NOW)
    await granted(store, "a", lease_s=LEASE_S)
    store.sever("a")
    assert await granted(store, "b", now=NOW + BEAT_S) is None
    assert await granted(store, "b", now=NOW + BEAT_S + 0.001) is not None


async def test_where_a_store_has_one_process_everybody_else_is_gone() -> None:
    store = MemoryStore()
    await store.appear(node("a"), now=NOW)
    first = await granted(store, "a")
    second = await granted(store, "b", now=NOW)
    assert first is not None
    assert second is not None
    assert second.fence == first.fence + 1
    assert [one.owner for one in await store.appear(node("b"), now=NOW)] == ["b"]
