"""How long somebody waits for a store that cannot write, or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from raptor.clock import VirtualClock
from raptor.durably import Durably
from raptor.errors import NotWritten
from raptor.events import Event, Events


class Store:
    """It takes what is written from some time on, and hangs from another."""

    def __init__(self, clock: VirtualClock, *, back_at: float = 0.0, hangs: bool = False) -> None:
        self.tries: list[float] = []
        self._clock = clock
        self._back_at = back_at
        self._hangs = hangs

    async def write(self) -> str:
        self.tries.append(self._clock.monotonic())
        if self._hangs:
            await asyncio.Future()
        if self._clock.monotonic() < self._back_at:
            raise NotWritten("unreachable", "the store", "nobody is there")
        return "written"


def durably_of(clock: VirtualClock) -> tuple[Durably, list[Event]]:
    events, told = Events(clock), list[Event]()
    events.subscribe(told.append)
    return Durably("main", clock, events), told


async def after(clock: VirtualClock, seconds: float, do: Callable[[], None]) -> None:
    await clock.sleep(seconds)
    do()


async def both(writing: Awaitable[str], *others: Awaitable[None]) -> str | BaseException:
    found, *_ = await asyncio.gather(writing, *others, return_exceptions=True)
    return found


async def test_pauses_grow_to_five_seconds_and_each_is_told(clock: VirtualClock) -> None:
    durably, told = durably_of(clock)
    store = Store(clock, back_at=16.0)
    assert await durably(store.write) == "written"
    assert store.tries == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3, 16.3])
    await asyncio.sleep(0)
    assert len(told) == durably.failures == 8


async def test_in_a_hurry_a_store_that_is_back_is_noticed_within_half_a_second(clock: VirtualClock) -> None:
    durably, told = durably_of(clock)
    store = Store(clock, back_at=40.0)
    assert await both(durably(store.write), after(clock, 7.0, durably.hurry)) == "written"
    assert 7.0 in store.tries  # the pause of then is over
    assert 40.0 <= clock.monotonic() <= 40.5
    assert len(told) < 12  # what is told anew each time is heard no more


async def test_one_that_is_broken_off_in_a_pause_tries_once_more_at_once(clock: VirtualClock) -> None:
    durably, _ = durably_of(clock)
    store = Store(clock, back_at=40.0)
    found = await both(durably(store.write), after(clock, 7.0, durably.break_off))
    assert isinstance(found, NotWritten)
    assert store.tries[-1] == clock.monotonic() == 7.0


async def test_one_that_gives_up_in_a_pause_says_why_it_could_not_write(clock: VirtualClock) -> None:
    durably, _ = durably_of(clock)
    store = Store(clock, back_at=40.0)
    found = await both(durably(store.write), after(clock, 7.0, durably.give_up))
    assert "nobody is there" in str(found)
    assert (len(store.tries), clock.monotonic()) == (7, 7.0)


async def test_one_that_gives_up_waits_for_no_answer_and_does_not_say_that_nothing_was_written(
    clock: VirtualClock,
) -> None:
    durably, _ = durably_of(clock)
    left: list[int] = []

    async def write() -> str:
        task = asyncio.current_task()
        assert task is not None
        try:
            return await durably(Store(clock, hangs=True).write)
        finally:
            left.append(task.cancelling())

    found = await both(write(), after(clock, 7.0, durably.give_up))
    assert isinstance(found, NotWritten)
    assert found.reason == "unknown"
    assert (clock.monotonic(), left) == (7.0, [0])  # whoever it was goes on as if nobody had cancelled it


async def test_what_is_written_when_it_has_given_up_is_tried(clock: VirtualClock) -> None:
    durably, _ = durably_of(clock)
    durably.give_up()
    assert await durably(Store(clock).write) == "written"
    with pytest.raises(NotWritten, match="nobody is there"):
        await durably(Store(clock, back_at=1.0).write)


async def test_a_cancellation_by_others_is_none_of_its_own(clock: VirtualClock) -> None:
    durably, _ = durably_of(clock)
    writing = asyncio.ensure_future(durably(Store(clock, hangs=True).write))
    await clock.sleep(1.0)
    durably.give_up()
    writing.cancel()
    await asyncio.wait({writing})
    assert writing.cancelled()


async def test_an_answer_that_comes_just_then_counts(clock: VirtualClock) -> None:
    """Whoever hides the cancellation has an answer, and nobody is left cancelled."""
    durably, _ = durably_of(clock)

    async def write() -> str:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            return "written"
        raise AssertionError

    async def whole() -> str:
        found = await durably(write)
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        return found

    assert await both(whole(), after(clock, 1.0, durably.give_up)) == "written"
