"""What a store promises of rights, presences and news: who may do what, who is there, and what changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raptor.errors import StaleLease
from raptor.rows import Definition, Line
from raptor.state.base import Presence, Query, Right, Store, Watch
from raptor.testing.conformance.sample import NOW, put, take, taken, task
from raptor.testing.conformance.tables import run, slot

MAIN = "scheduler:main"


def node(owner: str, started: float = NOW, **more: Any) -> Presence:
    return Presence(owner=owner, name=f"{owner}:1", host=owner, pid=1, version="1", started=started, **more)


async def granted(
    store: Store, owner: str, key: str = MAIN, *, now: float = NOW, lease_s: float = 60.0
) -> Right | None:
    """The right, if it is given."""
    grant = (await store.claim([key], owner=owner, now=now, lease_s=lease_s))[key]
    return Right(key, grant.fence) if grant.owner == owner else None


class TestRights:
    async def test_a_right_that_nobody_holds_is_given(self, store: Store) -> None:
        grants = await store.claim([MAIN, "service:a"], owner="a", now=NOW, lease_s=60.0)
        assert {key: (grant.owner, grant.fence, grant.lease) for key, grant in grants.items()} == {
            MAIN: ("a", 1, NOW + 60.0),
            "service:a": ("a", 1, NOW + 60.0),
        }

    async def test_claiming_nothing_is_no_error(self, store: Store) -> None:
        assert await store.claim([], owner="a", now=NOW, lease_s=60.0) == {}
        await store.release([], owner="a")

    async def test_renewing_keeps_the_fence_and_moves_the_lease(self, store: Store) -> None:
        assert await granted(store, "a") == Right(MAIN, 1)
        grants = await store.claim([MAIN], owner="a", now=NOW + 20.0, lease_s=60.0)
        assert (grants[MAIN].fence, grants[MAIN].lease) == (1, NOW + 80.0)

    async def test_a_right_is_renewed_after_its_lease_if_nobody_took_it(self, store: Store) -> None:
        assert await granted(store, "a") == Right(MAIN, 1)
        assert await granted(store, "a", now=NOW + 1000.0) == Right(MAIN, 1)

    async def test_what_was_given_back_is_given_to_the_next_with_a_new_fence(self, store: Store) -> None:
        right = await granted(store, "a")
        assert right is not None
        await store.release([right], owner="a")
        assert await store.holders("") == {}
        assert await granted(store, "b") == Right(MAIN, 2)

    async def test_also_its_last_owner_gets_a_new_fence_then(self, store: Store) -> None:
        right = await granted(store, "a")
        assert right is not None
        await store.release([right], owner="a")
        assert await granted(store, "a") == Right(MAIN, 2)

    async def test_giving_back_what_is_anothers_changes_nothing(self, store: Store) -> None:
        first = await granted(store, "a")
        assert first is not None
        await store.release([first], owner="a")
        second = await granted(store, "b")
        assert second is not None
        await store.release([first, second], owner="a")
        await store.release([first], owner="b")
        assert {key: grant.owner for key, grant in (await store.holders("")).items()} == {MAIN: "b"}

    async def test_holders_are_those_of_a_prefix(self, store: Store) -> None:
        await store.claim([MAIN, "scheduler:other", "service:a"], owner="a", now=NOW, lease_s=60.0)
        assert set(await store.holders("scheduler:")) == {MAIN, "scheduler:other"}
        assert (await store.holders("service:"))["service:a"].owner == "a"
        assert await store.holders("service:%") == {}

    async def test_a_write_with_a_right_that_is_held_is_written(self, store: Store) -> None:
        right = await granted(store, "a")
        assert right is not None
        await store.save([("definitions", "main", Definition(name="main"))], rights=[right])
        await store.record([slot(1.0)], [run("r1")], rights=[right])
        assert set(await store.load("definitions")) == {"main"}
        assert [past.id for past in await store.history()] == ["r1"]

    async def test_a_write_after_the_lease_is_written_if_nobody_took_the_right(self, store: Store) -> None:
        right = await granted(store, "a", lease_s=1.0)
        assert right is not None
        await store.nodes(now=NOW + 1000.0)
        await store.save([("definitions", "main", Definition(name="main"))], rights=[right])
        assert set(await store.load("definitions")) == {"main"}

    @pytest.mark.parametrize("taken_by", ["a", "b", None])
    async def test_a_write_with_a_lost_right_is_refused_whole(self, store: Store, taken_by: str | None) -> None:
        other, right = await granted(store, "a", "service:x"), await granted(store, "a")
        assert right is not None
        assert other is not None
        await store.release([right], owner="a")
        if taken_by is not None:
            assert await granted(store, taken_by) == Right(MAIN, 2)
        for rights in ([right], [other, right]):
            with pytest.raises(StaleLease, match="scheduler:main"):
                await store.save([("definitions", "main", Definition(name="main"))], rights=rights)
            with pytest.raises(StaleLease):
                await store.record([slot(1.0)], [run("r1")], rights=rights)
        assert await store.load("definitions") == {}
        assert await store.history() == []

    async def test_a_right_that_nobody_ever_had_is_refused(self, store: Store) -> None:
        with pytest.raises(StaleLease):
            await store.save([("definitions", "main", Definition(name="main"))], rights=[Right(MAIN, 1)])


class TestManyOwners:
    """For a store that several nodes share."""

    async def test_a_right_is_held_until_its_lease_ends(self, store: Store) -> None:
        assert await granted(store, "a") == Right(MAIN, 1)
        assert await granted(store, "b", now=NOW + 60.0) is None
        assert await granted(store, "b", now=NOW + 60.001) == Right(MAIN, 2)
        assert await granted(store, "a", now=NOW + 61.0) is None

    async def test_the_answer_names_who_holds_it(self, store: Store) -> None:
        await granted(store, "a")
        grants = await store.claim([MAIN, "service:a"], owner="b", now=NOW + 1.0, lease_s=60.0)
        assert {key: (grant.owner, grant.lease) for key, grant in grants.items()} == {
            MAIN: ("a", NOW + 60.0),
            "service:a": ("b", NOW + 61.0),
        }

    async def test_of_many_that_ask_at_once_one_gets_it(self, store: Store) -> None:
        asked = [store.claim([MAIN], owner=str(number), now=NOW, lease_s=60.0) for number in range(20)]
        answers = await asyncio.gather(*asked)
        assert len({answer[MAIN] for answer in answers}) == 1
        assert answers[0][MAIN].fence == 1

    async def test_a_stale_owner_cannot_write(self, store: Store) -> None:
        old = await granted(store, "a")
        new = await granted(store, "b", now=NOW + 100.0)
        assert old is not None
        assert new is not None
        with pytest.raises(StaleLease):
            await store.save([("definitions", "main", Definition(name="main", note="old"))], rights=[old])
        await store.save([("definitions", "main", Definition(name="main", note="new"))], rights=[new])
        assert (await store.load("definitions"))["main"] == Definition(name="main", note="new")

    async def test_one_that_was_not_seen_for_a_lease_loses_its_rights(self, store: Store) -> None:
        await store.appear(node("a"), now=NOW)
        assert await granted(store, "a", lease_s=1000.0) == Right(MAIN, 1)
        assert await granted(store, "b", now=NOW + 5.0) is None
        assert await granted(store, "b", now=NOW + 60.001) == Right(MAIN, 2)

    async def test_one_that_vanished_leaves_its_rights_at_once(self, store: Store) -> None:
        await store.appear(node("a"), now=NOW)
        right = await granted(store, "a")
        assert right is not None
        await store.vanish("a")
        assert await store.holders("") == {}
        assert await granted(store, "b", now=NOW + 1.0) == Right(MAIN, 2)
        with pytest.raises(StaleLease):
            await store.save([], rights=[right])

    async def test_every_node_is_told_of_in_the_order_of_their_start(self, store: Store) -> None:
        await store.appear(node("b", NOW, doing={"schedulers": {"main": "running"}}), now=NOW)
        await store.appear(node("c", NOW - 5.0), now=NOW + 1.0)
        found = await store.appear(node("a", NOW + 2.0), now=NOW + 2.0)
        assert [(one.owner, one.alive, one.seen - NOW) for one in found] == [
            ("c", True, 1.0),
            ("b", True, 0.0),
            ("a", True, 2.0),
        ]
        assert found[1].doing == {"schedulers": {"main": "running"}}
        assert await store.nodes(now=NOW + 2.0) == found

    async def test_one_that_is_gone_is_told_of_for_a_day(self, store: Store) -> None:
        await store.appear(node("a"), now=NOW)
        found = await store.appear(node("b"), now=NOW + 60.001)
        assert [(one.owner, one.alive) for one in found] == [("a", False), ("b", True)]
        found = await store.appear(node("b"), now=NOW + 86_500.0)
        assert [one.owner for one in found] == ["b"]

    async def test_one_that_shows_itself_again_is_alive(self, store: Store) -> None:
        await store.appear(node("a"), now=NOW)
        await store.appear(node("b"), now=NOW + 100.0)
        found = await store.appear(node("a"), now=NOW + 101.0)
        assert [(one.owner, one.alive) for one in found] == [("a", True), ("b", True)]


class TestPresence:
    async def test_a_node_finds_itself(self, store: Store) -> None:
        (found,) = await store.appear(node("a", doing={"worker": {"running": [1, 2]}}), now=NOW + 1.0)
        assert (found.owner, found.alive, found.seen, found.started) == ("a", True, NOW + 1.0, NOW)
        assert found.doing == {"worker": {"running": [1, 2]}}
        assert await store.nodes(now=NOW + 1.0) == [found]

    async def test_one_that_vanished_is_told_of_no_more(self, store: Store) -> None:
        await store.appear(node("a"), now=NOW)
        await store.vanish("a")
        await store.vanish("a")
        await store.vanish("nobody")
        assert await store.nodes(now=NOW) == []

    async def test_showing_itself_renews_the_rights_that_a_node_still_holds(self, store: Store) -> None:
        mine, lost = await granted(store, "a"), await granted(store, "a", "service:x")
        assert mine is not None
        assert lost is not None
        await store.release([lost], owner="a")
        again = await granted(store, "a", "service:x")
        found = await store.appear(node("a", rights=(mine, lost)), now=NOW + 50.0)
        assert [one.rights for one in found] == [(mine,)]
        assert again == Right("service:x", 2)
        leases = {key: grant.lease for key, grant in (await store.holders("")).items()}
        assert leases == {MAIN: NOW + 110.0, "service:x": NOW + 60.0}

    async def test_tasks_are_found_by_their_owners(self, store: Store) -> None:
        (first,) = await taken(store, task(), owner="a")
        await put(store, task(), task(), task())
        (second,) = await take(store, 1, owner="b")
        (third,) = await take(store, 1, owner="c")
        for owners, ids in {
            ("a",): [first.id],
            ("a", "c", "nobody"): [first.id, third.id],
            ("b",): [second.id],
            ("nobody",): [],
        }.items():
            assert [one.id for one in await store.find(Query(owners=owners))] == ids


class TestNews:
    async def test_whoever_watches_hears_which_records_were_written_and_deleted(self, store: Store) -> None:
        watches = [store.watch(), store.watch()]
        await store.save([("definitions", "main", Definition(name="main")), ("lines", "mail", Line(name="mail"))])
        for watch in watches:
            assert await _heard(watch, 2) == {("definitions", "main"), ("lines", "mail")}
        await store.save([("definitions", "main", None)])
        for watch in watches:
            assert await _heard(watch, 1) == {("definitions", "main")}
            watch.close()

    async def test_a_task_that_runs_and_was_cancelled_is_news(self, store: Store) -> None:
        (running,) = await taken(store, task())
        ((waiting, _),) = await put(store, task())
        watch = store.watch()
        await store.cancel([running.id, waiting], now=NOW, reason="cancelled")
        assert await _heard(watch, 1) == {("unwanted", str(running.id))}
        watch.close()

    async def test_one_that_was_closed_hears_no_more(self, store: Store) -> None:
        closed, other = store.watch(), store.watch()
        closed.close()
        closed.close()
        await store.save([("lines", "mail", Line(name="mail"))])
        assert await _heard(other, 1) == {("lines", "mail")}
        waiting = asyncio.ensure_future(closed.ring())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        other.close()

    async def test_what_was_refused_is_no_news(self, store: Store) -> None:
        watch = store.watch()
        with pytest.raises(StaleLease):
            await store.save([("lines", "old", Line(name="old"))], rights=[Right(MAIN, 1)])
        await store.save([("lines", "new", Line(name="new"))])
        assert await _heard(watch, 1) == {("lines", "new")}
        watch.close()


async def _heard(watch: Watch, count: int) -> set[tuple[str, str]]:
    """News of so many records, which may come one by one."""
    news = set[tuple[str, str]]()
    async with asyncio.timeout(20):
        while len(news) < count:
            news |= await watch.ring()
    return news
