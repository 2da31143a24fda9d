"""A supervisor answers while one of its children cannot start (otp-49 to otp-53)."""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable

import pytest

from raptor.child import Counts
from raptor.childspec import ChildSpec
from raptor.clock import Clock, VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import ChildError
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.supervisor import (
    Supervisor,
    count_children,
    delete_child,
    get_childspec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.actors.kids import STRATEGIES, Diary, end, kid, kids, living, refs, supervise

ENDLESS = 1_000_000

by_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


async def looping(clock: Clock, diary: Diary, ids: str = "a", stuck: str = "a", strategy: str = "one_for_one") -> Ref:
    """A supervisor that tries in vain, again and again, to restart one child."""
    sup = await supervise(clock, kids(diary, ids), strategy=strategy, intensity=ENDLESS)
    diary.will(stuck, "raise")
    await end(diary.refs(stuck)[0], "crash")
    await diary.written("refused", stuck, 3)
    return sup


async def looping_pool(clock: Clock, diary: Diary, count: int = 1) -> tuple[Ref, list[Ref]]:
    """A dynamic supervisor whose children all try in vain to restart; -> it and who they were."""
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor, intensity=ENDLESS)
    children = []
    for n in range(count):
        child = await start_child(sup, n)
        assert child is not None
        children.append(child)
        diary.will(n, "raise")
    for n, child in enumerate(children):
        await end(child, "crash")
        await diary.written("refused", n, 3)
    return sup, children


async def answer_of(request: Awaitable[object]) -> str:
    with pytest.raises(ChildError) as caught:
        await request
    return caught.value.answer


async def assert_loop_is_over(sup: Ref, diary: Diary) -> None:
    """Virtual time moves only when nothing runs: nothing is tried any more."""
    tries = len(diary.ids("refused"))
    await sup.runtime.clock.sleep(3600)
    assert len(diary.ids("refused")) == tries


@pytest.mark.spec("otp-49")
@by_strategy
async def test_a_child_that_cannot_start_is_listed_as_restarting_and_not_active(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await looping(clock, diary, strategy=strategy)
    for _ in range(3):
        [info] = await which_children(sup)
        assert (info.id, info.ref, info.restarting) == ("a", None, True)
        assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=1)
    tries = len(diary.ids("refused"))
    await diary.written("refused", "a", tries + 3)


@pytest.mark.spec("otp-49")
async def test_a_dynamic_child_that_cannot_start_is_listed_as_restarting(clock: Clock) -> None:
    diary = Diary()
    sup, _ = await looping_pool(clock, diary)
    [info] = await which_children(sup)
    assert (info.id, info.ref, info.restarting) == (None, None, True)
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=1)


@pytest.mark.spec("otp-49")
async def test_restarting_children_are_counted_one_by_one(clock: Clock) -> None:
    """count_restarting_children of OTP: three children, of which more and more cannot start, then can again."""
    diary = Diary()
    sup, _ = await looping_pool(clock, diary, 3)
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=3)
    for active, n in enumerate(range(3), 1):
        diary.will(n, "ok")
        await diary.written("started", n, 2)
        assert await count_children(sup) == Counts(specs=1, active=active, supervisors=0, workers=3)
    assert not any(info.restarting for info in await which_children(sup))


@pytest.mark.spec("otp-49")
async def test_a_supervisor_serves_its_other_children_meanwhile(clock: Clock) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abc")
    before = await refs(sup)
    assert (before["a"], [ref is not None for ref in before.values()]) == (None, [False, True, True])
    assert before["b"] is not None
    await end(before["b"], "crash")
    assert (await refs(sup))["b"] not in (None, before["b"])
    assert await start_child(sup, kid(diary, "d")) is not None
    await terminate_child(sup, "c")
    await delete_child(sup, "c")
    assert list(await refs(sup)) == ["a", "b", "d"]


@pytest.mark.spec("otp-49")
@by_strategy
async def test_the_loop_ends_when_the_child_can_start_again(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abc", stuck="b", strategy=strategy)
    diary.will("b", "ok")
    await diary.written("started", "b", 2)
    assert list(await living(sup)) == ["a", "b", "c"]
    assert not any(info.restarting for info in await which_children(sup))
    await assert_loop_is_over(sup, diary)


@pytest.mark.spec("otp-50")
@by_strategy
async def test_requests_about_a_restarting_child_are_refused_with_otps_words(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await looping(clock, diary, strategy=strategy)
    assert await answer_of(start_child(sup, kid(diary, "a"))) == "already_present"
    assert await answer_of(restart_child(sup, "a")) == "restarting"
    assert await answer_of(delete_child(sup, "a")) == "restarting"
    assert (await get_childspec(sup, "a")).args == (diary, "a")
    [info] = await which_children(sup)
    assert info.restarting, "the questions changed nothing"


@pytest.mark.spec("otp-51")
@by_strategy
async def test_terminate_child_ends_the_loop(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await looping(clock, diary, strategy=strategy)
    await terminate_child(sup, "a")
    await assert_loop_is_over(sup, diary)
    [info] = await which_children(sup)
    assert (info.id, info.ref, info.restarting) == ("a", None, False)
    diary.will("a", "ok")
    assert await restart_child(sup, "a") is not None


@pytest.mark.spec("otp-51")
async def test_a_terminated_child_can_be_deleted_out_of_the_loop(clock: Clock) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "ab")
    await terminate_child(sup, "a")
    await delete_child(sup, "a")
    assert list(await living(sup)) == ["b"]
    await assert_loop_is_over(sup, diary)


@pytest.mark.spec("otp-51")
async def test_a_dynamic_child_in_the_loop_is_terminated_by_the_ref_that_it_had(clock: Clock) -> None:
    diary = Diary()
    sup, [old] = await looping_pool(clock, diary)
    await terminate_child(sup, old)
    assert await which_children(sup) == []
    await assert_loop_is_over(sup, diary)
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=0)


@pytest.mark.spec("otp-52")
@by_strategy
@pytest.mark.parametrize("way", ["exit", "stop", "kill"])
async def test_a_supervisor_can_be_shut_down_in_the_middle_of_the_loop(clock: Clock, strategy: str, way: str) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abc", stuck="b", strategy=strategy)
    match way:
        case "exit":
            sup.exit(Exit.SHUTDOWN)
        case "stop":
            await sup.stop(Exit.SHUTDOWN)
        case _:
            sup.kill()
    assert await sup.wait() == (Exit.KILLED if way == "kill" else Exit.SHUTDOWN)
    assert not any(ref.alive for id in "abc" for ref in diary.refs(id))
    await assert_loop_is_over(sup, diary)


@pytest.mark.spec("otp-52")
async def test_a_dynamic_supervisor_can_be_shut_down_in_the_middle_of_the_loop(clock: Clock) -> None:
    diary = Diary()
    sup, _ = await looping_pool(clock, diary, 2)
    other = await start_child(sup, "other")
    assert other is not None
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    assert other.reason == Exit.SHUTDOWN
    await assert_loop_is_over(sup, diary)


@pytest.mark.spec("otp-52")
async def test_a_parent_can_stop_an_inner_supervisor_in_the_middle_of_the_loop(clock: Clock) -> None:
    diary = Diary()
    inner = ChildSpec(id="inner", start=Supervisor, args=(kids(diary, "ab"),), kwargs={"intensity": ENDLESS})
    top = await supervise(clock, [inner])
    ref = (await living(top))["inner"]
    diary.will("a", "raise")
    await end(diary.refs("a")[0], "crash")
    await diary.written("refused", "a", 3)
    await terminate_child(top, "inner")
    assert ref.reason == Exit.SHUTDOWN
    assert diary.refs("b")[0].reason == Exit.SHUTDOWN
    await assert_loop_is_over(top, diary)


@pytest.mark.spec("otp-53")
async def test_in_a_rest_for_one_loop_later_children_are_down_and_earlier_ones_untouched(clock: Clock) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abcd", stuck="b", strategy="rest_for_one")
    listed = [(info.id, info.ref, info.restarting) for info in reversed(await which_children(sup))]
    assert listed == [("a", diary.refs("a")[0], False), ("b", None, True), ("c", None, False), ("d", None, False)]
    assert diary.refs("a")[0].alive
    assert len(diary.refs("a")) == 1
    assert await count_children(sup) == Counts(specs=4, active=1, supervisors=0, workers=4)
    assert await answer_of(start_child(sup, kid(diary, "c"))) == "already_present"


@pytest.mark.spec("otp-53")
async def test_a_later_child_can_be_started_and_deleted_in_a_rest_for_one_loop(clock: Clock) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abcd", stuck="b", strategy="rest_for_one")
    await delete_child(sup, "d")
    assert await restart_child(sup, "c") is not None
    diary.will("b", "ok")
    await diary.written("started", "b", 2)
    assert list(await living(sup)) == ["a", "b", "c"]
    assert len(diary.refs("a")) == 1


@pytest.mark.spec("otp-53")
async def test_in_a_one_for_all_loop_everyone_after_the_stuck_child_is_down(clock: Clock) -> None:
    diary = Diary()
    sup = await looping(clock, diary, "abc", stuck="b", strategy="one_for_all")
    listed = [(info.id, info.ref is not None, info.restarting) for info in reversed(await which_children(sup))]
    assert listed == [("a", True, False), ("b", False, True), ("c", False, False)]


def test_a_program_may_end_while_a_child_is_busy_and_leave_no_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the loop kills the child, which its supervisor restarts: the last thing that this loop does."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    clock = VirtualClock()

    async def main() -> None:
        sup = await supervise(clock, kids(Diary(), "a"))
        (await living(sup))["a"].cast(lambda child: child.runtime.clock.sleep(1000))
        await clock.sleep(10)  # until the supervisor's own task has lingered long enough

    clock.run(main)
    gc.collect()
    assert unraisable == []
    assert [record.getMessage() for record in caplog.records] == []
