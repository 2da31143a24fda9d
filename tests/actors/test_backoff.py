"""Waiting before a restart: beyond OTP, and off unless it is asked for."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.child import Counts
from raptor.childspec import Backoff, ChildSpec
from raptor.clock import Clock, VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import BadSpec, ChildError
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.supervisor import (
    Supervisor,
    count_children,
    delete_child,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.actors.kids import STRATEGIES, Diary, end, kid, kids, living, refs, supervise

STEADY = Backoff(initial_s=1, factor=2, max_s=8, jitter=0)


async def backing_off(
    clock: Clock, diary: Diary, ids: str = "a", strategy: str = "one_for_one", backoff: Backoff | None = STEADY
) -> Ref:
    return await supervise(clock, kids(diary, ids), strategy=strategy, intensity=1000, backoff=backoff)


async def waits(diary: Diary, times: int, how: str = "crash", id: str = "a") -> list[float]:
    """Crash a child again and again, each time as soon as it is back; -> how long it was gone."""
    gaps = []
    for _ in range(times):
        ref = diary.refs(id)[-1]
        lives, left_at = len(diary.refs(id)), ref.runtime.clock.monotonic()
        await end(ref, how)
        await diary.written("started", id, lives + 1)
        gaps.append(ref.runtime.clock.monotonic() - left_at)
    return gaps


# How long


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_wait_doubles_with_each_restart_up_to_its_limit(clock: Clock, strategy: str) -> None:
    diary = Diary()
    await backing_off(clock, diary, strategy=strategy)
    assert await waits(diary, 6) == [1, 2, 4, 8, 8, 8]


@pytest.mark.parametrize("how", ["normal", "shutdown", "kill"])
async def test_every_end_that_leads_to_a_restart_is_waited_out(clock: Clock, how: str) -> None:
    diary = Diary()
    await backing_off(clock, diary)
    assert await waits(diary, 3, how) == [1, 2, 4]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_without_backoff_a_restart_is_immediate(clock: Clock, strategy: str) -> None:
    diary = Diary()
    await backing_off(clock, diary, "ab", strategy, backoff=None)
    assert await waits(diary, 5) == [0, 0, 0, 0, 0]


async def test_a_long_life_resets_the_wait(clock: Clock) -> None:
    diary = Diary()
    await backing_off(clock, diary)
    assert await waits(diary, 3) == [1, 2, 4]
    await clock.sleep(8)
    assert await waits(diary, 2) == [1, 2]


async def test_a_life_just_too_short_does_not_reset_the_wait(clock: Clock) -> None:
    diary = Diary()
    await backing_off(clock, diary)
    assert await waits(diary, 2) == [1, 2]
    await clock.sleep(7.75)
    assert await waits(diary, 2) == [4, 8]


async def test_each_child_has_a_wait_of_its_own(clock: Clock) -> None:
    diary = Diary()
    await backing_off(clock, diary, "ab")
    assert await waits(diary, 3) == [1, 2, 4]
    assert await waits(diary, 2, id="b") == [1, 2]


async def test_failed_starts_are_waited_out_as_well(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "ok", "raise", "stop", "bad", "ok")
    await backing_off(clock, diary)
    assert await waits(diary, 1) == [1 + 2 + 4 + 8]
    assert diary.times("refused", "a") == [1, 3, 7]


async def test_jitter_shortens_the_wait_by_chance_within_its_part(clock: Clock) -> None:
    diary = Diary()
    await backing_off(clock, diary, backoff=Backoff(initial_s=4, factor=1, max_s=4, jitter=0.5))
    gaps = await waits(diary, 50)
    assert all(2 <= gap <= 4 for gap in gaps)
    assert len({round(gap, 6) for gap in gaps}) > 40
    assert min(gaps) < 2.5
    assert max(gaps) > 3.5


def test_jitter_is_the_same_for_the_same_seed() -> None:
    def gaps(seed: int) -> list[float]:
        clock = VirtualClock(seed=seed)

        async def main() -> list[float]:
            diary = Diary()
            await backing_off(clock, diary, backoff=Backoff(jitter=1))
            return await waits(diary, 5)

        return clock.run(main)

    assert gaps(1) == gaps(1) != gaps(2)


async def test_children_that_fail_together_do_not_come_back_together(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "abcdefgh", backoff=Backoff(initial_s=10, max_s=10, jitter=0.1))
    for ref in (await living(sup)).values():
        await end(ref, "crash")
    await clock.sleep(10)
    assert len({diary.times("started", id)[-1] for id in "abcdefgh"}) == 8


positive = st.floats(0, 1e6)


@settings(deadline=None, max_examples=300)
@given(
    initial_s=positive,
    factor=st.floats(1, 1e6),
    max_s=positive,
    jitter=st.floats(0, 1),
    streak=st.integers(1, 10**9),
    seed=st.integers(),
)
def test_a_wait_is_always_finite_within_its_limit_and_its_jitter(
    initial_s: float, factor: float, max_s: float, jitter: float, streak: int, seed: int
) -> None:
    backoff = Backoff(initial_s=initial_s, factor=factor, max_s=max_s, jitter=jitter)
    delay_s = backoff.delay_s(streak, random.Random(seed))
    full = Backoff(initial_s=initial_s, factor=factor, max_s=max_s, jitter=0).delay_s(streak, random.Random(seed))
    assert 0 <= full <= max_s
    assert full * (1 - jitter) <= delay_s * (1 + 1e-9)
    assert delay_s <= full


@given(initial_s=st.floats(1e-3, 10), factor=st.floats(1, 10), max_s=st.floats(1e-3, 1e4))
def test_without_jitter_waits_never_shrink_and_reach_their_limit(initial_s: float, factor: float, max_s: float) -> None:
    backoff = Backoff(initial_s=initial_s, factor=factor, max_s=max_s, jitter=0)
    delays = [backoff.delay_s(streak, random.Random(0)) for streak in range(1, 200)]
    assert delays[0] == min(initial_s, max_s)
    assert all(one <= two for one, two in pairwise(delays))
    assert factor < 2 or delays[-1] == max_s


# What happens meanwhile


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_while_it_waits_a_child_is_restarting(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, strategy=strategy)
    await end(diary.refs("a")[0], "crash")
    [info] = await which_children(sup)
    assert (info.ref, info.restarting) == (None, True)
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=1)
    for request, answer in ((restart_child, "restarting"), (delete_child, "restarting")):
        with pytest.raises(ChildError) as caught:
            await request(sup, "a")
        assert caught.value.answer == answer
    with pytest.raises(ChildError) as caught:
        await start_child(sup, kid(diary, "a"))
    assert caught.value.answer == "already_present"
    assert clock.monotonic() == 0, "nobody had to wait for an answer"


@pytest.mark.parametrize(
    ("strategy", "down"), [("one_for_one", "c"), ("one_for_all", "abcde"), ("rest_for_one", "cde")]
)
async def test_siblings_that_restart_along_are_stopped_at_once_and_down_meanwhile(
    clock: Clock, strategy: str, down: str
) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "abcde", strategy)
    before = await living(sup)
    diary.clear()
    await end(before["c"], "crash")
    meanwhile = await refs(sup)
    assert "".join(id for id, ref in meanwhile.items() if ref is None) == down
    assert all(ref in (None, before[id]) for id, ref in meanwhile.items())
    assert diary.ids("ended") == ["c", *(id for id in reversed(down) if id != "c")]
    assert clock.monotonic() == 0
    assert [info.id for info in await which_children(sup) if info.restarting] == ["c"]
    await diary.written("started", down[-1])
    assert diary.ids("started") == list(down)
    assert {note.at for note in diary.notes if note.what == "started"} == {1.0}
    assert list(await living(sup)) == list("abcde")


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_temporary_sibling_does_not_come_back_after_the_wait(clock: Clock, strategy: str) -> None:
    diary = Diary()
    specs = [kid(diary, "a"), kid(diary, "b", restart="temporary"), kid(diary, "c")]
    sup = await supervise(clock, specs, strategy=strategy, backoff=STEADY)
    await end(diary.refs("a")[0], "crash")
    assert list(await refs(sup)) == ["a", "c"]
    await diary.written("started", "c", 2)
    assert list(await living(sup)) == ["a", "c"]


async def test_a_sibling_started_by_hand_during_the_wait_is_replaced_after_it(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "ab", "one_for_all")
    await end(diary.refs("a")[0], "crash")
    by_hand = await restart_child(sup, "b")
    assert by_hand is not None
    await diary.written("started", "b", 3)
    assert by_hand.reason == Exit.SHUTDOWN
    after = await living(sup)
    assert [ref for ref in diary.refs("b") if ref.alive] == [after["b"]]


async def test_an_earlier_child_that_crashes_during_the_wait_takes_it_over(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "abc", "rest_for_one")
    await end(diary.refs("b")[0], "crash")
    await clock.sleep(0.5)
    await end(diary.refs("a")[0], "crash")
    await diary.written("started", "c", 2)
    assert clock.monotonic() == 1.5
    await clock.sleep(60)
    assert [len(diary.refs(id)) for id in "abc"] == [2, 2, 2]
    assert list(await living(sup)) == ["a", "b", "c"]


async def test_one_for_one_siblings_are_served_during_a_wait(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "ab")
    await end(diary.refs("a")[0], "crash")
    await clock.sleep(0.5)
    await end(diary.refs("b")[0], "crash")
    await diary.written("started", "b", 2)
    assert diary.times("started", "a") == [0, 1]
    assert diary.times("started", "b") == [0, 1.5]
    assert list(await living(sup)) == ["a", "b"]


# What ends the wait


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_terminate_child_ends_the_wait(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, strategy=strategy)
    await end(diary.refs("a")[0], "crash")
    await terminate_child(sup, "a")
    await clock.sleep(3600)
    [info] = await which_children(sup)
    assert (info.ref, info.restarting) == (None, False)
    assert diary.ids("started") == ["a"]


async def test_a_child_started_by_hand_after_that_is_not_started_twice(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary)
    await end(diary.refs("a")[0], "crash")
    await terminate_child(sup, "a")
    by_hand = await restart_child(sup, "a")
    await clock.sleep(3600)
    assert await living(sup) == {"a": by_hand}
    assert len(diary.refs("a")) == 2


async def test_the_end_of_a_wait_that_was_called_off_does_not_shorten_the_next(clock: Clock) -> None:
    """The first wait would have ended at 1; the second begins at 0.5 and lasts 2."""
    diary = Diary()
    sup = await backing_off(clock, diary)
    await end(diary.refs("a")[0], "crash")
    await terminate_child(sup, "a")
    await restart_child(sup, "a")
    await clock.sleep(0.5)
    await end(diary.refs("a")[-1], "crash")
    await diary.written("started", "a", 3)
    assert clock.monotonic() == 2.5


async def test_a_deleted_child_does_not_come_back_after_its_wait(clock: Clock) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "ab")
    await end(diary.refs("a")[0], "crash")
    await terminate_child(sup, "a")
    await delete_child(sup, "a")
    await start_child(sup, kid(diary, "a", "anew"))
    await clock.sleep(3600)
    assert len(diary.refs("a")) == 2
    assert await (await living(sup))["a"].call("who") == ("a", "anew")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_supervisor_is_stopped_at_once_during_a_wait(clock: Clock, strategy: str) -> None:
    diary = Diary()
    sup = await backing_off(clock, diary, "abc", strategy)
    await end(diary.refs("b")[0], "crash")
    sup.exit(Exit.SHUTDOWN)
    assert await sup.wait() == Exit.SHUTDOWN
    assert clock.monotonic() == 0
    await clock.sleep(3600)
    assert len(diary.ids("started")) == 3
    assert not any(ref.alive for id in "abc" for ref in diary.refs(id))


async def test_the_intensity_counts_restarts_that_are_waited_for(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"), intensity=2, period_s=60, backoff=STEADY)
    await waits(diary, 2)
    await end(diary.refs("a")[-1], "crash")
    assert await sup.wait() == Exit.SHUTDOWN


async def test_backoff_spreads_restarts_so_that_the_period_forgets_them(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"), intensity=3, period_s=5, backoff=STEADY)
    assert await waits(diary, 20) == [1, 2, 4, *([8] * 17)]
    assert sup.alive


# Dynamic and inner supervisors


async def pool(clock: Clock, diary: Diary) -> Ref:
    template = kid(diary, "t", args=(diary,))
    return await supervise(clock, template, DynamicSupervisor, intensity=1000, backoff=STEADY)


async def test_dynamic_children_are_waited_for_one_by_one(clock: Clock) -> None:
    diary = Diary()
    sup = await pool(clock, diary)
    await start_child(sup, "a")
    other = await start_child(sup, "b")
    assert await waits(diary, 4) == [1, 2, 4, 8]
    assert other is not None
    assert other.alive


@pytest.mark.parametrize("failures", [0, 1, 3])
async def test_a_dynamic_child_that_waits_is_terminated_by_the_ref_that_it_had(clock: Clock, failures: int) -> None:
    diary = Diary()
    diary.will("a", "ok", *["raise"] * failures, "ok")
    sup = await pool(clock, diary)
    old = await start_child(sup, "a")
    assert old is not None
    await end(old, "crash")
    if failures:
        await diary.written("refused", "a", failures)
    assert (await count_children(sup)).active == 0
    await terminate_child(sup, old)
    assert await which_children(sup) == []
    await clock.sleep(3600)
    assert diary.refs("a") == [old]


async def test_an_inner_supervisor_that_gave_up_is_waited_for(clock: Clock) -> None:
    diary = Diary()
    inner = ChildSpec(id="inner", start=Supervisor, args=(kids(diary, "x"),), kwargs={"intensity": 0})
    top = await supervise(clock, [inner], intensity=10, backoff=STEADY)
    assert await waits(diary, 3, id="x") == [1, 2, 4]
    assert list(await living(top)) == ["inner"]


# Bad input


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, value) for field in ("initial_s", "max_s") for value in (-1, None, "1", True, math.inf, math.nan)],
        *[("factor", value) for value in (0.5, -1, None, "2", math.inf, math.nan)],
        *[("jitter", value) for value in (-0.1, 1.1, None, "0.1", math.nan)],
    ],
)
def test_a_wrong_backoff_is_refused_by_the_name_of_its_field(field: str, value: Any) -> None:
    with pytest.raises(BadSpec) as caught:
        Backoff(**{field: value})
    assert caught.value.field == f"backoff.{field}"
    assert repr(value) in str(caught.value)
