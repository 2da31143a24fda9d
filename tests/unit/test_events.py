"""Telling what happened, without ever waiting for or failing with those who listen."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from raptor.clock import Clock, VirtualClock
from raptor.events import Event, Events


async def turn() -> None:
    """Let the loop deliver."""
    await asyncio.sleep(0)


async def test_an_event_has_a_name_a_wall_time_and_facts(clock: Clock) -> None:
    events, heard = Events(clock), []
    events.subscribe(heard.append)
    await clock.sleep(5)
    events.emit("started", child="x", count=3)
    await turn()
    assert heard == [Event("started", clock.now(), {"child": "x", "count": 3})]


async def test_an_event_is_not_delivered_in_the_emitters_own_turn(clock: Clock) -> None:
    events, heard = Events(clock), []
    events.subscribe(heard.append)
    events.emit("one")
    assert heard == []
    await turn()
    assert len(heard) == 1


async def test_events_arrive_in_order_at_every_listener(clock: Clock) -> None:
    events = Events(clock)
    heard: list[list[object]] = [[], [], []]
    for one in heard:
        events.subscribe(lambda event, one=one: one.append(event.facts["number"]))
    for number in range(1_000):
        events.emit("counted", number=number)
        if number % 100 == 0:
            await turn()
    await turn()
    assert heard == [list(range(1_000))] * 3


async def test_a_listener_hears_only_the_names_it_asked_for(clock: Clock) -> None:
    events = Events(clock)
    some: list[str] = []
    every: list[str] = []
    events.subscribe(lambda event: some.append(event.name), "a", "c")
    events.subscribe(lambda event: every.append(event.name))
    for name in "abcd":
        events.emit(name)
    await turn()
    assert (some, every) == (["a", "c"], ["a", "b", "c", "d"])


async def test_an_event_that_nobody_listens_to_is_not_even_made(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> Event:
        raise AssertionError("an event was made for nobody")

    events = Events(clock)
    events.subscribe(lambda _: None, "other")
    monkeypatch.setattr("raptor.events.Event", forbidden)
    for _ in range(100):
        events.emit("nobody listens")
    assert not events.heard("nobody listens")
    assert events.heard("other")


async def test_heard_follows_the_subscriptions(clock: Clock) -> None:
    events = Events(clock)
    assert not events.heard("a")
    one = events.subscribe(lambda _: None, "a")
    every = events.subscribe(lambda _: None)
    assert (events.heard("a"), events.heard("b")) == (True, True)
    every.close()
    assert (events.heard("a"), events.heard("b")) == (True, False)
    one.close()
    one.close()
    assert not events.heard("a")


async def test_past_the_limit_the_oldest_are_dropped_and_counted(clock: Clock) -> None:
    events, heard = Events(clock), []
    subscription = events.subscribe(lambda event: heard.append(event.facts["number"]), limit=10)
    for number in range(35):
        events.emit("counted", number=number)
    await turn()
    assert heard == list(range(25, 35))
    assert subscription.dropped == 25
    events.emit("counted", number=99)
    await turn()
    assert (heard[-1], subscription.dropped) == (99, 25)


@pytest.mark.parametrize("error", [ValueError("x"), KeyError(), RecursionError(), StopIteration(), AssertionError()])
async def test_a_listener_that_fails_is_counted_and_logged_and_the_others_are_served(
    clock: Clock, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_: Event) -> None:
        raise error

    events, heard = Events(clock), []
    failing = events.subscribe(fails)
    events.subscribe(lambda event: heard.append(event.name))
    for name in "abc":
        events.emit(name)
    await turn()
    assert (failing.failed, heard) == (3, ["a", "b", "c"])
    assert caplog.text.count("a listener failed on") == 3


async def test_a_listener_that_is_cancelled_loses_nobody_their_events(clock: Clock) -> None:
    """A CancelledError is no Exception, and comes up easily where listeners touch tasks."""
    heard: list[str] = []

    def fails_once(event: Event) -> None:
        heard.append(event.name)
        if event.name == "a":
            raise asyncio.CancelledError

    events = Events(clock)
    subscription = events.subscribe(fails_once)
    for name in "abc":
        events.emit(name)
    await clock.sleep(1)
    assert (heard, subscription.failed) == (["a", "b", "c"], 1)


async def test_a_closed_subscription_hears_nothing_more_not_even_what_waited(clock: Clock) -> None:
    events, heard = Events(clock), []
    subscription = events.subscribe(heard.append)
    events.emit("before")
    subscription.close()
    events.emit("after")
    await turn()
    assert heard == []


async def test_a_listener_may_close_itself_and_others(clock: Clock) -> None:
    events = Events(clock)
    heard: list[tuple[str, str]] = []

    def first(event: Event) -> None:
        heard.append(("first", event.name))
        one.close()
        two.close()

    one = events.subscribe(first)
    two = events.subscribe(lambda event: heard.append(("second", event.name)))
    third = events.subscribe(lambda event: heard.append(("third", event.name)))
    events.emit("a")
    events.emit("b")
    await turn()
    assert heard == [("first", "a"), ("third", "a"), ("third", "b")]
    third.close()


async def test_a_listener_may_subscribe_and_emit(clock: Clock) -> None:
    events = Events(clock)
    heard: list[str] = []

    def echo(event: Event) -> None:
        heard.append(event.name)
        if event.name == "a":
            events.subscribe(lambda event: heard.append(f"late {event.name}"))
            events.emit("b")

    events.subscribe(echo)
    events.emit("a")
    await clock.sleep(1)
    assert sorted(heard) == ["a", "b", "late b"]


async def test_a_listener_that_emits_for_ever_starves_nobody(clock: Clock) -> None:
    events = Events(clock)
    count = 0

    def echo(_: Event) -> None:
        nonlocal count
        count += 1
        events.emit("again")

    subscription = events.subscribe(echo)
    events.emit("again")
    for _ in range(100):
        await turn()
    assert 0 < count <= 200
    subscription.close()


async def test_a_slow_listener_does_not_hold_up_the_emitter(clock: Clock) -> None:
    """It is the loop that is slow then, after the emitter has gone on."""
    events, order = Events(clock), []
    events.subscribe(lambda _: order.append("listener"))
    events.emit("a")
    order.append("emitter")
    await turn()
    assert order == ["emitter", "listener"]


async def test_any_thread_may_emit_and_the_loop_hears_all_of_it(system_clock: Clock) -> None:
    events, done = Events(system_clock), asyncio.Event()
    heard: list[tuple[Any, Any]] = []
    listeners: set[int] = set()

    def listen(event: Event) -> None:
        listeners.add(threading.get_ident())
        heard.append((event.facts["thread"], event.facts["number"]))
        if len(heard) == 2_000:
            done.set()

    def emit(thread: int) -> None:
        for number in range(500):
            events.emit("from a thread", thread=thread, number=number)

    events.subscribe(listen)
    threads = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(30):
        await done.wait()
    assert listeners == {threading.get_ident()}
    for thread in range(4):
        assert [number for one, number in heard if one == thread] == list(range(500))
    for one in threads:
        one.join()


def test_an_event_after_the_end_of_the_loop_hurts_nobody() -> None:
    clock = VirtualClock()
    heard: list[str] = []

    async def program() -> Events:
        events = Events(clock)
        events.subscribe(lambda event: heard.append(event.name))
        events.emit("in time")
        await turn()
        return events

    events = clock.run(program)
    events.emit("too late")
    thread = threading.Thread(target=events.emit, args=("too late as well",))
    thread.start()
    thread.join()
    assert heard == ["in time"]
    assert not events.heard("anything"), "a subscription goes with its loop"


async def test_facts_may_have_any_name(clock: Clock) -> None:
    events, heard = Events(clock), []
    events.subscribe(heard.append)
    events.emit("odd", at=1, facts=2, event=3, name=4)
    await turn()
    assert heard[0].facts == {"at": 1, "facts": 2, "event": 3, "name": 4}
