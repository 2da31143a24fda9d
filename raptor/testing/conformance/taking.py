"""What a store promises of taking tasks: in order, never early, each once, within the limits of its queue."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest

from raptor.state.base import Store, Taken
from raptor.state.prospect import Prospect
from raptor.task import State, Task
from raptor.testing.conformance.sample import NOW, ended, ids, move, one, put, replaced, rows, take, taken, task, want


class TestTake:
    @pytest.mark.spec("003-03", "003-10", "000-32", "R3-01")
    async def test_a_taken_task_is_its_owners_and_nobody_elses(self, store: Store) -> None:
        ((id, _),) = await put(store, task(), now=NOW - 5)
        (given,) = await take(store, owner="node 1", lease_s=30.0)
        assert given == replaced(
            task(), id=id, created=NOW - 5, state=State.TAKEN, fence=1, owner="node 1", lease=NOW + 30, started=NOW
        )
        assert await one(store, id) == given
        assert await take(store, owner="node 2") == []

    @pytest.mark.spec("003-18")
    async def test_a_lease_is_60_seconds_unless_said_otherwise(self, store: Store) -> None:
        (given,) = await taken(store, task())
        assert given.lease == NOW + 60

    async def test_every_take_raises_the_fence(self, store: Store) -> None:
        (given,) = await taken(store, task())
        for fence in (2, 3):
            await store.settle([move(given, State.READY)], now=NOW)
            (given,) = await take(store, owner=f"owner {fence}")
            assert (given.fence, given.owner) == (fence, f"owner {fence}")

    async def test_what_a_task_has_been_through_is_handed_out_with_it(self, store: Store) -> None:
        (given,) = await taken(store, task(key="k"))
        await store.settle(
            [move(given, State.READY, attempts=1, previous=NOW, error="e", output="1", deaths=1)], now=NOW
        )
        before = await one(store, given.id)
        (again,) = await take(store, owner="b", now=NOW + 1)
        assert again == replaced(before, state=State.TAKEN, fence=2, owner="b", lease=NOW + 61, started=NOW + 1)
        assert again == await one(store, given.id)

    @pytest.mark.spec("000-28", "003-13", "003-16", "R3-01")
    async def test_nothing_is_taken_early_not_even_by_the_least(self, store: Store) -> None:
        await put(store, task(due=NOW))
        assert await take(store, now=NOW - 1e-6) == []
        assert await take(store, now=math.nextafter(NOW, 0.0)) == []
        assert len(await take(store, now=NOW)) == 1

    async def test_what_was_due_long_ago_is_taken(self, store: Store) -> None:
        await put(store, task(due=-5.0), task(due=0.0))
        assert [given.due for given in await take(store)] == [-5.0, 0.0]

    @pytest.mark.spec("000-29")
    async def test_the_order_is_priority_then_due_then_id(self, store: Store) -> None:
        asked = [(5, -1.0), (0, -0.5), (9, -9.0), (5, -2.0), (0, -0.5), (5, -1.0), (1, 0.0), (0, -0.75)]
        placed = await put(store, *(task(priority=priority, due=NOW + late) for priority, late in asked))
        right = sorted((priority, late, id) for (priority, late), (id, _) in zip(asked, placed, strict=True))
        given = [one for _ in range(4) for one in await take(store, 2)]
        assert [(one.priority, one.due - NOW, one.id) for one in given] == right

    @pytest.mark.parametrize("concurrency", [None, 9])
    async def test_what_there_may_be_room_for_is_given_once_that_is_sure(
        self, store: Store, concurrency: int | None
    ) -> None:
        ((id, _),) = await put(store, task())
        sure, found = asyncio.get_running_loop().create_future(), list[Task]()
        taking = asyncio.ensure_future(
            store.take([want(concurrency=concurrency)], owner="a", now=NOW, prospect=Prospect(sure, found.extend))
        )
        assert (await one(store, id)).state is State.READY
        assert not taking.done()
        sure.set_result(True)
        given = (await taking).tasks
        assert [one.id for one in given] == [id]
        assert found in ([], given)
        assert (await one(store, id)).owner == "a"

    @pytest.mark.parametrize("concurrency", [None, 9])
    async def test_where_there_is_no_room_in_the_end_nothing_was_given(
        self, store: Store, concurrency: int | None
    ) -> None:
        await put(store, task(), task())
        before = await rows(store)
        sure = asyncio.get_running_loop().create_future()
        taking = asyncio.ensure_future(
            store.take([want(concurrency=concurrency)], owner="a", now=NOW, prospect=Prospect(sure))
        )
        await store.queues()
        sure.set_result(False)
        assert (await taking).tasks == []
        assert await rows(store) == before
        assert [given.fence for given in await take(store, owner="b")] == [1, 1]

    async def test_a_take_that_nobody_waits_for_any_more_keeps_nothing_back(self, store: Store) -> None:
        await put(store, task())
        sure = asyncio.get_running_loop().create_future()
        taking = asyncio.ensure_future(store.take([want()], owner="a", now=NOW, prospect=Prospect(sure)))
        await store.queues()
        taking.cancel()
        sure.set_result(False)
        assert len(await take(store, owner="b")) == 1

    async def test_one_that_is_not_due_holds_up_nobody(self, store: Store) -> None:
        await put(store, task(priority=0, due=NOW + 1), task(priority=9))
        assert [given.priority for given in await take(store)] == [9]

    @pytest.mark.spec("003-03", "000-31")
    @pytest.mark.parametrize("room", [-1, 0, 1, 4, 10, 11])
    async def test_at_most_as_many_as_there_is_room_for_are_taken(self, store: Store, room: int) -> None:
        await put(store, *(task(priority=number % 3) for number in range(10)))
        assert len(await take(store, room)) == min(max(room, 0), 10)
        assert len(await take(store)) == 10 - min(max(room, 0), 10)

    @pytest.mark.spec("R3-01")
    async def test_a_queue_gives_only_its_own(self, store: Store) -> None:
        await put(store, task(queue="a"), task(queue="b"), task(queue="A"), task(queue=""))
        assert [given.queue for given in await take(store, queue="b")] == ["b"]
        assert await take(store, queue="c") == []
        assert await ids(store, states=(State.READY,), queue="b") == []
        assert len(await ids(store, states=(State.READY,))) == 3

    async def test_several_queues_are_taken_from_at_once_each_with_its_own_room(self, store: Store) -> None:
        await put(store, *(task(queue=queue) for queue in "abcabcabc"))
        given = await store.take([want("c", 2), want("x"), want("a", 1), want("b")], owner="a", now=NOW)
        assert [one.queue for one in given.tasks] == ["c", "c", "a", "b", "b", "b"]
        assert given.spent == {}

    async def test_wanting_nothing_is_no_error(self, store: Store) -> None:
        assert await store.take([], owner="a", now=NOW) == Taken([], {})

    async def test_suspects_are_taken_apart(self, store: Store) -> None:
        first, _ = await taken(store, task(), task())
        await store.settle([move(first, State.READY, suspect=True)], now=NOW)
        await put(store, task())
        assert first.id not in {given.id for given in await take(store)}
        (given,) = await take(store, suspects=True)
        assert (given.id, given.suspect) == (first.id, True)

    @pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
    async def test_what_has_ended_is_not_taken(self, store: Store, state: State) -> None:
        await ended(store, state, task())
        assert await take(store, now=NOW + 1e6) == []

    async def test_a_take_tells_of_suspects_that_are_due(self, store: Store) -> None:
        await put(store, task(queue="a"), task(queue="b"))
        first, second = (await store.take([want("a"), want("b")], owner="a", now=NOW)).tasks
        await store.settle(
            [move(first, State.READY, suspect=True), move(second, State.READY, due=NOW + 9, suspect=True)], now=NOW
        )
        wants = [want("a"), want("b")]
        assert (await store.take(wants, owner="a", now=NOW)).suspects == {"a"}
        assert (await store.take(wants, owner="a", now=NOW + 9)).suspects == {"a", "b"}
        apart = await store.take([want("a", suspects=True)], owner="a", now=NOW)
        assert [given.id for given in apart.tasks] == [first.id]
        assert apart.suspects == frozenset()
        assert (await store.take(wants, owner="a", now=NOW)).suspects == frozenset()


class TestLimits:
    """They hold over all who take."""

    async def test_no_more_run_at_a_time_than_a_queue_allows(self, store: Store) -> None:
        await put(store, *(task() for _ in range(9)), task(queue="other"))
        first = await take(store, 2, concurrency=5)
        assert len(first) == 2
        assert len(await take(store, owner="b", concurrency=5)) == 3
        assert await take(store, owner="c", concurrency=5) == []
        assert await take(store, owner="c", concurrency=3) == []  # it was lowered meanwhile
        assert len(await take(store, queue="other", concurrency=1)) == 1
        await store.settle([move(first[0], State.DONE), move(first[1], State.READY, due=NOW + 1)], now=NOW)
        assert len(await take(store, concurrency=5)) == 2

    async def test_suspects_count_among_those_that_run(self, store: Store) -> None:
        (first,) = await taken(store, task())
        await store.settle([move(first, State.READY, suspect=True)], now=NOW)
        await put(store, task(), task())
        wants = [want(suspects=True, concurrency=2), want(concurrency=2)]
        given = await store.take(wants, owner="a", now=NOW)
        assert [one.suspect for one in given.tasks] == [True, False]

    async def test_no_more_start_in_any_span_than_a_rate_allows(self, store: Store) -> None:
        await put(store, *(task(due=0.0) for _ in range(100)))
        starts = Counter[float]()
        for tenth in range(0, 50, 3):
            at = NOW + tenth / 10
            starts[at] += len(await take(store, 2, owner=str(tenth), now=at, rate=5, per_s=1.0))
        for end in starts:
            assert sum(count for at, count in starts.items() if end - 1.0 < at <= end) <= 5
        assert sum(starts.values()) >= 20

    async def test_it_is_told_when_a_used_up_rate_allows_more(self, store: Store) -> None:
        await put(store, *(task() for _ in range(7)), task(queue="other"))
        wants = [want(rate=3, per_s=10.0), want("other", rate=3, per_s=10.0)]
        given = await store.take(wants, owner="a", now=NOW)
        assert len(given.tasks) == 4
        assert given.spent == {"default": NOW + 10}
        for early in (NOW, math.nextafter(NOW + 10, 0.0)):
            assert await store.take(wants, owner="b", now=early) == Taken([], {"default": NOW + 10})
        given = await store.take(wants, owner="b", now=NOW + 10)
        assert len(given.tasks) == 3

    async def test_a_rate_that_is_not_used_up_is_not_told(self, store: Store) -> None:
        await put(store, task(), task())
        given = await store.take([want(rate=3)], owner="a", now=NOW)
        assert (len(given.tasks), given.spent) == (2, {})

    async def test_the_moment_that_is_told_does_allow_more_whatever_its_fraction(self, store: Store) -> None:
        at, per_s = 1_700_000_000.123, 0.1
        await put(store, *(task(due=0.0) for _ in range(50)))
        for _ in range(40):
            given = await store.take([want(rate=1, per_s=per_s)], owner="a", now=at)
            assert len(given.tasks) == 1
            at = given.spent["default"]

    async def test_a_clock_that_was_set_back_does_not_freeze_a_rate(self, store: Store) -> None:
        await put(store, *(task(due=0.0) for _ in range(9)))
        assert len(await take(store, rate=3, per_s=10.0)) == 3
        back = NOW - 3600
        given = await store.take([want(rate=3, per_s=10.0)], owner="a", now=back)
        assert given == Taken([], {"default": back + 10})
        assert await take(store, now=back + 9.9, rate=3, per_s=10.0) == []
        assert len(await take(store, now=back + 10, rate=3, per_s=10.0)) == 3

    async def test_a_clock_that_was_set_back_a_little_moves_only_the_starts_that_lie_ahead(self, store: Store) -> None:
        await put(store, *(task() for _ in range(9)))
        for at in (NOW, NOW + 8):
            assert len(await take(store, 1, now=at, rate=2, per_s=10.0)) == 1
        given = await store.take([want(rate=2, per_s=10.0)], owner="a", now=NOW + 5)
        assert given == Taken([], {"default": NOW + 10})
        given = await store.take([want(rate=2, per_s=10.0)], owner="a", now=NOW + 10)
        assert (len(given.tasks), given.spent) == (1, {"default": NOW + 15})

    async def test_both_limits_hold_together(self, store: Store) -> None:
        await put(store, *(task() for _ in range(20)))
        given = await store.take([want(concurrency=4, rate=6, per_s=10.0)], owner="a", now=NOW)
        assert (len(given.tasks), given.spent) == (4, {})
        await store.settle([move(one, State.DONE) for one in given.tasks], now=NOW)
        given = await store.take([want(concurrency=4, rate=6, per_s=10.0)], owner="a", now=NOW + 1)
        assert (len(given.tasks), given.spent) == (2, {"default": NOW + 10})


class TestCrowd:
    @pytest.mark.spec("000-30", "000-43", "R3-01", "003-03")
    async def test_of_ten_takers_at_a_thousand_tasks_each_task_goes_to_one(self, store: Store) -> None:
        placed = await put(store, *(task(priority=number % 10) for number in range(1000)))
        taken: list[tuple[str, Task]] = []

        async def taker(owner: str) -> None:
            while given := (await store.take([want(room=7)], owner=owner, now=NOW)).tasks:
                taken.extend((owner, one) for one in given)
                await asyncio.sleep(0)
                assert await store.settle([move(one, State.DONE, ended=NOW) for one in given], now=NOW) == frozenset()

        await asyncio.gather(*(taker(f"taker {number}") for number in range(10)))
        assert sorted(one.id for _, one in taken) == [id for id, _ in placed]
        assert all((one.owner, one.fence) == (owner, 1) for owner, one in taken)
        assert len({owner for owner, _ in taken}) == 10
        assert {(found.state, found.fence) for found in await rows(store)} == {(State.DONE, 1)}

    async def test_puts_and_takes_at_once_lose_nothing(self, store: Store) -> None:
        done: list[int] = []
        placed: list[int] = []

        async def putter(number: int) -> None:
            for _ in range(20):
                placed.extend(id for id, _ in await put(store, task(), task(data=str(number))))

        async def taker(owner: str) -> None:
            while len(done) < 200:
                given = await take(store, 3, owner=owner)
                done.extend(one.id for one in given)
                await asyncio.sleep(0)

        async with asyncio.timeout(50):
            await asyncio.gather(*map(putter, range(5)), *(taker(str(number)) for number in range(4)))
        assert sorted(done) == sorted(set(placed))
