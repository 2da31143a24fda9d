"""What a store promises of cancelling, reviving, dropping and shedding tasks."""

from __future__ import annotations

import pytest

from raptor.state.base import Store
from raptor.task import ENDED, State, Try
from raptor.testing.conformance.sample import NOW, ended, ids, move, one, put, replaced, rows, take, taken, task


class TestCancel:
    async def test_what_is_ready_is_cancelled(self, store: Store) -> None:
        (first, _), (second, _) = await put(store, task(), task(due=NOW + 9))
        before = await one(store, second)
        assert await store.cancel([second], now=NOW + 1, reason="not needed") == {second: State.READY}
        right = replaced(before, state=State.CANCELLED, ended=NOW + 1, reason="not needed")
        assert await one(store, second) == right
        assert [given.id for given in await take(store, now=NOW + 99)] == [first]

    async def test_what_is_taken_is_marked_and_goes_on(self, store: Store) -> None:
        (given,) = await taken(store, task())
        assert await store.cancel([given.id], now=NOW, reason="x") == {given.id: State.TAKEN}
        assert await rows(store) == [replaced(given, unwanted=True)]

    @pytest.mark.parametrize("state", ENDED)
    async def test_what_has_ended_stays(self, store: Store, state: State) -> None:
        (gone,) = await ended(store, state, task())
        assert await store.cancel([gone.id], now=NOW + 1, reason="x") == {gone.id: state}
        assert await rows(store) == [gone]

    async def test_unknown_ones_are_not_told_of(self, store: Store) -> None:
        ((id, _),) = await put(store, task())
        assert await store.cancel([id, id, 10**9], now=NOW, reason="x") == {id: State.READY}
        assert await store.cancel([], now=NOW, reason="x") == {}

    async def test_any_number_can_be_cancelled_at_once(self, store: Store) -> None:
        placed = await put(store, *(task() for _ in range(300)))
        several = [id for id, _ in placed] + list(range(10**6, 10**6 + 300_000))
        assert len(await store.cancel(several, now=NOW, reason="x")) == 300


class TestRevive:
    @pytest.mark.parametrize("state", ENDED)
    async def test_an_ended_task_is_ready_again_from_attempt_0(self, store: Store, state: State) -> None:
        (given,) = await taken(store, task(key="k", key_until=NOW + 99))
        history = (Try(start=NOW, end=NOW, verdict="retry"),)
        over = move(
            given, state, attempts=3, deaths=2, ended=NOW + 1, started=NOW, output="1", error="e", reason="failed",
            history=history, previous=NOW - 9, suspect=True,
        )  # fmt: skip
        await store.settle([over], now=NOW)
        before = await one(store, given.id)
        assert await store.revive([given.id], now=NOW + 5) == [given.id]
        assert await one(store, given.id) == replaced(
            before, state=State.READY, due=NOW + 5, attempts=0, deaths=0, ended=None, started=None, reason="",
            previous=before.due, key_until=None,
        )  # fmt: skip
        (again,) = await take(store, now=NOW + 5, suspects=True)
        assert (again.id, again.fence, again.history) == (given.id, 2, history)

    async def test_what_has_not_ended_is_left_alone(self, store: Store) -> None:
        (given,) = await taken(store, task())
        ((id, _),) = await put(store, task())
        before = await rows(store)
        assert await store.revive([id, given.id, 10**9], now=NOW + 1) == []
        assert await rows(store) == before

    async def test_they_are_told_in_the_order_of_asking_each_once(self, store: Store) -> None:
        first, second = await ended(store, State.DEAD, task(), task())
        assert await store.revive([second.id, first.id, second.id], now=NOW) == [second.id, first.id]

    async def test_one_whose_key_is_held_by_now_stays_ended(self, store: Store) -> None:
        first, other = await ended(store, State.DEAD, task(key="k"), task(key="l"))
        (second,) = await ended(store, State.DEAD, task(key="k"))
        ((held, _),) = await put(store, task(key="k"))
        assert await store.revive([first.id, second.id, other.id], now=NOW) == [other.id]
        await store.cancel([held], now=NOW, reason="x")
        assert await store.revive([first.id, second.id], now=NOW) == [first.id]


class TestDrop:
    async def test_only_what_has_ended_is_deleted(self, store: Store) -> None:
        gone = [(await ended(store, state, task()))[0].id for state in ENDED]
        (given,) = await taken(store, task())
        ((id, _),) = await put(store, task())
        assert await store.drop([*gone, *gone, id, given.id, 10**9]) == 3
        assert await ids(store) == [given.id, id]
        assert await store.drop([]) == 0


class TestShed:
    async def test_what_ended_before_is_deleted_and_the_dead_stay(self, store: Store) -> None:
        for state in ENDED:
            for late in (0.0, 1.0, 2.0):
                await ended(store, state, task(), at=NOW + late)
        await taken(store, task())
        await put(store, task())
        assert await store.shed(before=NOW + 1, limit=100) == 2
        left = [(found.state, found.ended) for found in await rows(store)]
        assert left == [
            (State.DONE, NOW + 1), (State.DONE, NOW + 2),
            (State.DEAD, NOW), (State.DEAD, NOW + 1), (State.DEAD, NOW + 2),
            (State.CANCELLED, NOW + 1), (State.CANCELLED, NOW + 2),
            (State.TAKEN, None), (State.READY, None),
        ]  # fmt: skip

    async def test_it_goes_in_batches_the_oldest_first(self, store: Store) -> None:
        for late in (3, 1, 4, 1, 5):
            await ended(store, State.DONE, task(), at=NOW + late)
        assert await store.shed(before=NOW + 99, limit=2) == 2
        assert [found.ended for found in await rows(store)] == [NOW + 3, NOW + 4, NOW + 5]
        assert await store.shed(before=NOW + 99, limit=2) == 2
        assert await store.shed(before=NOW + 99, limit=2) == 1
        assert await store.shed(before=NOW + 99, limit=2) == 0

    async def test_a_key_that_is_still_held_keeps_its_task(self, store: Store) -> None:
        await ended(store, State.DONE, task(key="k", key_until=NOW + 10), task(key_until=NOW + 10), task(key="l"))
        assert await store.shed(before=NOW + 5, limit=100) == 2
        assert [found.key for found in await rows(store)] == ["k"]
        assert await store.shed(before=NOW + 10, limit=100) == 1

    async def test_one_that_lost_its_key_is_not_kept_for_it(self, store: Store) -> None:
        (given,) = await taken(store, task(key="k", key_until=NOW + 1000))
        await put(store, task(key="k"), replace=True)
        await store.settle([move(given, State.DONE, ended=NOW)], now=NOW)
        assert await store.shed(before=NOW + 5, limit=100) == 1
