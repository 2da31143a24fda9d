"""Links, monitors and timers, as far as supervision needs them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.actor import Actor, Caller, Down, Exited
from raptor.clock import Clock, VirtualClock
from raptor.exits import Exit, Reason
from raptor.ref import ORPHAN_GRACE_S, Ref
from raptor.runtime import Runtime
from tests.actors.kids import Boom, begin

REASONS: list[Reason] = [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term"), Exit.FAILED("word"), Boom("an error")]
ABNORMAL = REASONS[1:]


class Peer(Actor):
    """Does what it is called with, and writes down the rest."""

    def init(self) -> None:
        self.seen: list[Any] = []
        self.ends: list[Reason] = []

    def handle_call(self, message: Callable[[Any], Any], caller: Caller) -> Any:
        return message(self)

    def handle_cast(self, message: Any) -> Any:
        return message(self) if callable(message) else self.seen.append(message)

    def handle_info(self, message: Any) -> None:
        self.seen.append(message)

    def terminate(self, reason: Reason) -> None:
        self.ends.append(reason)


class Trapper(Peer):
    trap_exit = True


async def peers(clock: Clock, *kinds: type[Peer]) -> list[Ref]:
    runtime = Runtime(clock, log=False)
    return [await begin(runtime, kind) for kind in kinds]


def state(ref: Ref) -> Peer:
    assert isinstance(ref.actor, Peer)
    return ref.actor


async def busy(_: Peer) -> None:
    await asyncio.get_running_loop().create_future()


async def link(one: Ref, two: Ref) -> None:
    await one.call(lambda me: me.link(two))


# Links


@pytest.mark.parametrize("reason", ABNORMAL)
@pytest.mark.parametrize("backwards", [False, True])
async def test_an_abnormal_end_ends_the_linked_one_with_the_same_reason(
    clock: Clock, reason: Reason, backwards: bool
) -> None:
    one, two = await peers(clock, Peer, Peer)
    await link(two, one) if backwards else await link(one, two)
    ends = state(two).ends
    await one.stop(reason)
    assert await two.wait() == reason
    assert ends == [reason], "in order, with terminate"


async def test_a_normal_end_does_not_end_the_linked_one(clock: Clock) -> None:
    one, two = await peers(clock, Peer, Peer)
    await link(one, two)
    await one.stop()
    await clock.sleep(60)
    assert two.alive
    assert state(two).seen == []


@pytest.mark.parametrize("reason", REASONS)
async def test_one_that_traps_exits_is_told_instead(clock: Clock, reason: Reason) -> None:
    one, two = await peers(clock, Peer, Trapper)
    await link(one, two)
    await one.stop(reason)
    await clock.sleep(60)
    assert two.alive
    assert state(two).seen == [Exited(one, reason)]


async def test_the_killed_end_their_links_with_killed_and_those_may_terminate(clock: Clock) -> None:
    """A link carries the reason of a kill, not the kill: only children of the killed are killed."""
    one, two, three = await peers(clock, Peer, Peer, Trapper)
    await link(one, two)
    await link(one, three)
    ends = state(two).ends
    one.kill()
    assert await two.wait() == Exit.KILLED
    assert ends == [Exit.KILLED]
    await clock.sleep(0)
    assert state(three).seen == [Exited(one, Exit.KILLED)]


async def test_an_unlinked_pair_is_independent(clock: Clock) -> None:
    one, two = await peers(clock, Peer, Peer)
    await link(one, two)
    await two.call(lambda me: me.unlink(one))
    await one.stop(Boom())
    await clock.sleep(60)
    assert two.alive


async def test_a_link_to_the_dead_is_a_link_to_nobody(clock: Clock) -> None:
    dead, plain, trapper = await peers(clock, Peer, Peer, Trapper)
    await dead.stop()
    await link(trapper, dead)
    await clock.sleep(0)
    assert state(trapper).seen == [Exited(dead, Exit.NOPROC)]
    plain.cast(lambda me: me.link(dead))
    assert await plain.wait() == Exit.NOPROC


async def test_linking_twice_is_linking_once(clock: Clock) -> None:
    one, two = await peers(clock, Peer, Trapper)
    for _ in range(3):
        await link(one, two)
    await link(two, one)
    await one.stop()
    await clock.sleep(0)
    assert state(two).seen == [Exited(one, Exit.NORMAL)]


async def test_an_actor_linked_to_itself_ends_like_any_other(clock: Clock) -> None:
    (one,) = await peers(clock, Peer)
    await link(one, one)
    assert isinstance(await one.stop(Boom()), Boom)


async def test_a_busy_actor_linked_to_one_that_ended_is_killed_after_a_grace(clock: Clock) -> None:
    one, two = await peers(clock, Peer, Peer)
    await link(one, two)
    two.cast(busy)
    await clock.sleep(1)
    await one.stop(Boom())
    assert await two.wait() == Exit.KILLED
    assert clock.monotonic() == 1 + ORPHAN_GRACE_S


@pytest.mark.parametrize("length", [10, 1_000])
async def test_a_chain_of_links_of_any_length_ends_as_one(clock: Clock, length: int) -> None:
    chain = await peers(clock, *[Peer] * length)
    for one, two in itertools.pairwise(chain):
        await link(one, two)
    await chain[0].stop(Boom("the first"))
    await clock.sleep(1)
    assert [ref for ref in chain if ref.alive] == []
    assert {ref.reason for ref in chain} == {chain[0].reason}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("depth", [10, 300])
async def test_a_deep_family_ends_from_the_top_to_the_bottom(clock: Clock, killed: bool, depth: int) -> None:
    (top,) = family = await peers(clock, Peer)
    for _ in range(depth):
        family.append(await family[-1].call(lambda me: me.start_link(Peer)))
    if killed:
        top.kill()
    else:
        top.exit(Boom())
    await top.wait()
    assert [ref for ref in family if ref.alive] == []


async def test_a_child_is_linked_to_its_parent_and_its_end_is_heard(clock: Clock) -> None:
    trapper, plain = await peers(clock, Trapper, Peer)
    child = await trapper.call(lambda me: me.start_link(Peer))
    await child.stop(Exit.SHUTDOWN)
    await clock.sleep(0)
    assert state(trapper).seen == [Exited(child, Exit.SHUTDOWN)]
    child = await plain.call(lambda me: me.start_link(Peer))
    await child.stop(Boom())
    assert isinstance(await plain.wait(), Boom)


# Monitors


@pytest.mark.parametrize("reason", [*REASONS, Exit.KILLED])
async def test_a_monitor_tells_of_the_end_once_and_harms_nobody(clock: Clock, reason: Reason) -> None:
    watched, watcher = await peers(clock, Peer, Peer)
    monitor = await watcher.call(lambda me: me.monitor(watched))
    if reason == Exit.KILLED:
        watched.kill()
    else:
        await watched.stop(reason)
    await clock.sleep(60)
    assert state(watcher).seen == [Down(monitor, watched, reason)]


async def test_a_monitor_on_the_dead_tells_at_once(clock: Clock) -> None:
    watched, watcher = await peers(clock, Peer, Peer)
    await watched.stop()
    monitor = await watcher.call(lambda me: me.monitor(watched))
    await clock.sleep(0)
    assert state(watcher).seen == [Down(monitor, watched, Exit.NOPROC)]


async def test_a_cancelled_monitor_tells_nothing_and_others_still_do(clock: Clock) -> None:
    watched, watcher = await peers(clock, Peer, Peer)
    first = await watcher.call(lambda me: me.monitor(watched))
    second = await watcher.call(lambda me: me.monitor(watched))
    first.cancel()
    first.cancel()
    await watched.stop()
    await clock.sleep(0)
    assert state(watcher).seen == [Down(second, watched, Exit.NORMAL)]
    second.cancel()


async def test_the_end_of_a_watcher_is_nothing_to_the_watched(clock: Clock) -> None:
    watched, watcher = await peers(clock, Peer, Peer)
    await watcher.call(lambda me: me.monitor(watched))
    await watcher.stop(Boom())
    await clock.sleep(60)
    assert watched.alive
    await watched.stop()


async def test_down_comes_after_the_messages_that_were_sent_before(clock: Clock) -> None:
    watched, watcher = await peers(clock, Peer, Peer)
    await watcher.call(lambda me: me.monitor(watched))
    watched.cast(lambda _: watcher.send("last words"))
    await watched.stop()
    await clock.sleep(0)
    assert [type(message) for message in state(watcher).seen] == [str, Down]


async def test_whoever_hears_of_an_end_finds_the_name_free(clock: Clock) -> None:
    runtime = Runtime(clock, log=False)
    found: list[object] = []

    class Heir(Peer):
        def handle_info(self, message: Any) -> None:
            found.append(self.runtime.whereis("it"))

    watched, heir = await begin(runtime, Peer, name="it"), await begin(runtime, Heir)
    await heir.call(lambda me: me.monitor(watched))
    await watched.stop()
    await clock.sleep(0)
    assert found == [None]


async def test_a_thousand_watchers_are_all_told(clock: Clock) -> None:
    watched, *watchers = await peers(clock, *[Peer] * 1_001)
    for watcher in watchers:
        await watcher.call(lambda me: me.monitor(watched))
    waiting = [asyncio.create_task(watched.wait()) for _ in range(1_000)]
    await clock.sleep(0)
    watched.kill()
    assert set(await asyncio.gather(*waiting)) == {Exit.KILLED}
    assert [len(state(watcher).seen) for watcher in watchers] == [1] * 1_000


async def test_a_wait_that_is_cancelled_or_too_short_leaves_no_monitor(clock: Clock) -> None:
    (watched,) = await peers(clock, Peer)
    waiting = asyncio.create_task(watched.wait())
    await clock.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    with pytest.raises(TimeoutError):
        await watched.wait(1)
    assert not watched._monitors


# Timers


async def test_a_timer_sends_its_message_when_it_is_due(clock: Clock) -> None:
    (ref,) = await peers(clock, Peer)
    await ref.call(lambda me: me.send_after(5, "due") and None)
    await clock.sleep(4.999)
    assert state(ref).seen == []
    await clock.sleep(0.001)
    await clock.sleep(0)
    assert state(ref).seen == ["due"]


async def test_a_cancelled_timer_sends_nothing_and_says_whether_it_was_in_time(clock: Clock) -> None:
    (ref,) = await peers(clock, Peer)
    timer = await ref.call(lambda me: me.send_after(5, "due"))
    await clock.sleep(4)
    assert timer.cancel() is True
    assert timer.cancel() is False
    await clock.sleep(60)
    assert state(ref).seen == []
    late = await ref.call(lambda me: me.send_after(5, "due"))
    await clock.sleep(5)
    assert late.cancel() is False
    await clock.sleep(0)
    assert state(ref).seen == ["due"]


async def test_a_timer_of_nothing_comes_after_what_waits(clock: Clock) -> None:
    (ref,) = await peers(clock, Peer)

    def handler(me: Peer) -> None:
        me.send_after(0, "due")
        me.ref.cast("cast")

    await ref.call(handler)
    await clock.sleep(1)
    assert state(ref).seen == ["cast", "due"]


@pytest.mark.parametrize("killed", [False, True])
async def test_timers_die_with_their_actor(clock: Clock, killed: bool) -> None:
    (ref,) = await peers(clock, Peer)
    actor = state(ref)
    timers = [ref.timer(number, number) for number in range(1, 10)]
    if killed:
        ref.kill()
    else:
        await ref.stop()
    loop: Any = asyncio.get_running_loop()
    assert [handle for handle in loop._scheduled if not handle.cancelled() and handle.when() >= 1] == []
    await clock.sleep(60)
    assert actor.seen == []
    assert [timer.cancel() for timer in timers] == [False] * 9


@settings(max_examples=60, deadline=None)
@given(delays=st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=30))
def test_timers_come_in_the_order_in_which_they_are_due_less_the_cancelled(delays: list[tuple[float, bool]]) -> None:
    clock = VirtualClock()

    async def program() -> None:
        (ref,) = await peers(clock, Peer)
        timers = [(ref.timer(delay, number), cancel) for number, (delay, cancel) in enumerate(delays)]
        for timer, cancel in timers:
            assert not cancel or timer.cancel()
        await clock.sleep(2e6)
        expected = sorted((delay, number) for number, (delay, cancel) in enumerate(delays) if not cancel)
        assert sorted(state(ref).seen) == sorted(number for _, number in expected)
        assert [delays[number][0] for number in state(ref).seen] == [delay for delay, _ in expected]

    clock.run(program)
