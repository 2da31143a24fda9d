"""What a store that survives promises: what was acknowledged is there when it is opened again.

Besides `store`, the backend's test file gives `open_again`, which closes the store and opens the same one anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from raptor.rows import Definition, Line
from raptor.state.base import Hold, Store, Taken
from raptor.task import ENDED, State
from raptor.testing.conformance.putting import FULL
from raptor.testing.conformance.sample import NOW, ended, move, put, rows, take, taken, task, want

OpenAgain: TypeAlias = Callable[[], Awaitable[Store]]


class TestSurvival:
    @pytest.mark.spec("000-03", "003-24")
    async def test_tasks_in_every_state_are_there_again(self, store: Store, open_again: OpenAgain) -> None:
        for state in ENDED:
            await ended(store, state, task(data=b"\x00\xff"))
        first, second, third = await taken(store, task(), task(data="b"), task())
        await store.extend([Hold(second.id, second.fence)], until=NOW + 500)
        await store.settle([move(third, State.READY, due=NOW + 3, attempts=1, successor=FULL)], now=NOW)
        await store.cancel([first.id], now=NOW, reason="x")
        await put(store, task(due=NOW + 9))
        before, counts = await rows(store), await store.stat(now=NOW)
        assert len(before) == 8
        again = await open_again()
        assert await rows(again) == before
        assert await again.stat(now=NOW) == counts
        assert await again.settle([move(second, State.DONE, ended=NOW)], now=NOW) == frozenset()

    async def test_what_was_dropped_and_shed_stays_gone(self, store: Store, open_again: OpenAgain) -> None:
        first, second, third = await ended(store, State.DONE, task(), task(), task())
        await store.drop([first.id])
        assert await store.shed(before=NOW + 1, limit=1) == 1
        again = await open_again()
        assert [found.id for found in await rows(again)] == [third.id]
        assert second.id < third.id

    async def test_the_id_of_the_newest_is_not_used_again_when_it_is_gone(
        self, store: Store, open_again: OpenAgain
    ) -> None:
        *_, newest = await ended(store, State.DONE, task(), task())
        await store.drop([newest.id])
        again = await open_again()
        assert (await put(again, task()))[0].id > newest.id

    async def test_keys_are_held_as_before(self, store: Store, open_again: OpenAgain) -> None:
        ((ready, _),) = await put(store, task(key="ready", due=NOW + 9))
        (done,) = await ended(store, State.DONE, task(key="done", key_until=NOW + 99))
        again = await open_again()
        assert await put(again, task(key="ready"), task(key="done")) == [(ready, False), (done.id, False)]

    async def test_a_rate_goes_on_where_it_was(self, store: Store, open_again: OpenAgain) -> None:
        await put(store, *(task() for _ in range(9)))
        assert len(await take(store, rate=4, per_s=60.0)) == 4
        again = await open_again()
        assert await again.take([want(rate=4, per_s=60.0)], owner="b", now=NOW + 1) == Taken([], {"default": NOW + 60})

    async def test_queues_and_definitions_as_they_were_set_are_there_again(
        self, store: Store, open_again: OpenAgain
    ) -> None:
        line = Line(name="mail", paused=True, note="☕", rate=5, per_s=60.0, max_attempts=None)
        await store.save([("lines", "mail", line), ("definitions", "main", Definition(name="main"))])
        again = await open_again()
        assert await again.load("lines") == {"mail": line}
        assert await again.load("definitions") == {"main": Definition(name="main")}
