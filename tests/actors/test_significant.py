"""Significant children, whose end may be their supervisor's (otp-71 to otp-75)."""

from __future__ import annotations

from typing import Any

import pytest

from raptor.childspec import Backoff
from raptor.clock import Clock
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.supervisor import Supervisor, delete_child, restart_child, start_child, terminate_child, which_children
from tests.actors.kids import EXITS, STRATEGIES, Diary, end, kid, living, refs, supervise

ANY, ALL = "any_significant", "all_significant"
CLEAN = ("normal", "shutdown", "shutdown_term")
LONG_S = 3_600.0


async def goes_on(sup: Ref) -> bool:
    """Whether the supervisor lives through whatever it has still to do."""
    await sup.runtime.clock.sleep(LONG_S)
    return sup.alive


async def shuts_down(sup: Ref) -> bool:
    return await sup.wait(LONG_S) == Exit.SHUTDOWN


# 71: the others


@pytest.mark.spec("otp-71")
@pytest.mark.parametrize("auto_shutdown", ["never", ANY, ALL])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("how", EXITS)
async def test_the_end_of_a_child_that_is_not_significant_ends_nothing(
    clock: Clock, auto_shutdown: str, restart: str, how: str
) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", restart=restart), kid(diary, "b")], auto_shutdown=auto_shutdown)
    before = await living(sup)
    await end(before["a"], how)
    assert await goes_on(sup)
    assert before["b"].alive


@pytest.mark.spec("otp-71")
@pytest.mark.parametrize("auto_shutdown", [ANY, ALL])
async def test_the_last_child_that_is_not_significant_ends_nothing_either(clock: Clock, auto_shutdown: str) -> None:
    diary = Diary()
    specs = [kid(diary, "s", restart="temporary", significant=True), kid(diary, "b", restart="temporary")]
    sup = await supervise(clock, specs, auto_shutdown=auto_shutdown)
    found = await living(sup)
    await end(found["b"], "normal")
    assert await goes_on(sup)
    assert found["s"].alive


# 72: any_significant


@pytest.mark.spec("otp-72")
@pytest.mark.parametrize("how", EXITS)
async def test_any_end_of_a_significant_temporary_child_ends_the_supervisor(clock: Clock, how: str) -> None:
    diary = Diary()
    specs = [
        kid(diary, "a"),
        kid(diary, "s", restart="temporary", significant=True),
        kid(diary, "other", restart="temporary", significant=True),
        kid(diary, "b"),
    ]
    sup = await supervise(clock, specs, auto_shutdown=ANY)
    found = await living(sup)
    await end(found.pop("s"), how)
    assert await shuts_down(sup)
    assert {ref.reason for ref in found.values()} == {Exit.SHUTDOWN}
    asked = diary.ids("ended")
    assert asked[-3:] == ["b", "other", "a"], "in reverse order, as ever"


@pytest.mark.spec("otp-72")
@pytest.mark.parametrize("how", CLEAN)
async def test_a_clean_end_of_a_significant_transient_child_ends_the_supervisor(clock: Clock, how: str) -> None:
    diary = Diary()
    sup = await supervise(
        clock, [kid(diary, "s", restart="transient", significant=True), kid(diary, "b")], auto_shutdown=ANY
    )
    found = await living(sup)
    await end(found["s"], how)
    assert await shuts_down(sup)
    assert found["b"].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-72")
@pytest.mark.parametrize("how", ["crash", "kill"])
@pytest.mark.parametrize("auto_shutdown", [ANY, ALL])
async def test_a_significant_transient_child_that_fails_is_restarted_and_still_significant(
    clock: Clock, how: str, auto_shutdown: str
) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "s", restart="transient", significant=True)], auto_shutdown=auto_shutdown)
    before = (await living(sup))["s"]
    await end(before, how)
    assert await goes_on(sup)
    after = (await living(sup))["s"]
    assert after is not before
    await end(after, "normal")
    assert await shuts_down(sup)


@pytest.mark.spec("otp-72")
async def test_a_significant_child_added_at_run_time_counts_too(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a")], auto_shutdown=ANY)
    added = await start_child(sup, kid(diary, "s", restart="transient", significant=True))
    assert added is not None
    await end(added, "normal")
    assert await shuts_down(sup)


# 73: all_significant


@pytest.mark.spec("otp-73")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("order", ["xyz", "zyx", "yxz"])
async def test_the_last_active_significant_child_to_end_ends_the_supervisor(
    clock: Clock, strategy: str, order: str
) -> None:
    diary = Diary()
    types = {"x": "transient", "y": "temporary", "z": "transient"}
    specs = [kid(diary, id, restart=restart, significant=True) for id, restart in types.items()]
    sup = await supervise(clock, [*specs, kid(diary, "b")], auto_shutdown=ALL, strategy=strategy)
    found = await living(sup)
    for id in order[:2]:
        await end(found[id], "normal")
        assert await goes_on(sup)
    await end(found[order[2]], "shutdown")
    assert await shuts_down(sup)
    assert found["b"].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-73")
@pytest.mark.parametrize("how", EXITS)
async def test_the_last_significant_temporary_child_may_end_in_any_way(clock: Clock, how: str) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "s", restart="temporary", significant=True)], auto_shutdown=ALL)
    await end((await living(sup))["s"], how)
    assert await shuts_down(sup)


@pytest.mark.spec("otp-73")
async def test_a_significant_child_that_was_terminated_is_not_waited_for(clock: Clock) -> None:
    """It does not trigger, but it is not active either."""
    diary = Diary()
    specs = [kid(diary, id, restart="transient", significant=True) for id in "xy"]
    sup = await supervise(clock, specs, auto_shutdown=ALL)
    found = await living(sup)
    await terminate_child(sup, "x")
    assert await goes_on(sup)
    await end(found["y"], "normal")
    assert await shuts_down(sup)


@pytest.mark.spec("otp-73")
async def test_a_significant_child_that_came_back_is_waited_for(clock: Clock) -> None:
    diary = Diary()
    specs = [kid(diary, id, restart="transient", significant=True) for id in "xy"]
    sup = await supervise(clock, specs, auto_shutdown=ALL)
    found = await living(sup)
    await end(found["x"], "normal")
    again = await restart_child(sup, "x")
    assert again is not None
    await end(found["y"], "normal")
    assert await goes_on(sup)
    await end(again, "normal")
    assert await shuts_down(sup)


@pytest.mark.spec("otp-73")
async def test_a_significant_child_that_is_being_restarted_is_waited_for(clock: Clock) -> None:
    diary = Diary()
    specs = [kid(diary, id, restart="transient", significant=True) for id in "xy"]
    sup = await supervise(clock, specs, auto_shutdown=ALL, backoff=Backoff(initial_s=60))
    found = await living(sup)
    await end(found["x"], "crash")
    await end(found["y"], "normal")
    assert [(info.id, info.restarting) for info in await which_children(sup)] == [("y", False), ("x", True)]
    assert await goes_on(sup)
    assert (await refs(sup))["x"] is diary.refs("x")[1]


# 74: those that the supervisor itself stopped


@pytest.mark.spec("otp-74")
@pytest.mark.parametrize("auto_shutdown", [ANY, ALL])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("shutdown", [5, "brutal_kill"])
async def test_a_significant_child_that_was_terminated_or_deleted_ends_nothing(
    clock: Clock, auto_shutdown: str, restart: str, shutdown: Any
) -> None:
    diary = Diary()
    specs = [kid(diary, "s", restart=restart, significant=True, shutdown=shutdown), kid(diary, "b")]
    sup = await supervise(clock, specs, auto_shutdown=auto_shutdown)
    await terminate_child(sup, "s")
    assert await goes_on(sup)
    if restart == "transient":
        await delete_child(sup, "s")
        assert await goes_on(sup)
    assert list(await living(sup)) == ["b"]


@pytest.mark.spec("otp-74")
@pytest.mark.parametrize("auto_shutdown", [ANY, ALL])
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_a_significant_bystander_of_a_restart_ends_nothing(
    clock: Clock, auto_shutdown: str, strategy: str, restart: str
) -> None:
    diary = Diary()
    specs = [kid(diary, "a"), kid(diary, "s", restart=restart, significant=True), kid(diary, "b")]
    sup = await supervise(clock, specs, auto_shutdown=auto_shutdown, strategy=strategy)
    before = await living(sup)
    await end(before["a"], "crash")
    assert await goes_on(sup)
    after = await living(sup)
    assert list(after) == (["a", "s", "b"] if restart == "transient" else ["a", "b"])
    assert not set(after.values()) & set(before.values())
    assert before["s"].reason == Exit.SHUTDOWN


# 75: through supervisors


@pytest.mark.spec("otp-75")
@pytest.mark.parametrize("auto_shutdown", [ANY, ALL])
@pytest.mark.parametrize("sub_restart", ["transient", "temporary"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_an_automatic_shutdown_goes_up_through_significant_supervisors(
    clock: Clock, auto_shutdown: str, sub_restart: str, restart: str
) -> None:
    diary = Diary()
    top = await nested(clock, diary, restart, auto_shutdown, restart=sub_restart, significant=True)
    found = await living(top)
    await end(diary.refs("s")[0], "normal")
    assert await shuts_down(top)
    assert found["sub"].reason == Exit.SHUTDOWN
    assert found["b"].reason == Exit.SHUTDOWN
    assert diary.refs("x")[0].reason == Exit.SHUTDOWN


@pytest.mark.spec("otp-75")
@pytest.mark.parametrize("sub_restart", ["permanent", "transient", "temporary"])
async def test_an_automatic_shutdown_goes_no_further_than_a_supervisor_that_is_not_significant(
    clock: Clock, sub_restart: str
) -> None:
    diary = Diary()
    top = await nested(clock, diary, "transient", ANY, restart=sub_restart)
    before = await living(top)
    await end(diary.refs("s")[0], "normal")
    assert await goes_on(top)
    after = await refs(top)
    assert before["sub"].reason == Exit.SHUTDOWN
    assert after["b"] is before["b"]
    assert (after.get("sub") is not None) == (sub_restart == "permanent"), "a permanent one is restarted"


async def nested(clock: Clock, diary: Diary, child_restart: str, auto_shutdown: str, **sub: Any) -> Ref:
    """A supervisor over a worker and a supervisor, which has a significant child and another."""
    below = [kid(diary, "s", restart=child_restart, significant=True), kid(diary, "x")]
    inner = kid(diary, "sub", start=Lower, args=(below, auto_shutdown), **sub)
    return await supervise(clock, [inner, kid(diary, "b")], auto_shutdown=auto_shutdown)


class Lower(Supervisor):
    """A supervisor that takes its flag in a child spec's arguments."""

    def init(self, children: Any, auto_shutdown: str) -> Any:  # type: ignore[override]
        return super().init(children, auto_shutdown=auto_shutdown)
