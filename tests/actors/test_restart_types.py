"""Who is started again after which end (otp-21 to otp-31)."""

from __future__ import annotations

import pytest

from raptor.child import Counts
from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import ChildError
from raptor.ref import Ref
from raptor.supervisor import (
    count_children,
    delete_child,
    get_childspec,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.actors.kids import EXITS, STRATEGIES, Boom, Diary, end, kid, kids, living, refs, supervise

CLEAN = ("normal", "shutdown", "shutdown_term")
ABNORMAL = ("crash", "kill")

by_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


async def lone_child(clock: Clock, diary: Diary, restart: str, strategy: str) -> tuple[Ref, Ref]:
    """A supervisor and its one child."""
    sup = await supervise(clock, kids(diary, "a", restart=restart), strategy=strategy)
    return sup, (await living(sup))["a"]


async def dynamic_child(clock: Clock, diary: Diary, restart: str) -> tuple[Ref, Ref]:
    sup = await supervise(clock, kid(diary, "t", args=(diary,), restart=restart), DynamicSupervisor)
    ref = await start_child(sup, "a")
    assert ref is not None
    return sup, ref


async def assert_unknown(sup: Ref, id: str) -> None:
    """Nothing is left of a child, not even its spec."""
    for ask in (get_childspec, restart_child, delete_child, terminate_child):
        with pytest.raises(ChildError) as caught:
            await ask(sup, id)
        assert (caught.value.answer, caught.value.child) == ("not_found", id)


# Permanent


@pytest.mark.spec("otp-21", "otp-22", "otp-23", "otp-24", "otp-25")
@pytest.mark.parametrize("how", EXITS)
@by_strategy
async def test_a_permanent_child_is_restarted_after_every_end(clock: Clock, strategy: str, how: str) -> None:
    sup, first = await lone_child(clock, Diary(), "permanent", strategy)
    await end(first, how)
    second = (await living(sup))["a"]
    assert second is not first
    assert await second.call("who") == ("a",)
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)


@pytest.mark.spec("otp-21", "otp-22", "otp-23", "otp-24", "otp-25")
@pytest.mark.parametrize("how", EXITS)
async def test_a_permanent_dynamic_child_is_restarted_after_every_end(clock: Clock, how: str) -> None:
    sup, first = await dynamic_child(clock, Diary(), "permanent")
    await end(first, how)
    [info] = await which_children(sup)
    assert info.ref is not None
    assert info.ref is not first
    assert await info.ref.call("who") == ("a",)


@pytest.mark.spec("otp-24")
@by_strategy
async def test_a_permanent_child_is_restarted_after_an_exception(clock: Clock, strategy: str) -> None:
    sup, first = await lone_child(clock, Diary(), "permanent", strategy)
    first.cast(Boom("in a message"))
    assert isinstance(await first.wait(), Boom)
    assert (await living(sup))["a"] is not first


# Transient


@pytest.mark.spec("otp-26", "otp-27", "otp-28")
@pytest.mark.parametrize("how", CLEAN)
@by_strategy
async def test_a_transient_child_that_ended_in_order_stays_down_and_keeps_its_spec(
    clock: Clock, strategy: str, how: str
) -> None:
    diary = Diary()
    sup, first = await lone_child(clock, diary, "transient", strategy)
    await end(first, how)
    assert await refs(sup) == {"a": None}
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=1)
    assert (await get_childspec(sup, "a")).args == (diary, "a")
    assert diary.refs("a") == [first]
    second = await restart_child(sup, "a")
    assert second is not None
    assert await living(sup) == {"a": second}


@pytest.mark.spec("otp-26", "otp-27", "otp-28")
@pytest.mark.parametrize("how", CLEAN)
@by_strategy
async def test_the_orderly_end_of_a_transient_child_touches_nobody_else(clock: Clock, strategy: str, how: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "abc", restart="transient"), strategy=strategy)
    before = await living(sup)
    await end(before["b"], how)
    assert await refs(sup) == {**before, "b": None}


@pytest.mark.spec("otp-26", "otp-27", "otp-28")
@pytest.mark.parametrize("how", CLEAN)
async def test_a_transient_dynamic_child_that_ended_in_order_is_gone(clock: Clock, how: str) -> None:
    """Having no id, it could not be asked for again: OTP drops it too."""
    sup, first = await dynamic_child(clock, Diary(), "transient")
    await end(first, how)
    assert await which_children(sup) == []
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=0)


@pytest.mark.spec("otp-29")
@pytest.mark.parametrize("how", ABNORMAL)
@by_strategy
async def test_a_transient_child_is_restarted_after_an_abnormal_end(clock: Clock, strategy: str, how: str) -> None:
    sup, first = await lone_child(clock, Diary(), "transient", strategy)
    await end(first, how)
    assert (await living(sup))["a"] is not first


@pytest.mark.spec("otp-29")
async def test_a_transient_child_is_restarted_after_an_exception(clock: Clock) -> None:
    sup, first = await lone_child(clock, Diary(), "transient", "one_for_one")
    first.cast(Boom("in a message"))
    assert isinstance(await first.wait(), Boom)
    assert (await living(sup))["a"] is not first


@pytest.mark.spec("otp-29")
@pytest.mark.parametrize("how", ABNORMAL)
async def test_a_transient_dynamic_child_is_restarted_after_an_abnormal_end(clock: Clock, how: str) -> None:
    sup, first = await dynamic_child(clock, Diary(), "transient")
    await end(first, how)
    [info] = await which_children(sup)
    assert info.ref is not None
    assert info.ref is not first


# Temporary


@pytest.mark.spec("otp-30")
@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("added", ["at_boot", "later"])
@by_strategy
async def test_a_temporary_child_is_never_restarted_and_its_spec_is_removed(
    clock: Clock, strategy: str, added: str, how: str
) -> None:
    diary = Diary()
    mortal = kid(diary, "b", restart="temporary")
    others = kids(diary, "ac")
    sup = await supervise(clock, [others[0], mortal, others[1]] if added == "at_boot" else others, strategy=strategy)
    if added == "later":
        await start_child(sup, mortal)
    before = await living(sup)
    first = before.pop("b")
    await end(first, how)
    assert await living(sup) == before
    assert await count_children(sup) == Counts(specs=2, active=2, supervisors=0, workers=2)
    assert diary.refs("b") == [first]
    await assert_unknown(sup, "b")
    assert await start_child(sup, mortal) is not None


@pytest.mark.spec("otp-30")
@pytest.mark.parametrize("how", EXITS)
async def test_a_temporary_dynamic_child_is_never_restarted(clock: Clock, how: str) -> None:
    diary = Diary()
    sup, first = await dynamic_child(clock, diary, "temporary")
    other = await start_child(sup, "b")
    await end(first, how)
    assert [info.ref for info in await which_children(sup)] == [other]
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)
    assert diary.refs("a") == [first]


@pytest.mark.spec("otp-30")
@by_strategy
async def test_the_spec_of_a_temporary_child_goes_when_it_is_terminated(clock: Clock, strategy: str) -> None:
    sup, _ = await lone_child(clock, Diary(), "temporary", strategy)
    await terminate_child(sup, "a")
    assert await which_children(sup) == []
    await assert_unknown(sup, "a")


@pytest.mark.spec("otp-30")
async def test_the_ends_of_temporary_children_are_no_restarts(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "abc", restart="temporary"), intensity=0)
    for ref in (await living(sup)).values():
        await end(ref, "crash")
    assert await which_children(sup) == []
    assert sup.alive


@pytest.mark.spec("otp-31")
@pytest.mark.parametrize("how", EXITS)
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_a_temporary_bystander_of_a_restart_is_not_restarted(clock: Clock, strategy: str, how: str) -> None:
    diary = Diary()
    specs = [kid(diary, "a"), kid(diary, "b", restart="temporary"), kid(diary, "c")]
    sup = await supervise(clock, specs, strategy=strategy)
    before = await living(sup)
    await end(before["a"], how)
    after = await living(sup)
    assert list(after) == ["a", "c"]
    assert not set(after.values()) & set(before.values())
    assert await before["b"].wait() == EXITS["shutdown"]
    assert diary.refs("b") == [before["b"]]
    await assert_unknown(sup, "b")


@pytest.mark.spec("otp-31")
@pytest.mark.parametrize(
    ("strategy", "spared"), [("one_for_one", True), ("one_for_all", False), ("rest_for_one", True)]
)
async def test_a_temporary_child_before_the_one_that_fails_goes_only_with_everyone(
    clock: Clock, strategy: str, spared: bool
) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", restart="temporary"), kid(diary, "b")], strategy=strategy)
    before = await living(sup)
    await end(before["b"], "crash")
    after = await living(sup)
    assert ("a" in after) is spared
    assert before["a"].alive is spared
    assert after["b"] is not before["b"]
