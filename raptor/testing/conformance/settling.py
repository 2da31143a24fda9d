"""What a store promises of moving taken tasks on: every move of the state machine, and no stale one."""

from __future__ import annotations

from typing import Any

import pytest

from raptor.errors import BadInput
from raptor.state.base import Held, Hold, Query, Store
from raptor.task import MOVES, State, Task, Try
from raptor.testing.conformance.sample import NOW, ended, ids, move, one, put, replaced, rows, take, taken, task

LATER = NOW + 100
VERDICTS = MOVES[State.TAKEN]
HISTORY = (
    Try(start=NOW, end=NOW + 1, verdict="retry", info="ValueError: naïve"),
    Try(start=None, end=NOW + 2, verdict="lapsed"),
)


MOVED: dict[str, Any] = {
    "attempts": 2, "previous": NOW, "started": NOW + 1, "ended": NOW + 2, "output": '"out"', "error": "Traceback",
    "reason": "why", "deaths": 1, "suspect": True, "history": HISTORY,
}  # fmt: skip


class TestSettle:
    @pytest.mark.parametrize("verdict", VERDICTS)
    async def test_a_task_becomes_what_was_settled(self, store: Store, verdict: str) -> None:
        (given,) = await taken(store, task(key="k"))
        moved = MOVED | {"due": LATER}
        assert await store.settle([move(given, VERDICTS[verdict], **moved)], now=NOW + 2) == frozenset()
        right = replaced(given, state=VERDICTS[verdict], owner=None, lease=None, **moved)
        assert await rows(store) == [right]

    @pytest.mark.parametrize("moved", [{"ended": NOW + 1}, MOVED], ids=["plain", "full"])
    async def test_tasks_that_end_alike_keep_their_own_due_times(self, store: Store, moved: dict[str, Any]) -> None:
        given = await taken(store, *(task(due=NOW - number) for number in range(5)))
        over = [move(one, State.DONE, due=None, **moved) for one in given]
        assert await store.settle(over, now=NOW + 1) == frozenset()
        right = [replaced(one, state=State.DONE, owner=None, lease=None, **moved) for one in given]
        assert await rows(store) == sorted(right, key=lambda one: one.id)

    @pytest.mark.parametrize("name", MOVED)
    async def test_of_tasks_that_are_settled_together_each_gets_its_own_values(self, store: Store, name: str) -> None:
        first, second = await taken(store, task(), task())
        moves = [move(first, State.DEAD, **{name: MOVED[name]}), move(second, State.DEAD)]
        assert await store.settle(moves, now=NOW + 2) == frozenset()
        over = {"state": State.DEAD, "owner": None, "lease": None}
        assert await rows(store) == [replaced(first, **over | {name: MOVED[name]}), replaced(second, **over)]

    async def test_of_tasks_that_end_alike_only_the_stale_one_is_refused(self, store: Store) -> None:
        given = await taken(store, *(task() for _ in range(4)))
        over = [move(one, State.DONE, due=None, ended=NOW) for one in given]
        await store.settle([over[2]], now=NOW)
        assert await store.settle(over, now=NOW) == {given[2].id}
        assert [one.state for one in await rows(store)] == [State.DONE] * 4

    async def test_one_that_was_cancelled_meanwhile_does_not_come_back(self, store: Store) -> None:
        first, second = await taken(store, task(key="k", due=NOW - 3), task(due=NOW - 3))
        await store.cancel([first.id], now=NOW, reason="by hand")
        back = [move(one, State.READY, due=NOW - 1, attempts=1) for one in (first, second)]
        assert await store.settle(back, now=NOW + 1) == frozenset()
        given_up, again = await rows(store)
        assert (given_up.state, given_up.reason, given_up.ended) == (State.CANCELLED, "cancelled", NOW + 1)
        assert (given_up.due, given_up.unwanted, given_up.attempts) == (NOW - 3, False, 1)
        assert (again.state, again.due) == (State.READY, NOW - 1)
        assert [one.id for one in await take(store)] == [second.id]

    @pytest.mark.spec("003-05", "003-14", "003-15", "R3-01")
    async def test_a_retry_in_the_past_is_there_at_once(self, store: Store) -> None:
        (given,) = await taken(store, task(due=NOW - 3))
        await store.settle([move(given, State.READY, due=NOW - 1, attempts=1, previous=given.due)], now=NOW)
        (again,) = await take(store)
        assert (again.attempts, again.previous, again.due, again.fence) == (1, NOW - 3, NOW - 1, 2)

    @pytest.mark.spec("003-05", "003-16", "R3-01")
    async def test_a_retry_in_the_future_is_not_taken_before(self, store: Store) -> None:
        (given,) = await taken(store, task())
        await store.settle([move(given, State.READY, due=LATER, attempts=1)], now=NOW)
        ((counts),) = await store.stat(now=NOW)
        assert (counts.ready, counts.delayed, counts.taken) == (0, 1, 0)
        assert await take(store, now=LATER - 0.001) == []
        assert len(await take(store, now=LATER)) == 1

    @pytest.mark.spec("003-04", "R3-01")
    async def test_one_that_is_not_kept_is_gone_at_once(self, store: Store) -> None:
        first, second = await taken(store, task(key="k", key_until=LATER), task())
        await store.settle([move(first, State.DONE, keep=False), move(second, State.DONE, ended=NOW)], now=NOW)
        assert await ids(store) == [second.id]
        assert (await put(store, task(key="k")))[0].new

    async def test_when_all_are_gone_the_counts_are_empty(self, store: Store) -> None:
        (given,) = await taken(store, task())
        await store.settle([move(given, State.DONE, keep=False)], now=NOW)
        assert await store.stat(now=NOW) == []

    async def test_settling_nothing_is_no_error(self, store: Store) -> None:
        assert await store.settle([], now=NOW) == frozenset()

    @pytest.mark.spec("R3-04")
    async def test_an_unknown_task_is_refused(self, store: Store) -> None:
        (given,) = await taken(store, task())
        unknown = move(replaced(given, id=given.id + 1), State.DONE, successor=task(data="next"))
        assert await store.settle([unknown], now=NOW) == {given.id + 1}
        assert await rows(store) == [given]

    @pytest.mark.spec("R3-04")
    async def test_a_stale_lease_cannot_settle_a_task(self, store: Store) -> None:
        (old,) = await taken(store, task())
        await store.settle([move(old, State.READY, attempts=1)], now=NOW)
        (new,) = await take(store, owner="b")
        assert await store.settle([move(old, State.DONE, keep=False, successor=task())], now=NOW) == {old.id}
        assert await rows(store) == [new]
        assert await store.settle([move(new, State.DONE)], now=NOW) == frozenset()

    @pytest.mark.parametrize("fence", [0, 2, -1])
    async def test_no_other_fence_will_do(self, store: Store, fence: int) -> None:
        (given,) = await taken(store, task())
        assert await store.settle([replaced(move(given, State.DONE), fence=fence)], now=NOW) == {given.id}
        assert await rows(store) == [given]

    @pytest.mark.parametrize("verdict", VERDICTS)
    async def test_what_is_settled_cannot_be_settled_again(self, store: Store, verdict: str) -> None:
        (given,) = await taken(store, task())
        await store.settle([move(given, VERDICTS[verdict])], now=NOW)
        before = await rows(store)
        assert await store.settle([move(given, State.DEAD, reason="x", successor=task())], now=NOW) == {given.id}
        assert await rows(store) == before

    async def test_a_task_that_nobody_took_cannot_be_settled(self, store: Store) -> None:
        ((id, _),) = await put(store, task())
        before = await one(store, id)
        assert await store.settle([move(before, State.DONE)], now=NOW) == {id}
        assert await rows(store) == [before]

    async def test_a_stale_one_does_not_spoil_the_others(self, store: Store) -> None:
        given = await taken(store, *(task(data=str(number)) for number in range(5)))
        moves = [
            move(one, State.DONE, ended=NOW, successor=task(data=f"after {number}"), keep=number != 3)
            for number, one in enumerate(given)
        ]
        moves[1] = replaced(moves[1], fence=9)
        assert await store.settle(moves, now=NOW) == {given[1].id}
        assert [found.data for found in await rows(store)] == [
            "0", "1", "2", "4", "after 0", "after 2", "after 3", "after 4",
        ]  # fmt: skip
        assert await one(store, given[1].id) == given[1]

    async def test_of_two_moves_of_one_task_the_first_counts(self, store: Store) -> None:
        (given,) = await taken(store, task(data="1"))
        first = move(given, State.DONE, successor=task(data="2"), keep=False)
        assert await store.settle([first, move(given, State.DEAD, successor=task(data="3"))], now=NOW) == {given.id}
        assert [found.data for found in await rows(store)] == ["2"]

    async def test_what_was_unwanted_is_settled_all_the_same(self, store: Store) -> None:
        (given,) = await taken(store, task())
        await store.cancel([given.id], now=NOW, reason="asked")
        assert await store.settle([move(given, State.CANCELLED, ended=NOW, reason="asked")], now=NOW) == frozenset()
        found = await one(store, given.id)
        assert (found.state, found.unwanted, found.reason) == (State.CANCELLED, False, "asked")


class TestSuccessors:
    async def test_a_successor_is_put_together_with_the_move(self, store: Store) -> None:
        (given,) = await taken(store, task(timing="{}"))
        after = task(due=LATER, timing="{}", parent=given.id, queue="other", priority=1)
        await store.settle([move(given, State.DONE, ended=NOW, successor=after)], now=NOW + 1)
        done, new = await rows(store)
        assert done.state is State.DONE
        assert new == replaced(after, id=new.id, created=NOW + 1)
        assert new.id > given.id
        assert await ids(store, parent=given.id) == [new.id]

    @pytest.mark.parametrize("keep", [True, False])
    @pytest.mark.parametrize("key_until", [None, LATER])
    async def test_a_successor_has_the_key_of_what_it_repeats(
        self, store: Store, keep: bool, key_until: float | None
    ) -> None:
        (given,) = await taken(store, task(key="k", key_until=key_until))
        after = task(due=LATER, key="k", key_until=key_until)
        await store.settle([move(given, State.DONE, ended=NOW, keep=keep, successor=after)], now=NOW)
        (new,) = await store.find(Query(states=(State.READY,)))
        assert new.key == "k"
        assert (await put(store, task(key="k")))[0] == (new.id, False)

    async def test_a_successor_gives_way_to_whoever_got_the_key(self, store: Store) -> None:
        (given,) = await taken(store, task(key="k"))
        ((other, _),) = await put(store, task(key="k", data="new"), replace=True)
        await store.settle([move(given, State.DONE, ended=NOW, successor=task(key="k", data="old"))], now=NOW)
        assert await ids(store, states=(State.READY,)) == [other]
        assert (await one(store, other)).data == "new"

    async def test_keys_that_are_given_back_together_are_free_for_every_successor(self, store: Store) -> None:
        first, second = await taken(store, task(key="a"), task(key="b"))
        swapped = [
            move(first, State.DONE, successor=task(key="b", data="1")),
            move(second, State.DONE, successor=task(key="a", data="2")),
        ]
        await store.settle(swapped, now=NOW)
        assert [found.data for found in await store.find(Query(states=(State.READY,)))] == ["1", "2"]

    async def test_a_successor_that_is_refused_moves_nothing(self, store: Store) -> None:
        (given,) = await taken(store, task())
        with pytest.raises(BadInput):
            await store.settle([move(given, State.DONE, successor=task(priority=10))], now=NOW)
        assert await rows(store) == [given]


class TestExtend:
    async def test_a_lease_is_prolonged_and_nothing_else_changes(self, store: Store) -> None:
        first, second = await taken(store, task(), task())
        held = await store.extend([Hold(first.id, first.fence)], until=LATER)
        assert held == Held(frozenset(), frozenset())
        assert await rows(store) == [replaced(first, lease=LATER), second]

    async def test_a_stale_or_unknown_lease_is_told_and_not_prolonged(self, store: Store) -> None:
        first, second, third, fourth = await taken(store, *(task() for _ in range(4)))
        await store.settle([move(first, State.READY), move(second, State.DONE)], now=NOW)
        (again,) = await take(store, owner="b")
        before = await rows(store)
        holds = [Hold(first.id, first.fence), Hold(second.id, 1), Hold(10**9, 1), Hold(third.id, 5), Hold(fourth.id, 1)]
        held = await store.extend(holds, until=LATER)
        assert held.stale == {first.id, second.id, third.id, 10**9}
        assert again in before
        assert await rows(store) == [*before[:3], replaced(fourth, lease=LATER)]

    async def test_what_is_no_longer_wanted_is_told(self, store: Store) -> None:
        first, second = await taken(store, task(), task())
        await store.cancel([second.id], now=NOW, reason="asked")
        held = await store.extend([Hold(first.id, 1), Hold(second.id, 1)], until=LATER)
        assert held == Held(frozenset(), frozenset({second.id}))
        assert {found.lease for found in await rows(store)} == {LATER}

    async def test_extending_nothing_is_no_error(self, store: Store) -> None:
        assert await store.extend([], until=LATER) == Held(frozenset(), frozenset())


class TestLapse:
    @pytest.mark.spec("003-11", "003-17")
    async def test_one_whose_lease_lapsed_is_found_and_can_be_given_back(self, store: Store) -> None:
        first, second = await taken(store, task(), task())
        await store.extend([Hold(second.id, 1)], until=LATER)
        (lapsed,) = await store.find(Query(lapsed=NOW + 61))
        assert lapsed == first
        assert await store.find(Query(lapsed=NOW + 60)) == []
        back = move(lapsed, State.READY, due=NOW + 61, attempts=1, previous=lapsed.due)
        assert await store.settle([back], now=NOW + 61) == frozenset()
        (again,) = await take(store, owner="b", now=NOW + 61)
        assert (again.attempts, again.due, again.previous) == (1, NOW + 61, NOW)
        assert await store.settle([move(first, State.DONE)], now=NOW + 62) == {first.id}

    async def test_what_others_hold_is_found_by_their_not_being_me(self, store: Store) -> None:
        (mine,) = await taken(store, task(), owner="me")
        (theirs,) = await taken(store, task(), owner="you")
        await ended(store, State.DEAD, task())
        found: list[Task] = await store.find(Query(owner_not="me"))
        assert [one.id for one in found] == [theirs.id]
        assert await ids(store, owner_not="nobody") == [mine.id, theirs.id]
