"""How many restarts are too many, and what follows (otp-41 to otp-48)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raptor.childspec import ChildSpec
from raptor.clock import Clock, VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.events import Event
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, start_child, terminate_child, which_children
from tests.actors.kids import EXITS, STRATEGIES, Diary, begin, end, kid, kids, living, supervise


async def crash(sup: Ref, id: str = "a", how: str = "crash") -> bool:
    """End a child; -> whether its supervisor survived that."""
    await end((await living(sup))[id], how)
    return await survives(sup)


async def survives(sup: Ref) -> bool:
    """Whether a supervisor is there once it has dealt with what it has heard so far."""
    try:
        await which_children(sup)
    except Exception:
        await sup.wait()
    return sup.alive


@pytest.mark.spec("otp-41")
@pytest.mark.parametrize("intensity", [1, 2, 5])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_one_restart_more_than_the_intensity_ends_the_supervisor(
    clock: Clock, strategy: str, intensity: int
) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"), strategy=strategy, intensity=intensity, period_s=10)
    for _ in range(intensity):
        assert await crash(sup)
    starts = len(diary.refs("a"))
    assert starts == 1 + intensity
    assert not await crash(sup)
    assert sup.reason == Exit.SHUTDOWN
    assert len(diary.refs("a")) == starts
    assert not any(ref.alive for id in "ab" for ref in diary.refs(id))
    assert diary.refs("b")[-1].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-41")
async def test_intensity_two_dies_at_the_third_crash(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=2, period_s=5)
    assert [await crash(sup) for _ in range(3)] == [True, True, False]


@pytest.mark.spec("otp-41")
async def test_a_supervisor_that_gives_up_stops_its_children_in_reverse(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "abcd"), intensity=0)
    diary.clear()
    assert not await crash(sup, "b")
    assert diary.lines == [("ended", "b"), ("ended", "d"), ("ended", "c"), ("ended", "a")]


@pytest.mark.spec("otp-41")
async def test_a_supervisor_says_that_it_gives_up(clock: Clock) -> None:
    runtime = Runtime(clock, log=False)
    heard: list[Event] = []
    runtime.events.subscribe(heard.append, "gave_up")
    sup = await begin(runtime, Supervisor, kids(Diary(), "a"), intensity=1, period_s=7)
    assert await crash(sup)
    assert heard == []
    assert not await crash(sup)
    [event] = heard
    assert (event.facts["child"], event.facts["intensity"], event.facts["period_s"]) == ("a", 1, 7)


@pytest.mark.spec("otp-41")
@pytest.mark.parametrize("how", EXITS)
async def test_every_end_of_a_permanent_child_counts(clock: Clock, how: str) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=2)
    assert [await crash(sup, how=how) for _ in range(3)] == [True, True, False]
    assert sup.reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-41")
async def test_a_dynamic_supervisor_gives_up_like_any_other(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor, intensity=2)
    for name in "abc":
        await start_child(sup, name)
    for name in "aba":
        await end(diary.refs(name)[-1], "crash")
        alive = await survives(sup)
    assert not alive
    assert sup.reason == Exit.SHUTDOWN
    assert diary.refs("c")[-1].reason == Exit.SHUTDOWN
    assert diary.refs("b")[-1].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-42")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_intensity_zero_gives_up_at_the_first_crash(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"), strategy=strategy, intensity=0)
    assert not await crash(sup)
    assert sup.reason == Exit.SHUTDOWN
    assert diary.ids("started") == ["a", "b"]


@pytest.mark.spec("otp-42")
async def test_intensity_zero_minds_no_orderly_end_of_a_transient_child(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "ab", restart="transient"), intensity=0)
    before = await living(sup)
    await end(before["a"], "normal")
    assert await survives(sup)
    await end(before["b"], "crash")
    assert not await survives(sup)


@pytest.mark.spec("otp-43")
async def test_restarts_further_apart_than_the_period_never_end_a_supervisor(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=1, period_s=5)
    for _ in range(200):
        assert await crash(sup)
        await clock.sleep(5.25)


@pytest.mark.spec("otp-43")
async def test_the_window_slides_and_does_not_start_over(clock: Clock) -> None:
    """Crashes at 0, 4 and 8: two in every window of five, though three in the ten since the first."""
    sup = await supervise(clock, kids(Diary(), "a"), intensity=2, period_s=5)
    for _ in range(20):
        assert await crash(sup)
        await clock.sleep(4)
    assert await crash(sup)
    assert not await crash(sup)


def outlives(times: list[float], intensity: int, period_s: float) -> list[bool]:
    """Which of the crashes at these times a supervisor survives: each looks back over one period."""
    survived: list[bool] = []
    for place, now in enumerate(times):
        recent = sum(now - earlier <= period_s for earlier in times[: place + 1])
        survived.append(recent <= intensity)
        if not survived[-1]:
            break
    return survived


quarters = st.integers(0, 40).map(lambda n: n / 4)


@pytest.mark.spec("otp-41", "otp-43", "otp-44")
@settings(deadline=None, max_examples=300)
@given(
    intensity=st.integers(0, 4),
    period_s=st.integers(1, 24).map(lambda n: n / 4),
    gaps=st.lists(st.tuples(quarters, st.floats(-1e6, 1e6)), max_size=12),
)
@example(intensity=1, period_s=5.0, gaps=[(5.0, 0.0), (5.25, 0.0)])
@example(intensity=2, period_s=5.0, gaps=[(2.5, -1e6), (2.5, 1e6)])
def test_the_window_is_that_of_a_brute_force_count_whatever_the_wall_clock_does(
    intensity: int, period_s: float, gaps: list[tuple[float, float]]
) -> None:
    clock = VirtualClock()

    async def main() -> None:
        sup = await supervise(clock, kids(Diary(), "a"), intensity=intensity, period_s=period_s)
        times = [clock.monotonic()]
        survived = [await crash(sup)]
        for gap, step in gaps:
            if not survived[-1]:
                break
            clock.step(step)
            await clock.sleep(gap)
            times.append(clock.monotonic())
            survived.append(await crash(sup))
        assert survived == outlives(times, intensity, period_s)

    clock.run(main)


@pytest.mark.spec("otp-44")
@pytest.mark.parametrize("step", [86_400.0, -86_400.0])
async def test_a_step_of_the_wall_clock_does_not_make_restarts_older(clock: VirtualClock, step: float) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=1, period_s=5)
    assert await crash(sup)
    clock.step(step)
    assert not await crash(sup)


@pytest.mark.spec("otp-44")
async def test_a_wall_clock_set_back_does_not_make_restarts_younger(clock: VirtualClock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=1, period_s=5)
    for _ in range(5):
        assert await crash(sup)
        await clock.sleep(5.5)
        clock.step(-5.5)


@pytest.mark.spec("otp-44")
@pytest.mark.parametrize(("gap", "survived"), [(4.75, False), (5.0, False), (5.0009765625, True), (5.25, True)])
async def test_a_restart_whose_age_is_just_the_period_still_counts(clock: Clock, gap: float, survived: bool) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=1, period_s=5)
    assert await crash(sup)
    await clock.sleep(gap)
    assert await crash(sup) is survived


@pytest.mark.spec("otp-45")
@pytest.mark.parametrize("outcome", ["raise", "stop", "bad", "hang"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_failed_restarts_count(clock: Clock, strategy: str, outcome: str) -> None:
    diary = Diary()
    diary.will("a", "ok", outcome)
    specs = [kid(diary, "a", start_timeout_s=1), kid(diary, "b")]
    sup = await supervise(clock, specs, strategy=strategy, intensity=4, period_s=3600)
    await end((await living(sup))["a"], "crash")
    assert await sup.wait() == Exit.SHUTDOWN
    assert diary.ids("refused") == ["a"] * 4
    assert diary.refs("b")[-1].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-45")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_failed_restarts_of_a_sibling_count(clock: Clock, strategy: str) -> None:
    diary = Diary()
    diary.will("b", "ok", "raise")
    sup = await supervise(clock, kids(diary, "ab"), strategy=strategy, intensity=4, period_s=3600)
    await end((await living(sup))["a"], "crash")
    assert await sup.wait() == Exit.SHUTDOWN
    assert diary.ids("refused") == ["b"] * 4
    assert not any(ref.alive for ref in diary.refs("a"))


@pytest.mark.spec("otp-45")
async def test_failed_restarts_of_a_dynamic_child_count(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "ok", "raise")
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor, intensity=4, period_s=3600)
    first = await start_child(sup, "a")
    other = await start_child(sup, "b")
    assert first is not None
    assert other is not None
    await end(first, "crash")
    assert await sup.wait() == Exit.SHUTDOWN
    assert diary.ids("refused") == ["a"] * 4
    assert other.reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-45")
async def test_a_failed_start_by_hand_does_not_count(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "raise")
    sup = await supervise(clock, kids(diary, "a"), intensity=1)
    for _ in range(5):
        with pytest.raises(Exception, match="b does not start"):
            await start_child(sup, kid(diary, "b"))
    assert await crash(sup)


@pytest.mark.spec("otp-46")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_restarts_of_different_children_are_counted_together(clock: Clock, strategy: str) -> None:
    sup = await supervise(clock, kids(Diary(), "abcd"), strategy=strategy, intensity=3)
    assert [await crash(sup, id) for id in "abcd"] == [True, True, True, False]


@pytest.mark.spec("otp-46")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_siblings_restarted_along_are_not_counted(clock: Clock, strategy: str) -> None:
    sup = await supervise(clock, kids(Diary(), "abcdefgh"), strategy=strategy, intensity=1)
    assert await crash(sup)
    assert not await crash(sup)


@pytest.mark.spec("otp-46")
@pytest.mark.parametrize(("strategy", "restarts"), [("one_for_one", 3), ("one_for_all", 1), ("rest_for_one", 1)])
async def test_children_that_crash_at_once_are_one_failure_where_they_restart_together(
    clock: Clock, strategy: str, restarts: int
) -> None:
    diary = Diary()
    for intensity in (restarts - 1, restarts):
        sup = await supervise(clock, kids(diary, "abc"), strategy=strategy, intensity=intensity)
        children = list((await living(sup)).values())
        for ref in children:
            ref.kill()
        assert await survives(sup) is (intensity == restarts)
    after = await living(sup)
    assert not set(after.values()) & set(children)


@pytest.mark.spec("otp-46")
async def test_two_supervisors_count_apart(clock: Clock) -> None:
    one = await supervise(clock, kids(Diary(), "a"), intensity=1)
    two = await supervise(clock, kids(Diary(), "a"), intensity=1)
    assert [await crash(one), await crash(two)] == [True, True]
    assert not await crash(one)
    assert await survives(two)


# Escalation


def subtree(id: str, children: list[ChildSpec], **flags: Any) -> ChildSpec:
    return ChildSpec(id=id, start=Supervisor, args=(children,), kwargs=flags)


@pytest.mark.spec("otp-47")
async def test_the_end_of_an_inner_supervisor_is_one_failure_to_its_parent(clock: Clock) -> None:
    diary = Diary()
    top = await supervise(
        clock, [subtree("inner", kids(diary, "ab"), intensity=1), kid(diary, "c")], intensity=1, period_s=60
    )
    before = await living(top)
    assert await crash(before["inner"])
    assert (await living(top)) == before, "below its intensity a supervisor bothers nobody"
    assert not await crash(before["inner"])
    after = await living(top)
    assert after["inner"] is not before["inner"]
    assert after["c"] is before["c"]
    assert before["inner"].reason == Exit.SHUTDOWN
    assert await crash(after["inner"]), "the new one counts from nothing"
    assert not await crash(after["inner"])
    assert await top.wait() == Exit.SHUTDOWN


@pytest.mark.spec("otp-47")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_parents_strategy_applies_to_an_inner_supervisor(clock: Clock, strategy: str) -> None:
    diary = Diary()
    specs = [kid(diary, "a"), subtree("inner", kids(diary, "x"), intensity=0), kid(diary, "b")]
    top = await supervise(clock, specs, strategy=strategy)
    before = await living(top)
    await crash(before["inner"], "x")
    after = await living(top)
    replaced = {id for id in before if after[id] is not before[id]}
    assert (
        replaced
        == {
            "one_for_one": {"inner"},
            "one_for_all": {"a", "inner", "b"},
            "rest_for_one": {"inner", "b"},
        }[strategy]
    )


@pytest.mark.spec("otp-47")
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_an_inner_supervisor_that_gave_up_ends_with_shutdown_which_restarts_nobody_but_permanents(
    clock: Clock, restart: str
) -> None:
    """In OTP too a transient supervisor that gave up is not brought back: its reason is shutdown."""
    inner = ChildSpec(
        id="inner", start=Supervisor, args=(kids(Diary(), "x"),), kwargs={"intensity": 0}, restart=restart
    )
    top = await supervise(clock, [inner])
    ref = (await living(top))["inner"]
    await crash(ref, "x")
    assert [info.ref for info in await which_children(top)] == ([] if restart == "temporary" else [None])


@pytest.mark.spec("otp-47")
async def test_a_crash_climbs_as_far_as_nobody_may_restart(clock: Clock) -> None:
    diary = Diary()
    low = subtree("low", kids(diary, "x"), intensity=0)
    middle = subtree("middle", [low], intensity=0)
    top = await supervise(clock, [middle, kid(diary, "a")], intensity=1)
    before = await living(top)
    await end(diary.refs("x")[0], "crash")
    await diary.written("started", "x", 2)
    after = await living(top)
    assert before["middle"].reason == Exit.SHUTDOWN
    assert after["middle"] is not before["middle"]
    assert after["a"] is before["a"]


@pytest.mark.spec("otp-48")
async def test_after_escalation_static_children_return_and_dynamic_ones_do_not(clock: Clock) -> None:
    diary = Diary()
    pool = ChildSpec(id="pool", start=DynamicSupervisor, args=(kid(diary, "t", args=(diary,)),))
    inner = subtree("inner", [*kids(diary, "ab"), pool], intensity=0)
    top = await supervise(clock, [inner])
    old = (await living(top))["inner"]
    old_pool = (await living(old))["pool"]
    for name in "xyz":
        await start_child(old_pool, name)
    await start_child(old, kid(diary, "added"))
    diary.clear()
    assert not await crash(old)
    new = (await living(top))["inner"]
    assert new is not old
    assert list(await living(new)) == ["a", "b", "pool"]
    new_pool = (await living(new))["pool"]
    assert await which_children(new_pool) == []
    assert diary.ids("started") == ["a", "b"]
    assert set(diary.ids("ended")) >= {"x", "y", "z", "added", "b"}
    assert await start_child(new_pool, "w") is not None


@pytest.mark.spec("otp-48")
async def test_a_static_child_stopped_by_hand_returns_after_escalation(clock: Clock) -> None:
    diary = Diary()
    top = await supervise(clock, [subtree("inner", kids(diary, "ab"), intensity=0)])
    old = (await living(top))["inner"]
    await terminate_child(old, "b")
    await end(diary.refs("a")[0], "crash")
    await diary.written("started", "b", 2)
    new = (await living(top))["inner"]
    assert list(await living(new)) == ["a", "b"]


@pytest.mark.spec("otp-48")
async def test_the_children_of_a_dynamic_supervisor_that_gave_up_do_not_return(clock: Clock) -> None:
    diary = Diary()
    pool = ChildSpec(
        id="pool", start=DynamicSupervisor, args=(kid(diary, "t", args=(diary,)),), kwargs={"intensity": 0}
    )
    top = await supervise(clock, [pool])
    old = (await living(top))["pool"]
    for name in "xyz":
        await start_child(old, name)
    await end(diary.refs("y")[0], "kill")
    assert await old.wait() == Exit.SHUTDOWN
    new = (await living(top))["pool"]
    assert new is not old
    assert await which_children(new) == []
    assert not any(ref.alive for name in "xyz" for ref in diary.refs(name))
