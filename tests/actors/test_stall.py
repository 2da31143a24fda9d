"""The stall watchdog: a child that is busy with one message for too long is killed, told of and restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from raptor.actor import Caller
from raptor.childspec import Backoff, ChildSpec
from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import ActorDied
from raptor.events import Event
from raptor.exits import Exit
from raptor.ref import KILL_GRACE_S, Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, reconfigure, restart_child, start_child, terminate_child, which_children
from raptor.tree import tree
from tests.actors.kids import STRATEGIES, Diary, Kid, begin, end, kid, kids, living

LIMIT_S = 10.0
FOR_EVER = 1e6


class Busy(Kid):
    """A kid that sleeps for as long as a message says; when stubborn, it sleeps on through its first cancellation."""

    async def handle_call(self, message: float, caller: Caller) -> Any:
        await self._work(message)
        return "done"

    async def handle_cast(self, message: float) -> Any:
        await self._work(message)

    async def _work(self, seconds: float) -> None:
        try:
            await self.runtime.clock.sleep(seconds)
        except asyncio.CancelledError:
            if not self.more.get("stubborn"):
                raise
            await self.runtime.clock.sleep(seconds)


class Stage:
    """A node whose events are kept, with a diary for its kids."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.runtime = Runtime(clock, log=False)
        self.diary = Diary()
        self.heard: list[Event] = []
        self.runtime.events.subscribe(self.heard.append, "stalled", "abandoned")

    def busy(self, id: Hashable, **fields: Any) -> ChildSpec:
        return kid(self.diary, id, **{"start": Busy, "stall_s": LIMIT_S, **fields})

    async def supervise(self, *specs: ChildSpec, **flags: Any) -> Ref:
        return await begin(self.runtime, Supervisor, specs, **flags)

    def stalled(self) -> list[object]:
        """The children that were reported, in order."""
        return [event.facts["child"] for event in self.heard if event.name == "stalled"]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_child_busy_for_longer_than_its_limit_is_killed_and_restarted(clock: Clock, strategy: str) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), strategy=strategy)
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    assert await first.wait() == Exit.KILLED
    assert LIMIT_S <= clock.monotonic() <= LIMIT_S * 1.25
    second = (await living(sup))["a"]
    assert second is not first
    assert await second.call(1.0) == "done"


@pytest.mark.parametrize("offset_s", [0.1, LIMIT_S / 3, LIMIT_S * 0.99, LIMIT_S * 7.3])
async def test_a_stall_is_noticed_in_time_whenever_it_begins(clock: Clock, offset_s: float) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    first = (await living(sup))["a"]
    await clock.sleep(offset_s)
    first.cast(FOR_EVER)
    assert await first.wait() == Exit.KILLED
    assert LIMIT_S <= clock.monotonic() - offset_s <= LIMIT_S * 1.25


async def test_a_stall_is_reported_once_with_its_facts(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    await first.wait()
    await living(sup)
    [event] = stage.heard
    assert event.name == "stalled"
    assert (event.facts["supervisor"], event.facts["child"]) == (repr(sup), "a")
    assert (event.facts["actor"], event.facts["limit_s"]) == (repr(first), LIMIT_S)
    busy_s = event.facts["busy_s"]
    assert isinstance(busy_s, float)
    assert LIMIT_S <= busy_s <= LIMIT_S * 1.25


async def test_who_waits_for_a_stalled_child_hears_that_it_was_killed(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    with pytest.raises(ActorDied) as caught:
        await (await living(sup))["a"].call(FOR_EVER, timeout_s=None)
    assert caught.value.reason == Exit.KILLED


async def test_an_idle_child_is_never_touched(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), stage.busy("b"))
    before = await living(sup)
    before["b"].cast(1.0)
    await clock.sleep(LIMIT_S * 1000)
    assert await living(sup) == before
    assert stage.heard == []


async def test_a_message_within_the_limit_is_left_alone(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    before = await living(sup)
    for seconds in (LIMIT_S * 0.5, LIMIT_S * 0.99, LIMIT_S * 0.75):
        assert await before["a"].call(seconds, timeout_s=None) == "done"
    assert await living(sup) == before
    assert stage.heard == []


async def test_the_limit_is_for_each_message_not_for_all_that_wait(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    before = await living(sup)
    for _ in range(50):
        before["a"].cast(LIMIT_S * 0.9)
    assert await before["a"].call(0.0, timeout_s=None) == "done"
    assert clock.monotonic() >= LIMIT_S * 45
    assert await living(sup) == before
    assert stage.heard == []


async def test_a_child_without_a_limit_may_be_busy_for_ever(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a", stall_s=None), stage.busy("b"))
    before = await living(sup)
    before["a"].cast(FOR_EVER / 2)
    await clock.sleep(LIMIT_S * 1000)
    assert await living(sup) == before
    assert before["a"].busy_since == 0


async def test_no_child_with_a_limit_means_no_looking(clock: Clock) -> None:
    """Nothing wakes an idle node: with no timer left, virtual time has nowhere to go."""
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a", stall_s=None))
    await living(sup)
    await clock.sleep(10)  # the supervisor's own task has lingered its time
    assert stage.runtime.loop._scheduled == []  # type: ignore[attr-defined]


async def test_the_successor_of_a_stalled_child_is_watched_as_well(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), intensity=10)
    for _ in range(4):
        ref = (await living(sup))["a"]
        ref.cast(FOR_EVER)
        assert await ref.wait() == Exit.KILLED
    assert stage.stalled() == ["a"] * 4


async def test_only_the_stalled_child_is_killed(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(*(stage.busy(id) for id in "abc"))
    before = await living(sup)
    before["b"].cast(FOR_EVER)
    before["c"].cast(1.0)
    await before["b"].wait()
    after = await living(sup)
    assert {id for id in before if after[id] is not before[id]} == {"b"}
    assert stage.stalled() == ["b"]


async def test_children_are_held_to_their_own_limits(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("slow", stall_s=100.0), stage.busy("quick", stall_s=1.0), intensity=10)
    before = await living(sup)
    ended: dict[str, float] = {}
    for ref in before.values():
        ref.cast(FOR_EVER)
    for id in ("quick", "slow"):
        await before[id].wait()
        ended[id] = clock.monotonic()
    assert 1.0 <= ended["quick"] <= 1.25
    assert 100.0 <= ended["slow"] <= 125.0
    assert stage.stalled() == ["quick", "slow"]


async def test_a_shorter_limit_that_comes_later_is_looked_after_in_time(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("slow", stall_s=1000.0))
    await clock.sleep(1)
    quick = await start_child(sup, stage.busy("quick", stall_s=1.0))
    assert quick is not None
    quick.cast(FOR_EVER)
    await quick.wait()
    assert 2.0 <= clock.monotonic() <= 2.25


async def test_a_child_started_again_by_hand_is_watched(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    await terminate_child(sup, "a")
    await clock.sleep(LIMIT_S * 3)
    ref = await restart_child(sup, "a")
    assert ref is not None
    ref.cast(FOR_EVER)
    assert await ref.wait() == Exit.KILLED
    assert clock.monotonic() <= LIMIT_S * 4.25


async def test_a_child_that_came_back_after_a_backoff_is_watched(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), backoff=Backoff(initial_s=LIMIT_S * 5, max_s=LIMIT_S * 5))
    await end((await living(sup))["a"], "kill")
    ref = await stage.diary.written("started", "a", 2)
    ref.cast(FOR_EVER)
    assert await ref.wait() == Exit.KILLED
    assert stage.stalled() == ["a"]


async def test_a_stalled_dynamic_child_is_replaced(clock: Clock) -> None:
    stage = Stage(clock)
    template = stage.busy("t", args=(stage.diary,))
    sup = await begin(stage.runtime, DynamicSupervisor, template)
    one, two = await start_child(sup, "x"), await start_child(sup, "y")
    assert one is not None
    assert two is not None
    one.cast(FOR_EVER)
    assert await one.wait() == Exit.KILLED
    new = await stage.diary.written("started", "x", 2)
    assert {info.ref for info in await which_children(sup)} == {new, two}
    assert [event.facts["actor"] for event in stage.heard] == [repr(one)]


@pytest.mark.parametrize(("restart", "lives"), [("permanent", 2), ("transient", 2), ("temporary", 1)])
async def test_a_kill_for_a_stall_is_an_abnormal_end_like_any_other(clock: Clock, restart: str, lives: int) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a", restart=restart))
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    await first.wait()
    assert len(await which_children(sup)) == lives - 1
    assert len(stage.diary.refs("a")) == lives


async def test_stalls_count_towards_the_intensity(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), intensity=1, period_s=3600)
    for _ in range(2):
        ref = stage.diary.refs("a")[-1]
        ref.cast(FOR_EVER)
        await ref.wait()
        if ref is stage.diary.refs("a")[0]:
            await stage.diary.written("started", "a", 2)
    assert await sup.wait() == Exit.SHUTDOWN


async def test_the_tree_shows_how_long_a_child_has_been_busy(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"))
    (await living(sup))["a"].cast(FOR_EVER)
    await clock.sleep(LIMIT_S / 2)
    [branch] = tree(sup).children
    assert (branch.state, branch.busy_s) == ("busy", LIMIT_S / 2)


async def test_a_limit_given_by_a_new_spec_holds_from_the_next_start(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a", stall_s=None))
    await reconfigure(sup, [stage.busy("a")])
    await end((await living(sup))["a"], "kill")
    ref = (await living(sup))["a"]
    ref.cast(FOR_EVER)
    assert await ref.wait() == Exit.KILLED


# Children that ignore their cancellation


def stubborn(stage: Stage, id: str = "a", **fields: Any) -> ChildSpec:
    return stage.busy(id, kwargs={"stubborn": True}, **fields)


async def test_a_stalled_child_that_ignores_cancellation_is_abandoned_reported_and_replaced(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stubborn(stage))
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    assert await first.wait() == Exit.KILLED
    assert LIMIT_S <= clock.monotonic() <= LIMIT_S * 1.25 + KILL_GRACE_S
    second = (await living(sup))["a"]
    assert second is not first
    assert [event.name for event in stage.heard] == ["stalled", "abandoned"]
    assert stage.heard[-1].facts["actor"] == repr(first)
    assert await second.call(1.0) == "done"


@pytest.mark.parametrize("stall_s", [0.1, 1.0])
async def test_one_stall_is_reported_once_even_if_the_kill_takes_its_time(clock: Clock, stall_s: float) -> None:
    """The supervisor looks more often than a stubborn child takes to be given up."""
    stage = Stage(clock)
    sup = await stage.supervise(stubborn(stage, stall_s=stall_s))
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    await first.wait()
    await living(sup)
    assert [event.name for event in stage.heard] == ["stalled", "abandoned"]


async def test_an_abandoned_child_that_finishes_later_disturbs_nobody(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stubborn(stage, name="service"))
    first = (await living(sup))["a"]
    waiting = asyncio.ensure_future(first.call(LIMIT_S * 2, timeout_s=None))
    await first.wait()
    with pytest.raises(ActorDied):
        await waiting
    second = (await living(sup))["a"]
    await clock.sleep(LIMIT_S * 10)
    assert (await living(sup)) == {"a": second}
    assert stage.runtime.whereis("service") is second
    assert (first.alive, first.reason) == (False, Exit.KILLED)


async def test_a_child_that_ignores_cancellation_is_abandoned_after_its_shutdown_time(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stubborn(stage, stall_s=None, shutdown=3.0))
    first = (await living(sup))["a"]
    first.cast(FOR_EVER)
    await terminate_child(sup, "a")
    assert clock.monotonic() == 3.0 + KILL_GRACE_S
    assert first.reason == Exit.KILLED
    assert [event.name for event in stage.heard] == ["abandoned"]


async def test_a_supervisor_ends_although_its_children_ignore_cancellation(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(*(stubborn(stage, id, stall_s=None, shutdown="brutal_kill") for id in "abc"))
    children = await living(sup)
    for ref in children.values():
        ref.cast(FOR_EVER)
    await clock.sleep(1)
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    assert clock.monotonic() == 1 + 3 * KILL_GRACE_S
    assert [event.facts["actor"] for event in stage.heard] == [repr(children[id]) for id in "cba"]


async def test_idle_siblings_of_other_kinds_are_no_part_of_this(clock: Clock) -> None:
    stage = Stage(clock)
    sup = await stage.supervise(stage.busy("a"), *kids(stage.diary, "bc"))
    before = await living(sup)
    before["a"].cast(FOR_EVER)
    await before["a"].wait()
    after = await living(sup)
    assert (after["b"], after["c"]) == (before["b"], before["c"])
