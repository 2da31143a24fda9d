"""How supervisors stop their children, and themselves (otp-54 to otp-62)."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from raptor.actor import Stop
from raptor.clock import Clock, VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import CallTimeout, NoSuchActor
from raptor.events import Event
from raptor.exits import Exit, Reason
from raptor.ref import KILL_GRACE_S, ORPHAN_GRACE_S, Ref
from raptor.runtime import Runtime
from raptor.supervisor import ChildFailed, Supervisor, start_child, terminate_child, which_children
from tests.actors.kids import EXITS, STRATEGIES, Boom, Diary, Kid, begin, end, kid, kids, living, refs, supervise


class Slow(Kid):
    """Takes its time to end: as many seconds as its first extra argument says."""

    async def terminate(self, reason: Reason) -> None:
        self._write("asked", reason)
        await self.runtime.clock.sleep(self.rest[0])
        self._write("ended", reason)


class SpoilSport(Kid):
    """Asked to shut down, it ends for a reason of its own."""

    def terminate(self, reason: Reason) -> None:
        super().terminate(reason)
        raise Boom("in terminate")


async def busy(kid: Kid) -> None:
    """A handler that never comes back by itself."""
    await asyncio.get_running_loop().create_future()


def hears(sup: Ref, *names: str) -> list[Event]:
    """The events of the supervisor's node, as they come."""
    events: list[Event] = []
    sup.runtime.events.subscribe(events.append, *names)
    return events


# 54: order


@pytest.mark.spec("otp-54")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_children_are_stopped_in_reverse_order_one_after_the_other(clock: Clock, strategy: str) -> None:
    diary = Diary()
    specs = [kid(diary, id, 1.0, start=Slow) for id in "abc"]
    sup = await supervise(clock, specs, strategy=strategy)
    diary.clear()
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    assert diary.lines == [
        ("asked", "c"),
        ("ended", "c"),
        ("asked", "b"),
        ("ended", "b"),
        ("asked", "a"),
        ("ended", "a"),
    ]
    assert [note.at for note in diary.notes] == [0.0, 1.0, 1.0, 2.0, 2.0, 3.0]


@pytest.mark.spec("otp-54")
async def test_children_added_at_run_time_are_stopped_before_those_of_the_start(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"))
    await start_child(sup, kid(diary, "c"))
    await sup.stop(Exit.SHUTDOWN)
    assert diary.ids("ended") == ["c", "b", "a"]


@pytest.mark.spec("otp-54")
async def test_a_sub_supervisor_stops_its_own_children_before_the_next_sibling_is_asked(clock: Clock) -> None:
    diary = Diary()
    inner = kid(diary, "sub", start=Supervisor, args=(kids(diary, "xy"),))
    sup = await supervise(clock, [kid(diary, "a"), inner, kid(diary, "b")])
    await sup.stop()
    assert diary.ids("ended") == ["b", "y", "x", "a"]


# 55: asked, then killed


@pytest.mark.spec("otp-55")
async def test_a_child_is_asked_waited_for_and_then_killed(clock: Clock) -> None:
    diary = Diary()
    specs = [kid(diary, "quick", 0.25, start=Slow, shutdown=2), kid(diary, "slow", 60.0, start=Slow, shutdown=2)]
    sup = await supervise(clock, specs)
    quick, slow = (await living(sup)).values()
    await sup.stop(Exit.SHUTDOWN)
    assert (quick.reason, slow.reason) == (Exit.SHUTDOWN, Exit.KILLED)
    asked = [note for note in diary.notes if note.what == "asked"]
    assert [(note.id, note.at, note.reason) for note in asked] == [
        ("slow", 0.0, Exit.SHUTDOWN),
        ("quick", 2.0, Exit.SHUTDOWN),
    ]
    assert clock.monotonic() == 2.25
    assert diary.ids("ended") == ["quick"]


@pytest.mark.spec("otp-55")
async def test_a_child_that_is_busy_with_a_message_is_killed_when_its_time_is_up(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", shutdown=3)])
    (ref,) = (await living(sup)).values()
    ref.cast(busy)
    await clock.sleep(1)
    events = hears(sup, "shutdown_error")
    await sup.stop(Exit.SHUTDOWN)
    await clock.sleep(0)
    assert ref.reason == Exit.KILLED
    assert clock.monotonic() == 4.0
    assert diary.ids("ended") == [], "a killed child does not terminate"
    assert [(event.facts["child"], event.facts["reason"]) for event in events] == [("a", Exit.KILLED)]


@pytest.mark.spec("otp-55")
async def test_a_child_without_time_to_stop_is_asked_all_the_same(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "quick", shutdown=0), kid(diary, "slow", 1.0, start=Slow, shutdown=0)])
    quick, slow = (await living(sup)).values()
    await sup.stop(Exit.SHUTDOWN)
    assert (quick.reason, slow.reason) == (Exit.SHUTDOWN, Exit.KILLED)
    assert clock.monotonic() == 0.0


@pytest.mark.spec("otp-55")
async def test_the_message_in_hand_is_finished_and_those_that_wait_are_not_begun(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", shutdown=5)])
    (ref,) = (await living(sup)).values()
    done: list[str] = []

    async def slowly(_: Kid) -> None:
        await clock.sleep(1)
        done.append("in hand")

    ref.cast(slowly)
    ref.cast(lambda _: done.append("waiting"))
    await clock.sleep(0.5)
    await terminate_child(sup, "a")
    assert (ref.reason, done, clock.monotonic()) == (Exit.SHUTDOWN, ["in hand"], 1.0)


async def test_a_child_that_ignores_its_kill_is_reported_and_abandoned(clock: Clock) -> None:
    diary, over = Diary(), asyncio.Event()
    sup = await supervise(clock, [kid(diary, "a"), kid(diary, "deaf", shutdown=2)])
    deaf = (await living(sup))["deaf"]

    async def ignore(_: Kid) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass

    deaf.cast(ignore)
    events = hears(sup, "abandoned")
    await clock.sleep(1)
    await sup.stop(Exit.SHUTDOWN)
    await clock.sleep(0)
    assert deaf.reason == Exit.KILLED
    assert clock.monotonic() == 1 + 2 + KILL_GRACE_S
    assert [event.facts["actor"] for event in events] == [repr(deaf)]
    assert diary.ids("ended") == ["a"], "the supervisor went on with the others"
    over.set()


# 56: brutal kill


@pytest.mark.spec("otp-56")
@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_brutal_kill_asks_nobody_and_takes_no_time(clock: Clock, is_busy: bool) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", 9.0, start=Slow, shutdown="brutal_kill")])
    (ref,) = (await living(sup)).values()
    if is_busy:
        ref.cast(busy)
        await clock.sleep(1)
    before = clock.monotonic()
    await terminate_child(sup, "a")
    assert ref.reason == Exit.KILLED
    assert clock.monotonic() == before
    assert diary.lines == [("started", "a")], "terminate does not run"


@pytest.mark.spec("otp-56")
async def test_a_brutal_kill_that_was_wanted_is_no_shutdown_error(clock: Clock) -> None:
    sup = await supervise(clock, [kid(Diary(), "a", shutdown="brutal_kill")])
    errors, ends = hears(sup, "shutdown_error"), hears(sup, "child_ended")
    await sup.stop()
    await clock.sleep(0)
    assert (errors, [event.facts["reason"] for event in ends]) == ([], [Exit.KILLED])


# 57: infinity


@pytest.mark.spec("otp-57")
async def test_a_worker_may_be_given_for_ever_to_stop(clock: Clock) -> None:
    diary, day_s = Diary(), 86_400.0
    sup = await supervise(clock, [kid(diary, "a", day_s, start=Slow, shutdown="infinity", type="worker")])
    (ref,) = (await living(sup)).values()
    await sup.stop(Exit.SHUTDOWN)
    assert (ref.reason, clock.monotonic()) == (Exit.SHUTDOWN, day_s)


# 58: ends that race with the shutdown


@pytest.mark.spec("otp-58")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("how", ["normal", "shutdown", "shutdown_term", "crash", "kill"])
async def test_a_child_that_ends_by_itself_during_the_shutdown_is_no_trouble(
    clock: Clock, kind: type[Supervisor], restart: str, how: str
) -> None:
    """One child is slow to stop; meanwhile the other, not yet asked or asked already, ends for its own reason."""
    diary = Diary()
    sup, racer, slow = await racing(clock, diary, kind, restart)
    before = diary.ids("started")
    stopping = asyncio.create_task(sup.stop(Exit.SHUTDOWN))
    await diary.written("asked", "slow")
    await clock.sleep(1)
    if racer.alive:
        await end(racer, how)
        assert racer.reason == EXITS[how]
    assert await stopping == Exit.SHUTDOWN
    assert diary.ids("started") == before, "nobody was restarted"
    assert not racer.alive
    assert slow.reason == Exit.SHUTDOWN
    assert clock.monotonic() == 2.0


async def racing(clock: Clock, diary: Diary, kind: type[Supervisor], restart: str) -> tuple[Ref, Ref, Ref]:
    if kind is Supervisor:
        specs = [kid(diary, "racer", restart=restart), kid(diary, "slow", 2.0, start=Slow, restart=restart)]
        sup = await supervise(clock, specs, intensity=0)
        found = await living(sup)
        return sup, found["racer"], found["slow"]
    sup = await supervise(clock, kid(diary, "slow", start=Racer, args=(diary,), restart=restart), kind, intensity=0)
    racer, slow = await start_child(sup, "racer", None), await start_child(sup, "slow", 2.0)
    assert racer is not None
    assert slow is not None
    return sup, racer, slow


class Racer(Slow):
    """As Slow; without a time, it waits in its terminate for the message that ends it."""

    async def terminate(self, reason: Reason) -> None:
        if self.rest[0] is not None:
            await super().terminate(reason)


@pytest.mark.spec("otp-58")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("how", ["normal", "shutdown", "shutdown_term", "crash", "kill"])
async def test_a_child_that_has_just_ended_when_the_shutdown_begins_is_not_restarted(
    clock: Clock, restart: str, how: str
) -> None:
    """Its end is in the supervisor's mailbox, behind the order to stop."""
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", restart=restart), kid(diary, "b")], intensity=0)
    found, errors = await living(sup), hears(sup, "shutdown_error")
    stopping = asyncio.create_task(sup.stop(Exit.SHUTDOWN))
    found["a"].cast(Stop(EXITS[how])) if how != "kill" else found["a"].kill()
    assert await stopping == Exit.SHUTDOWN
    assert diary.ids("started") == ["a", "b"]
    assert not found["a"].alive
    assert found["b"].reason == Exit.SHUTDOWN
    # Of one that was killed it has heard before.
    fine = how in ("shutdown", "kill") or (restart != "permanent" and how in ("normal", "shutdown_term"))
    assert [event.facts["child"] for event in errors] == ([] if fine else ["a"])


@pytest.mark.spec("otp-58")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_a_child_that_fails_while_it_terminates_is_reported_and_the_shutdown_goes_on(
    clock: Clock, restart: str
) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a"), kid(diary, "spoiler", start=SpoilSport, restart=restart)])
    errors = hears(sup, "shutdown_error")
    spoiler = (await living(sup))["spoiler"]
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    await clock.sleep(0)
    assert isinstance(spoiler.reason, Boom)
    assert [event.facts["child"] for event in errors] == ["spoiler"]
    assert diary.ids("ended") == ["spoiler", "a"]


# 59: in parallel


@pytest.mark.spec("otp-59")
async def test_dynamic_children_stop_in_parallel(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", start=Slow, args=(diary,)), DynamicSupervisor)
    for number in range(100):
        await start_child(sup, number, 1.0 + number / 100)
    await sup.stop(Exit.SHUTDOWN)
    assert clock.monotonic() == pytest.approx(1.99), "the time of the slowest, not of all together"
    assert len(diary.ids("ended")) == 100


@pytest.mark.spec("otp-59")
async def test_dynamic_children_that_do_not_stop_in_time_are_killed_together(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", start=Slow, args=(diary,), shutdown=2), DynamicSupervisor)
    quick = [await start_child(sup, number, 1.0) for number in range(5)]
    slow = [await start_child(sup, number, 60.0) for number in range(5, 10)]
    await sup.stop(Exit.SHUTDOWN)
    assert clock.monotonic() == 2.0
    assert {ref.reason for ref in quick if ref} == {Exit.SHUTDOWN}
    assert {ref.reason for ref in slow if ref} == {Exit.KILLED}


# 60: stopped from outside


@pytest.mark.spec("otp-60")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_a_supervisor_stopped_from_outside_ends_normally_and_its_children_with_shutdown(
    clock: Clock, kind: type[Supervisor]
) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a") if kind is Supervisor else kid(diary, "a"), kind)
    child = await start_child(sup, *([kid(diary, "b")] if kind is Supervisor else []))
    assert child is not None
    assert await sup.stop() == Exit.NORMAL
    assert (sup.reason, child.reason) == (Exit.NORMAL, Exit.SHUTDOWN)
    with pytest.raises(NoSuchActor):
        await sup.stop()


@pytest.mark.spec("otp-60")
async def test_stop_with_a_timeout_raises_at_the_caller_and_the_shutdown_completes(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a"), kid(diary, "slow", 3.0, start=Slow)])
    found = await living(sup)
    with pytest.raises(CallTimeout):
        await sup.stop(timeout_s=1)
    assert clock.monotonic() == 1.0
    assert sup.alive
    assert found["slow"].alive
    assert await sup.wait() == Exit.NORMAL
    assert clock.monotonic() == 3.0
    assert {ref.reason for ref in found.values()} == {Exit.SHUTDOWN}


@pytest.mark.spec("otp-60")
async def test_a_caller_that_is_cancelled_while_it_stops_a_supervisor_changes_nothing(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "slow", 3.0, start=Slow)])
    stopping = asyncio.create_task(sup.stop())
    await diary.written("asked", "slow")
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert await sup.wait() == Exit.NORMAL


# 61: children that detach


@pytest.mark.spec("otp-61")
@pytest.mark.parametrize("shutdown", [5, "brutal_kill", "infinity"])
async def test_a_child_that_unlinked_itself_is_stopped_all_the_same(clock: Clock, shutdown: Any) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab", shutdown=shutdown))
    found = await living(sup)
    await found["a"].call(lambda kid: kid.unlink(sup))
    await found["b"].call(lambda kid: kid.unlink(sup))
    await terminate_child(sup, "b")
    await sup.stop()
    wanted = Exit.KILLED if shutdown == "brutal_kill" else Exit.SHUTDOWN
    assert [ref.reason for ref in found.values()] == [wanted, wanted]
    assert clock.monotonic() == 0.0


@pytest.mark.spec("otp-61")
@pytest.mark.parametrize("shutdown", [5, "brutal_kill", "infinity"])
async def test_a_child_that_unlinked_itself_and_died_unnoticed_does_not_hang_the_supervisor(
    clock: Clock, shutdown: Any
) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab", shutdown=shutdown))
    found = await living(sup)
    for ref in found.values():
        await ref.call(lambda kid: kid.unlink(sup))
        await end(ref, "crash")
    assert await refs(sup) == found, "nobody told the supervisor"
    await terminate_child(sup, "b")
    assert await sup.stop() == Exit.NORMAL
    assert clock.monotonic() == 0.0


# 62: killed supervisors


@pytest.mark.spec("otp-62")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_the_children_of_a_killed_supervisor_die_and_its_parent_restarts_it(
    clock: Clock, kind: type[Supervisor]
) -> None:
    diary = Diary()
    below = (kids(diary, "x"),) if kind is Supervisor else (kid(diary, "x"),)
    top = await supervise(clock, [kid(diary, "sub", start=kind, args=below, name="sub")])
    sub = (await living(top))["sub"]
    if kind is DynamicSupervisor:
        await start_child(sub)
    (child,) = diary.refs("x")
    sub.kill()
    assert await sub.wait() == Exit.KILLED
    assert child.reason == Exit.KILLED
    assert diary.ids("ended") == [], "brutally: no terminate"
    successor = (await living(top))["sub"]
    assert successor is not sub
    assert sub.runtime.whereis("sub") is successor
    assert len(await which_children(successor)) == (1 if kind is Supervisor else 0)


@pytest.mark.spec("otp-62")
async def test_a_killed_supervisor_is_dead_only_after_its_children(clock: Clock) -> None:
    """Else a successor would meet the children of its predecessor, and their names."""
    diary, over = Diary(), asyncio.Event()
    top = await supervise(clock, [kid(diary, "sub", start=Supervisor, args=(kids(diary, "x", name="x"),))])
    sub, child = (await living(top))["sub"], diary.refs("x")[0]

    async def dies_slowly(_: Kid) -> None:
        try:
            await over.wait()
        finally:
            await clock.sleep(0.5)

    child.cast(dies_slowly)
    await clock.sleep(1)
    sub.kill()
    assert sub.alive
    assert await sub.wait() == Exit.KILLED
    assert child.reason == Exit.KILLED
    assert clock.monotonic() == 1.5
    assert len(diary.refs("x")) == 1, "the successor comes later still"
    await diary.written("started", "x", times=2)


@pytest.mark.spec("otp-62")
async def test_a_killed_supervisor_takes_whole_trees_with_it(clock: Clock) -> None:
    diary = Diary()
    inner = kid(diary, "inner", start=Supervisor, args=(kids(diary, "xy"),))
    sup = await supervise(clock, [kid(diary, "a"), kid(diary, "outer", start=Supervisor, args=([inner],))])
    everybody = [ref for id in "axy" for ref in diary.refs(id)]
    sup.kill()
    assert await sup.wait() == Exit.KILLED
    assert [ref.reason for ref in everybody] == [Exit.KILLED] * 3


async def test_an_orphan_that_ignores_the_end_of_its_parent_is_killed_after_a_grace(clock: Clock) -> None:
    """The parent is no supervisor: it crashes, and its child is deep in a message."""
    diary = Diary()
    parent = await begin(Runtime(clock, log=False), Kid, diary, "parent")
    child = await parent.call(lambda me: me.start_link(Kid, diary, "child"))
    child.cast(busy)
    await clock.sleep(0)
    parent.cast(Boom())
    reason = await parent.wait()
    assert isinstance(reason, Boom)
    assert child.reason == Exit.KILLED
    assert clock.monotonic() == ORPHAN_GRACE_S


async def test_a_supervisor_killed_while_it_stops_leaves_nobody_behind(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a"), kid(diary, "slow", 60.0, start=Slow, shutdown="infinity")])
    found = await living(sup)
    stopping = asyncio.create_task(sup.stop())
    await diary.written("asked", "slow")
    sup.kill()
    assert await stopping == Exit.KILLED
    assert {ref.reason for ref in found.values()} == {Exit.KILLED}
    assert clock.monotonic() == 0.0


async def test_a_supervisor_told_to_stop_twice_stops_once(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "slow", 3.0, start=Slow)])
    first, second = asyncio.create_task(sup.stop()), asyncio.create_task(sup.stop(Exit.SHUTDOWN))
    assert [await first, await second] == [Exit.NORMAL, Exit.NORMAL]
    assert diary.lines == [("started", "slow"), ("asked", "slow"), ("ended", "slow")]


async def test_a_boot_that_fails_says_who_and_stops_the_others_by_their_rules(clock: Clock) -> None:
    diary = Diary()
    diary.will("bad", "stop")
    with pytest.raises(Exception, match="refusal") as failed:
        await supervise(clock, [kid(diary, "slow", 9.0, start=Slow, shutdown=2), kid(diary, "bad")])
    assert failed.value.reason == Exit.SHUTDOWN(ChildFailed("bad", Exit.FAILED("refusal")))  # type: ignore[attr-defined]
    assert clock.monotonic() == 2.0


# The end of the program


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_program_may_end_with_a_tree_at_work_and_nothing_is_left_over(
    strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop cancels what runs; nothing is restarted that nobody will ever run."""
    clock, diary = VirtualClock(), []

    async def program() -> None:
        diary.append(Diary())
        sup = await supervise(clock, kids(diary[0], "ab"), strategy=strategy)
        for ref in (await living(sup)).values():
            ref.cast(busy)
        await clock.sleep(1)

    clock.run(program)
    gc.collect()  # a task left behind complains when it is collected
    assert caplog.text == ""
    assert diary[0].ids("started") == ["a", "b"]
