"""What a store promises of putting tasks: all or none, ids that are never used twice, and keys."""

from __future__ import annotations

from typing import Any

import pytest

from raptor.errors import BadInput
from raptor.state.base import Receipt, Store
from raptor.task import State, Task, Try
from raptor.testing.conformance.sample import NOW, ended, move, one, put, replaced, rows, take, taken, task

FULL = task(
    queue="mail", data='{"to": "naïve ☕"}', priority=0, due=NOW + 0.25, max_attempts=None, key="k", key_until=NOW + 9,
    parent=77, active_s=60.0, timeout_s=1.5, timing='{"every_s": 3600}',
)  # fmt: skip


class TestPut:
    @pytest.mark.spec("003-06", "003-08", "003-14", "003-15")
    @pytest.mark.parametrize("asked", [task(), task(key_until=NOW + 9), FULL], ids=["plain", "keyless", "full"])
    async def test_a_task_is_kept_as_it_was_asked_for(self, store: Store, asked: Task) -> None:
        ((id, new),) = await put(store, asked, now=NOW - 1)
        assert new
        assert id > 0
        stored = await one(store, id)
        assert stored == replaced(asked, id=id, created=NOW - 1)
        assert (stored.attempts, stored.previous, stored.fence, stored.state) == (0, None, 0, State.READY)

    @pytest.mark.parametrize("name", ["key", "key_until", "parent", "active_s", "timeout_s", "timing"])
    async def test_whatever_is_asked_for_alone_is_kept(self, store: Store, name: str) -> None:
        asked = task(**{name: getattr(FULL, name)})
        ((id, _),) = await put(store, asked)
        assert await one(store, id) == replaced(asked, id=id, created=NOW)
        assert getattr((await take(store))[0], name) == getattr(FULL, name)

    @pytest.mark.parametrize("data", ["", "null", "x" * 3_000_000, 'q"\0\n', b"", b"\x93\x00\xff", bytes(70_000)])
    @pytest.mark.parametrize("way", ["found", "taken"])
    async def test_any_data_come_back_as_they_were(self, store: Store, data: str | bytes, way: str) -> None:
        await put(store, task(data=data))
        (found,) = await rows(store) if way == "found" else await take(store)
        assert found.data == data
        assert type(found.data) is type(data)

    async def test_what_a_put_does_not_ask_for_begins_as_new(self, store: Store) -> None:
        used = replaced(
            task(), id=99, state=State.DEAD, created=1.0, attempts=7, started=1.0, previous=1.0, ended=1.0, output="1",
            error="e", reason="r", history=(Try(start=1.0, end=2.0, verdict="retry"),), fence=5, owner="x", lease=9.0,
            deaths=2, suspect=True, unwanted=True,
        )  # fmt: skip
        ((id, _),) = await put(store, used)
        assert await one(store, id) == replaced(task(), id=id, created=NOW)

    async def test_putting_nothing_is_no_error(self, store: Store) -> None:
        assert await put(store) == []

    async def test_ids_grow_in_the_order_of_a_put(self, store: Store) -> None:
        asked = [task(), task(key="a"), task(parent=1), task(), task(key="a"), task()]
        placed = [*await put(store, *asked), *await put(store, task())]
        assert [new for _, new in placed] == [True, True, True, True, False, True, True]
        new = [id for id, is_new in placed if is_new]
        assert new == sorted(set(new))
        assert placed[4] == Receipt(placed[1].id, False)
        assert [found.id for found in await rows(store)] == new

    async def test_the_id_of_the_newest_is_not_used_again_when_it_is_gone(self, store: Store) -> None:
        (gone,) = await ended(store, State.DONE, task())
        assert await store.drop([gone.id]) == 1
        assert (await put(store, task()))[0].id > gone.id

    @pytest.mark.parametrize("bad", [{"priority": -1}, {"priority": 10}, {"due": float("nan")}, {"due": float("inf")}])
    async def test_a_task_that_could_not_be_taken_in_order_is_refused(self, store: Store, bad: dict[str, Any]) -> None:
        with pytest.raises(BadInput):
            await put(store, task(**bad))
        assert await rows(store) == []

    async def test_all_of_a_put_are_stored_or_none(self, store: Store) -> None:
        await put(store, task(key="held"))
        before = await rows(store)
        good = [task(), task(key="new"), task(parent=3), task(key="held", data="1")]
        with pytest.raises(BadInput):
            await put(store, *good, task(priority=11), replace=True)
        assert await rows(store) == before
        assert len(await put(store, *good)) == 4
        assert len(await rows(store)) == 4


class TestKeys:
    """One pending task of a service for each key, and none until `key_until`."""

    async def test_whoever_holds_a_key_is_not_replaced_unless_that_is_asked_for(self, store: Store) -> None:
        for data in ("1", "2"):
            await store.put([task(key="k", data=data)], now=NOW)
        (found,) = await rows(store)
        assert found.data == "1"

    async def test_a_key_is_of_its_service_alone(self, store: Store) -> None:
        placed = await put(store, task(key="k"), task(key="k", service="other"), task(key="l"), task(), task())
        assert all(new for _, new in placed)

    async def test_a_ready_holder_keeps_its_key(self, store: Store) -> None:
        ((id, _),) = await put(store, task(key="k"))
        before = await one(store, id)
        assert await put(store, task(key="k", queue="q", data="2"), now=NOW + 5) == [Receipt(id, False)]
        assert await rows(store) == [before]

    async def test_a_ready_holder_is_replaced_and_stays_itself(self, store: Store) -> None:
        (first,) = await taken(store, task(key="k", queue="default"))
        history = (Try(start=NOW, end=NOW, verdict="retry", info="x"),)
        retried = move(
            first,
            State.READY,
            due=NOW + 9,
            attempts=1,
            previous=NOW,
            history=history,
            error="e",
            deaths=1,
            suspect=True,
        )
        await store.settle([retried], now=NOW)
        before = await one(store, first.id)
        new = replaced(FULL, due=NOW - 3)
        assert await put(store, new, now=NOW + 5, replace=True) == [Receipt(first.id, False)]
        asked = {name: getattr(new, name) for name in ("queue", "data", "priority", "due", "max_attempts", "key_until")}
        options = {name: getattr(new, name) for name in ("parent", "active_s", "timeout_s", "timing")}
        assert await rows(store) == [replaced(before, **asked, **options)]
        (given,) = await take(store, queue="mail", suspects=True)
        assert (given.data, given.attempts, given.history) == (new.data, 1, history)

    async def test_a_replaced_task_is_taken_at_its_new_time_only(self, store: Store) -> None:
        await put(store, task(key="k", due=NOW))
        await put(store, task(key="k", due=NOW + 10), replace=True)
        assert await take(store, now=NOW + 9.999) == []
        assert len(await take(store, now=NOW + 10)) == 1
        assert await take(store, now=NOW + 10) == []

    async def test_a_taken_holder_keeps_its_key(self, store: Store) -> None:
        (holder,) = await taken(store, task(key="k"))
        assert await put(store, task(key="k")) == [Receipt(holder.id, False)]
        assert await rows(store) == [holder]

    async def test_a_taken_holder_loses_its_key_to_a_replacement(self, store: Store) -> None:
        (holder,) = await taken(store, task(key="k"))
        ((id, new),) = await put(store, task(key="k", data="2"), replace=True)
        assert (new, id > holder.id) == (True, True)
        assert await one(store, holder.id) == replaced(holder, key=None)
        assert await store.settle([move(holder, State.DONE, ended=NOW)], now=NOW) == frozenset()
        assert await put(store, task(key="k")) == [Receipt(id, False)]

    @pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
    @pytest.mark.parametrize("replace", [False, True])
    async def test_an_ended_task_gives_its_key_back(self, store: Store, state: State, replace: bool) -> None:
        (gone,) = await ended(store, state, task(key="k"))
        ((id, new),) = await put(store, task(key="k"), replace=replace)
        assert (new, id > gone.id) == (True, True)
        assert (await one(store, gone.id)).state is state

    @pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
    @pytest.mark.parametrize("replace", [False, True])
    async def test_a_key_is_held_until_its_time_whatever_became_of_the_task(
        self, store: Store, state: State, replace: bool
    ) -> None:
        (gone,) = await ended(store, state, task(key="k", key_until=NOW + 10))
        assert await put(store, task(key="k"), now=NOW + 9.999, replace=replace) == [Receipt(gone.id, False)]
        assert await rows(store) == [gone]
        ((_, new),) = await put(store, task(key="k"), now=NOW + 10, replace=replace)
        assert new

    async def test_a_pending_holder_keeps_its_key_beyond_that_time(self, store: Store) -> None:
        ((id, _),) = await put(store, task(key="k", key_until=NOW + 10))
        assert await put(store, task(key="k"), now=NOW + 11) == [Receipt(id, False)]

    async def test_the_pending_one_is_replaced_where_an_ended_one_holds_the_key_too(self, store: Store) -> None:
        (first,) = await ended(store, State.DEAD, task(key="k"))
        await ended(store, State.DONE, task(key="k", key_until=NOW + 99))
        assert await store.revive([first.id], now=NOW) == [first.id]
        assert await put(store, task(key="k", data="2"), replace=True) == [Receipt(first.id, False)]
        assert (await one(store, first.id)).data == "2"

    async def test_of_two_in_one_put_the_first_has_the_key(self, store: Store) -> None:
        first, second = await put(store, task(key="k", data="1"), task(key="k", data="2"))
        assert second == Receipt(first.id, False)
        assert [found.data for found in await rows(store)] == ["1"]

    async def test_of_two_in_one_replacing_put_the_last_counts(self, store: Store) -> None:
        first, second = await put(store, task(key="k", data="1"), task(key="k", data="2"), replace=True)
        assert second == Receipt(first.id, False)
        assert [found.data for found in await rows(store)] == ["2"]

    async def test_a_dropped_task_holds_no_key(self, store: Store) -> None:
        (gone,) = await ended(store, State.DONE, task(key="k", key_until=NOW + 99))
        await store.drop([gone.id])
        assert (await put(store, task(key="k")))[0].new
