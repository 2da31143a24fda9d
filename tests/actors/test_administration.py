"""What a supervisor answers to those who administer it (otp-63 to otp-70), and new configurations (otp-76)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raptor.childspec import ChildSpec
from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import BadSpec, ChildError, NoSuchActor, RaptorError
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import (
    Counts,
    Supervisor,
    count_children,
    delete_child,
    get_childspec,
    reconfigure,
    restart_child,
    start_child,
    terminate_child,
    which_children,
)
from tests.actors.kids import STRATEGIES, Diary, Kid, begin, end, kid, kids, living, refs, supervise

RESTARTS = ("permanent", "transient", "temporary")


async def refused(request: Awaitable[object]) -> ChildError:
    """The error that a supervisor answers a request with."""
    with pytest.raises(ChildError) as caught:
        await request
    return caught.value


async def dynamic(clock: Clock, diary: Diary, **fields: Any) -> Ref:
    return await supervise(clock, kid(diary, "t", **fields), DynamicSupervisor)


async def one_more(sup: Ref, *args: Any) -> Ref:
    ref = await start_child(sup, *args)
    assert ref is not None
    return ref


# 63: start


@pytest.mark.spec("otp-63")
async def test_starting_a_child_that_runs_answers_already_started_and_who_it_is(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"))
    ref = (await living(sup))["a"]
    error = await refused(start_child(sup, kid(diary, "a")))
    assert (error.answer, error.ref, error.child) == ("already_started", ref, "a")
    assert await living(sup) == {"a": ref}


@pytest.mark.spec("otp-63")
@pytest.mark.parametrize("restart", ["permanent", "transient"])
async def test_starting_a_child_that_was_stopped_answers_already_present(clock: Clock, restart: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a", restart=restart))
    await terminate_child(sup, "a")
    error = await refused(start_child(sup, kid(diary, "a")))
    assert (error.answer, error.ref) == ("already_present", None)
    assert await refs(sup) == {"a": None}


@pytest.mark.spec("otp-63")
@pytest.mark.parametrize("nonsense", [None, "a", ("a", Kid), {"id": "a", "start": Kid}])
async def test_starting_what_is_no_child_spec_is_refused_and_the_supervisor_unharmed(
    clock: Clock, nonsense: Any
) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    with pytest.raises(BadSpec, match="children"):
        await start_child(sup, nonsense)
    assert len(await living(sup)) == 1


# 64: terminate


@pytest.mark.spec("otp-64")
@pytest.mark.parametrize("id", ["unknown", None, ["unhashable"]])
async def test_terminating_an_unknown_child_answers_not_found(clock: Clock, id: Any) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    assert (await refused(terminate_child(sup, id))).answer == "not_found"
    assert len(await living(sup)) == 1


@pytest.mark.spec("otp-64")
async def test_terminating_a_stopped_child_is_fine(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    for _ in range(3):
        await terminate_child(sup, "a")
    assert await refs(sup) == {"a": None}


@pytest.mark.spec("otp-64")
async def test_a_temporary_child_that_was_terminated_is_forgotten(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a", restart="temporary"))
    await terminate_child(sup, "a")
    assert (await refused(terminate_child(sup, "a"))).answer == "not_found"


# 65: restart


@pytest.mark.spec("otp-65")
async def test_restarting_a_child_that_runs_answers_running(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    before = await living(sup)
    assert (await refused(restart_child(sup, "a"))).answer == "running"
    assert await living(sup) == before


@pytest.mark.spec("otp-65")
@pytest.mark.parametrize("id", ["unknown", ["unhashable"]])
async def test_restarting_an_unknown_child_answers_not_found(clock: Clock, id: Any) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    assert (await refused(restart_child(sup, id))).answer == "not_found"


@pytest.mark.spec("otp-65")
async def test_restarting_a_stopped_child_starts_it_in_its_old_place(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "abc"))
    before = await living(sup)
    await terminate_child(sup, "b")
    again = await restart_child(sup, "b")
    assert await living(sup) == {**before, "b": again}
    assert list(await living(sup)) == ["a", "b", "c"]


# 66: delete


@pytest.mark.spec("otp-66")
async def test_only_a_stopped_child_can_be_deleted_and_only_once(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"))
    before = await living(sup)
    assert (await refused(delete_child(sup, "a"))).answer == "running"
    assert await living(sup) == before
    await terminate_child(sup, "a")
    await delete_child(sup, "a")
    assert await living(sup) == {"b": before["b"]}
    for request in (delete_child, restart_child, terminate_child, get_childspec):
        assert (await refused(request(sup, "a"))).answer == "not_found"


@pytest.mark.spec("otp-66")
async def test_a_deleted_id_is_free_again(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"))
    await terminate_child(sup, "a")
    await delete_child(sup, "a")
    await start_child(sup, kid(diary, "a"))
    assert list(await living(sup)) == ["b", "a"], "as the newest"


# 67: dead supervisors

REQUESTS: dict[str, Callable[[Ref], Awaitable[object]]] = {
    "start_child": lambda sup: start_child(sup, kid(Diary(), "z")),
    "terminate_child": lambda sup: terminate_child(sup, "a"),
    "restart_child": lambda sup: restart_child(sup, "a"),
    "delete_child": lambda sup: delete_child(sup, "a"),
    "get_childspec": lambda sup: get_childspec(sup, "a"),
    "which_children": which_children,
    "count_children": count_children,
    "reconfigure": lambda sup: reconfigure(sup, []),
}


@pytest.mark.spec("otp-67")
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
@pytest.mark.parametrize("killed", [False, True])
async def test_every_request_to_a_dead_supervisor_is_refused_as_such(
    clock: Clock, request_: Callable[[Ref], Awaitable[object]], kind: type[Supervisor], killed: bool
) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a") if kind is Supervisor else kid(diary, "a"), kind)
    if killed:
        sup.kill()
    await sup.wait() if killed else await sup.stop()
    with pytest.raises(NoSuchActor):
        await request_(sup)


async def test_a_call_that_is_no_request_is_refused_and_the_supervisor_unharmed(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    with pytest.raises(RaptorError, match="does not understand 'hello'"):
        await sup.call("hello")
    sup.cast("hello")
    sup.send("hello")
    assert len(await living(sup)) == 1


# 68: terminate_child means it


@pytest.mark.spec("otp-68")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("shutdown", [5, "brutal_kill"])
async def test_a_terminated_child_stays_down_and_costs_no_restart(
    clock: Clock, strategy: str, restart: str, shutdown: Any
) -> None:
    diary = Diary()
    specs = [kid(diary, "a"), kid(diary, "b", restart=restart, shutdown=shutdown), kid(diary, "c")]
    sup = await supervise(clock, specs, strategy=strategy, intensity=0)
    before = await living(sup)
    await terminate_child(sup, "b")
    await clock.sleep(60)
    assert sup.alive, "an intensity of 0 allows no restart at all"
    now = await refs(sup)
    assert (now["a"], now["c"], now.get("b")) == (before["a"], before["c"], None)
    assert diary.ids("started") == ["a", "b", "c"]


@pytest.mark.spec("otp-68")
async def test_terminating_and_restarting_by_hand_never_reaches_the_intensity(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "a"), intensity=0)
    for _ in range(20):
        await terminate_child(sup, "a")
        await restart_child(sup, "a")
    assert len(await living(sup)) == 1


@pytest.mark.spec("otp-68")
@pytest.mark.parametrize("auto_shutdown", ["any_significant", "all_significant"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_terminating_a_significant_child_does_not_end_the_supervisor(
    clock: Clock, auto_shutdown: str, restart: str
) -> None:
    diary = Diary()
    specs = [kid(diary, "a", restart=restart, significant=True), kid(diary, "b")]
    sup = await supervise(clock, specs, auto_shutdown=auto_shutdown, intensity=0)
    await terminate_child(sup, "a")
    await clock.sleep(60)
    assert sup.alive
    assert (await refs(sup)).get("a") is None


@pytest.mark.spec("otp-68")
@pytest.mark.parametrize("restart", RESTARTS)
async def test_a_terminated_dynamic_child_is_gone_and_costs_no_restart(clock: Clock, restart: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", restart=restart), DynamicSupervisor, intensity=0)
    await terminate_child(sup, await one_more(sup))
    await clock.sleep(60)
    assert (sup.alive, await which_children(sup)) == (True, [])


# 69: dynamic supervisors


@pytest.mark.spec("otp-69")
@pytest.mark.parametrize("request_", [terminate_child, restart_child, delete_child])
@pytest.mark.parametrize("id", ["t", 0, None, ["unhashable"]])
async def test_a_dynamic_child_has_no_id_to_be_named_by(
    clock: Clock, request_: Callable[[Ref, Any], Awaitable[object]], id: Any
) -> None:
    sup = await dynamic(clock, Diary())
    child = await one_more(sup)
    assert (await refused(request_(sup, id))).answer == "simple_one_for_one"
    assert child.alive


@pytest.mark.spec("otp-69")
async def test_a_dynamic_child_is_terminated_by_its_ref_alive_or_dead(clock: Clock) -> None:
    sup = await dynamic(clock, Diary())
    first, second = await one_more(sup), await one_more(sup)
    await terminate_child(sup, first)
    assert (first.reason, second.alive) == (Exit.SHUTDOWN, True)
    await terminate_child(sup, first)
    assert [info.ref for info in await which_children(sup)] == [second]


@pytest.mark.spec("otp-69")
async def test_a_dead_stranger_is_as_good_as_terminated(clock: Clock) -> None:
    sup = await dynamic(clock, Diary())
    stranger = await begin(sup.runtime, Kid, Diary(), "stranger")
    await stranger.stop()
    await terminate_child(sup, stranger)


@pytest.mark.spec("otp-69")
async def test_a_living_stranger_is_not_found_and_not_harmed(clock: Clock) -> None:
    sup = await dynamic(clock, Diary())
    stranger = await begin(sup.runtime, Kid, Diary(), "stranger")
    assert (await refused(terminate_child(sup, stranger))).answer == "not_found"
    assert (await refused(get_childspec(sup, stranger))).answer == "not_found"
    assert stranger.alive
    assert await stranger.call("still there?") == ("stranger",)


# 70: counting and specs


@pytest.mark.spec("otp-70")
async def test_the_children_of_a_dynamic_supervisor_are_counted_exactly(clock: Clock) -> None:
    sup = await dynamic(clock, Diary())
    children = [await one_more(sup) for _ in range(1_000)]
    assert await count_children(sup) == Counts(specs=1, active=1_000, supervisors=0, workers=1_000)
    children += [await one_more(sup) for _ in range(1_000)]
    assert await count_children(sup) == Counts(specs=1, active=2_000, supervisors=0, workers=2_000)
    assert [info.ref for info in await which_children(sup)] == children[::-1]
    for child in children[::2]:
        await terminate_child(sup, child)
    assert await count_children(sup) == Counts(specs=1, active=1_000, supervisors=0, workers=1_000)


@pytest.mark.spec("otp-70")
async def test_the_children_of_a_supervisor_are_counted_exactly(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, number) for number in range(1_000)])
    assert await count_children(sup) == Counts(specs=1_000, active=1_000, supervisors=0, workers=1_000)
    for number in range(1_000, 2_000):
        await start_child(sup, kid(diary, number, start=Supervisor, args=()))
    assert await count_children(sup) == Counts(specs=2_000, active=2_000, supervisors=1_000, workers=1_000)
    for number in range(500, 1_500):
        await terminate_child(sup, number)
    assert await count_children(sup) == Counts(specs=2_000, active=1_000, supervisors=1_000, workers=1_000)
    for number in range(500, 1_500):
        await delete_child(sup, number)
    assert await count_children(sup) == Counts(specs=1_000, active=1_000, supervisors=500, workers=500)


@pytest.mark.spec("otp-70")
async def test_a_childs_spec_is_found_by_its_id_running_or_not(clock: Clock) -> None:
    spec = kid(Diary(), "a", shutdown=7)
    sup = await supervise(clock, [spec])
    assert await get_childspec(sup, "a") == spec
    await terminate_child(sup, "a")
    assert await get_childspec(sup, "a") == spec
    for unknown in ("b", None, ["unhashable"]):
        assert (await refused(get_childspec(sup, unknown))).answer == "not_found"


@pytest.mark.spec("otp-70")
async def test_a_dynamic_childs_spec_is_found_by_its_ref(clock: Clock) -> None:
    template = kid(Diary(), "t")
    sup = await supervise(clock, template, DynamicSupervisor)
    child = await one_more(sup)
    assert await get_childspec(sup, child) == template
    await terminate_child(sup, child)
    assert (await refused(get_childspec(sup, child))).answer == "not_found"
    assert await get_childspec(sup, "t") == template  # as in OTP


# 76: a new configuration


@pytest.mark.spec("otp-76")
async def test_a_new_intensity_and_period_apply_at_once(clock: Clock) -> None:
    diary = Diary()
    specs = kids(diary, "a")
    sup = await supervise(clock, specs, intensity=0)
    await reconfigure(sup, specs, intensity=2, period_s=10)
    for _ in range(2):
        await end((await living(sup))["a"], "crash")
    assert len(await living(sup)) == 1
    await end((await living(sup))["a"], "crash")
    assert await sup.wait() == Exit.SHUTDOWN


@pytest.mark.spec("otp-76")
async def test_a_new_strategy_applies_at_the_next_crash(clock: Clock) -> None:
    diary = Diary()
    specs = kids(diary, "ab")
    sup = await supervise(clock, specs)
    await reconfigure(sup, specs, strategy="one_for_all")
    before = await living(sup)
    await end(before["b"], "crash")
    after = await living(sup)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


@pytest.mark.spec("otp-76")
async def test_new_flags_leave_the_others_as_they_were(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"), strategy="rest_for_one", intensity=7)
    await reconfigure(sup, kids(diary, "ab"), period_s=60)
    flags = sup.actor.flags  # type: ignore[union-attr]
    assert (flags.strategy, flags.intensity, flags.period_s) == ("rest_for_one", 7, 60)


@pytest.mark.spec("otp-76")
async def test_new_children_are_added_in_their_place_but_not_started(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ac"))
    before = await living(sup)
    await reconfigure(sup, kids(diary, "abc"))
    assert await refs(sup) == {"a": before["a"], "b": None, "c": before["c"]}
    assert list(await refs(sup)) == ["a", "b", "c"]
    assert diary.ids("started") == ["a", "c"]
    assert await restart_child(sup, "b") is not None


@pytest.mark.spec("otp-76")
async def test_children_that_the_new_configuration_lacks_go_on_and_are_still_supervised(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"))
    before = await living(sup)
    await reconfigure(sup, kids(diary, "b"))
    assert await living(sup) == before
    assert list(await living(sup)) == ["b", "a"], "they are kept after the others"
    await end(before["a"], "crash")
    assert (await living(sup))["a"] is not before["a"]


@pytest.mark.spec("otp-76")
async def test_a_changed_spec_is_used_at_the_next_restart(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", "old")])
    ref = (await living(sup))["a"]
    changed = kid(diary, "a", "new", restart="transient", shutdown=1)
    await reconfigure(sup, [changed])
    assert (await living(sup))["a"] is ref, "what runs goes on"
    assert await ref.call("args?") == ("a", "old")
    assert await get_childspec(sup, "a") == changed
    await end(ref, "crash")
    successor = (await living(sup))["a"]
    assert await successor.call("args?") == ("a", "new")
    await end(successor, "normal")
    assert await refs(sup) == {"a": None}, "and so is its new restart type"


@pytest.mark.spec("otp-76")
@pytest.mark.parametrize(
    ("specs", "flags", "field"),
    [
        ("aa", {}, "id"),
        ("aa", {"intensity": 9}, "id"),
        ("abc", {"strategy": "one_for_none"}, "strategy"),
        ("abc", {"intensity": -1}, "intensity"),
        ("abc", {"period_s": 0}, "period_s"),
        ("abc", {"auto_shutdown": "sometimes"}, "auto_shutdown"),
        ("significant", {}, "significant"),
        ("nonsense", {}, "children"),
    ],
)
async def test_a_wrong_configuration_changes_nothing(
    clock: Clock, specs: str, flags: dict[str, Any], field: str
) -> None:
    diary = Diary()
    old = kids(diary, "ab")
    sup = await supervise(clock, old, intensity=3)
    before = await living(sup)
    new: dict[str, list[Any]] = {
        "significant": [kid(diary, "a", "changed"), kid(diary, "s", restart="transient", significant=True)],
        "nonsense": [kid(diary, "a", "changed"), "nonsense"],
    }
    with pytest.raises(BadSpec) as wrong:
        await reconfigure(sup, new.get(specs) or [kid(diary, id, "changed") for id in specs], **flags)
    assert wrong.value.field == field
    assert await living(sup) == before
    assert [await get_childspec(sup, id) for id in "ab"] == old
    assert sup.actor.flags.intensity == 3  # type: ignore[union-attr]


@pytest.mark.spec("otp-76")
async def test_an_unknown_flag_is_ignored_with_a_warning_at_a_reconfiguration_too(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"))
    with pytest.warns(UserWarning, match="unknown field 'colour'"):
        await reconfigure(sup, kids(diary, "a"), colour="blue", intensity=9)
    assert sup.actor.flags.intensity == 9  # type: ignore[union-attr]


@pytest.mark.spec("otp-76")
async def test_a_dynamic_supervisors_new_template_is_for_new_children_and_next_restarts(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", "old"), DynamicSupervisor)
    old = await one_more(sup, "mine")
    await reconfigure(sup, [kid(diary, "t", "new")], intensity=5)
    assert await old.call("args?") == ("t", "old", "mine")
    assert await (await one_more(sup, "yours")).call("args?") == ("t", "new", "yours")
    await end(old, "crash")
    newest = (await which_children(sup))[-1].ref
    assert newest is not None
    assert await newest.call("args?") == ("t", "new", "mine")


@pytest.mark.spec("otp-76")
@pytest.mark.parametrize(
    ("ids", "flags"), [("", {}), ("tu", {}), ("t", {"strategy": "one_for_all"}), ("t", {"auto_shutdown": "never!"})]
)
async def test_a_dynamic_supervisor_refuses_a_wrong_configuration_and_keeps_its_template(
    clock: Clock, ids: str, flags: dict[str, Any]
) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", "old"), DynamicSupervisor)
    with pytest.raises(BadSpec):
        await reconfigure(sup, [kid(diary, id, "new") for id in ids], **flags)
    assert await (await one_more(sup)).call("args?") == ("t", "old")


async def test_two_nodes_have_supervisors_of_the_same_name_that_know_nothing_of_each_other(clock: Clock) -> None:
    diary = Diary()
    first, second = Runtime(clock, log=False), Runtime(clock, log=False)
    specs: list[ChildSpec] = [kid(diary, "a", name="a")]
    one = await begin(first, Supervisor, specs, name="top")
    two = await begin(second, Supervisor, specs, name="top")
    assert (first.whereis("top"), second.whereis("top")) == (one, two)
    await one.stop()
    assert (first.whereis("a"), second.whereis("a")) == (None, (await living(two))["a"])
