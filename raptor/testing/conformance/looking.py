"""What a store promises of finding and counting tasks, and of telling when some become ready."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raptor.state.base import Counts, Query, Store
from raptor.task import State
from raptor.testing.conformance.sample import NOW, ended, ids, move, put, rows, taken, task, want


class TestFind:
    @pytest.mark.parametrize(
        ("query", "found"),
        [
            ({}, "abcdefg"),
            ({"states": (State.READY,)}, "efg"),
            ({"states": (State.TAKEN, State.DONE)}, "abd"),
            ({"queue": "mail"}, "bf"),
            ({"service": "other"}, "cf"),
            ({"key": "k"}, "ef"),
            ({"key": "k", "service": "other"}, "f"),
            ({"key": ""}, "g"),
            ({"parent": 7}, "ag"),
            ({"owner_not": "me"}, "b"),
            ({"lapsed": NOW + 61}, "ab"),
            ({"due_from": NOW + 1}, "fg"),
            ({"due_until": NOW}, "abcde"),
            ({"due_from": NOW - 2, "due_until": NOW - 1}, "bc"),
            ({"limit": 3}, "abc"),
            ({"limit": 0}, ""),
            ({"newest": True, "limit": 3}, "gfe"),
            ({"queue": "mail", "states": (State.READY,), "newest": True}, "f"),
            ({"queue": "nothing"}, ""),
        ],
        ids=str,
    )
    async def test_tasks_are_found_by(self, store: Store, query: dict[str, Any], found: str) -> None:
        await taken(store, task(data="a", parent=7), owner="me")
        await put(store, task(data="b", due=NOW - 1, queue="mail"))
        await store.take([want("mail")], owner="you", now=NOW)
        await ended(store, State.DEAD, task(data="c", due=NOW - 2, service="other"))
        await ended(store, State.DONE, task(data="d"))
        await put(
            store,
            task(data="e", key="k"),
            task(data="f", key="k", service="other", queue="mail", due=NOW + 1),
            task(data="g", key="", due=NOW + 1.5, parent=7),
        )
        assert "".join(str(one.data) for one in await store.find(Query(**query))) == found

    async def test_ids_are_found_in_their_order_and_unknown_ones_left_out(self, store: Store) -> None:
        placed = [id for id, _ in await put(store, *(task() for _ in range(5)))]
        assert await ids(store, ids=(placed[3], placed[0], 10**9)) == [placed[0], placed[3]]
        assert await ids(store, ids=(placed[3], placed[0]), newest=True) == [placed[3], placed[0]]

    async def test_page_after_page_finds_each_once(self, store: Store) -> None:
        placed = [id for id, _ in await put(store, *(task(queue="ab"[number % 2]) for number in range(25)))]
        found: list[int] = []
        while page := await ids(store, queue="a", after=found[-1] if found else 0, limit=4):
            found += page
        assert found == placed[::2]

    async def test_any_number_of_ids_can_be_asked_for(self, store: Store) -> None:
        placed = [id for id, _ in await put(store, *(task() for _ in range(3)))]
        assert await ids(store, ids=(*placed, *range(10**6, 10**6 + 300_000))) == placed


class TestCounts:
    @pytest.mark.spec("003-07", "003-19", "003-22", "R3-01")
    async def test_each_queue_is_counted_by_state(self, store: Store) -> None:
        await put(store, task(queue="second", due=NOW - 1))
        await ended(store, State.DONE, task())
        await ended(store, State.DEAD, task(), task())
        await ended(store, State.CANCELLED, task(), task(), task())
        await taken(store, task())
        await put(store, task(due=NOW - 2), task(due=NOW + 5))
        assert await store.stat(now=NOW) == [
            Counts(queue="default", ready=1, delayed=1, taken=1, done=1, dead=2, cancelled=3, oldest=NOW - 2),
            Counts(queue="second", ready=1, oldest=NOW - 1),
        ]

    async def test_delayed_is_a_question_of_the_time(self, store: Store) -> None:
        await put(store, task(), task(due=NOW + 1))
        assert await store.stat(now=NOW - 1) == [Counts(queue="default", delayed=2)]
        assert await store.stat(now=NOW) == [Counts(queue="default", ready=1, delayed=1, oldest=NOW)]
        assert await store.stat(now=NOW + 1) == [Counts(queue="default", ready=2, oldest=NOW)]

    async def test_there_is_nothing_to_count_in_an_empty_store(self, store: Store) -> None:
        assert await store.stat(now=NOW) == []
        assert await store.queues() == []

    async def test_queues_that_have_ready_tasks_are_named(self, store: Store) -> None:
        await taken(store, task())
        await put(store, task(queue="b", due=NOW + 9), task(queue="ä"), task(queue="a"), task(queue="b"))
        assert await store.queues() == ["a", "b", "ä"]

    async def test_what_comes_next_is_told_the_earliest_first(self, store: Store) -> None:
        (suspect,) = await taken(store, task(queue="default"))
        await store.settle([move(suspect, State.READY, due=NOW + 4, suspect=True)], now=NOW)
        await taken(store, task())
        dues = [("a", 5, 9), ("b", 2, 1), ("a", 2, 0), ("a", 0, 5), ("c", 1, 5), ("a", -1, 5), ("b", 3, 5)]
        await put(store, *(task(queue=queue, due=NOW + late, priority=priority) for queue, late, priority in dues))
        told = await store.upcoming(["b", "a", "default", "none"], after=NOW, limit=5)
        late = [("a", 2), ("b", 2), ("b", 3), ("default", 4), ("a", 5)]
        assert told == [(queue, NOW + after) for queue, after in late]
        assert await store.upcoming(["b", "a"], after=NOW, limit=2) == told[:2]
        assert await store.upcoming([], after=NOW, limit=2) == []


class TestBells:
    @pytest.mark.spec("000-09")
    async def test_a_put_rings_with_the_earliest_due_time_of_each_queue(self, store: Store) -> None:
        bell = store.listen()
        await put(store, task(due=NOW + 5), task(due=NOW + 3), task(queue="b", due=NOW + 9), task(due=NOW + 4))
        await put(store, task(queue="b", due=NOW + 8))
        assert await self._rung(bell) == {"default": NOW + 3, "b": NOW + 8}
        bell.close()

    async def test_a_retry_a_successor_and_a_revival_ring(self, store: Store) -> None:
        first, second = await taken(store, task(), task())
        bell = store.listen()
        await store.settle([move(first, State.READY, due=NOW + 5)], now=NOW)
        assert await self._rung(bell) == {"default": NOW + 5}
        await store.settle([move(second, State.DEAD, successor=task(queue="b", due=NOW + 7))], now=NOW)
        assert await self._rung(bell) == {"b": NOW + 7}
        await store.revive([second.id], now=NOW + 2)
        assert await self._rung(bell) == {"default": NOW + 2}
        bell.close()

    async def test_a_replacement_rings_with_its_new_time(self, store: Store) -> None:
        await put(store, task(key="k", due=NOW + 9))
        bell = store.listen()
        await put(store, task(key="k", due=NOW + 2), replace=True)
        assert await self._rung(bell) == {"default": NOW + 2}
        bell.close()

    async def test_what_makes_nothing_ready_rings_no_bell(self, store: Store) -> None:
        first, second = await taken(store, task(key="k"), task())
        bell = store.listen()
        await put(store, task(key="k"))
        await store.settle([move(first, State.DONE), move(second, State.READY, id=10**9)], now=NOW)
        await store.cancel([second.id], now=NOW, reason="x")
        waiting = asyncio.ensure_future(bell.ring())
        await rows(store)  # whatever rings late has rung by then
        await asyncio.sleep(0)
        assert not waiting.done()
        await put(store, task(queue="b"))
        assert await waiting == {"b": NOW}
        bell.close()

    async def test_whoever_waits_is_woken_and_everybody_hears(self, store: Store) -> None:
        bells = [store.listen() for _ in range(3)]
        waiting = [asyncio.ensure_future(bell.ring()) for bell in bells]
        await asyncio.sleep(0)
        await put(store, task())
        async with asyncio.timeout(20):
            assert [dict(await one) for one in waiting] == [{"default": NOW}] * 3
        for bell in bells:
            bell.close()

    async def test_a_closed_bell_hears_no_more(self, store: Store) -> None:
        closed, other = store.listen(), store.listen()
        closed.close()
        closed.close()
        await put(store, task())
        await self._rung(other)
        waiting = asyncio.ensure_future(closed.ring())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        other.close()

    async def _rung(self, bell: Any) -> dict[str, float]:
        async with asyncio.timeout(20):
            return dict(await bell.ring())
