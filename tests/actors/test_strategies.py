"""Who is restarted together, and in which order (otp-32 to otp-40)."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.child import Counts
from raptor.childspec import ChildSpec
from raptor.clock import Clock, VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.supervisor import Supervisor, count_children, start_child, terminate_child, which_children
from tests.actors.kids import STRATEGIES, Diary, end, kid, kids, living, refs, supervise

IDS = "abcde"

Lines = list[tuple[str, Hashable]]


def together(strategy: str, ids: str, failed: str) -> str:
    """Who is restarted when one fails, by the book."""
    match strategy:
        case "one_for_one":
            return failed
        case "rest_for_one":
            return ids[ids.index(failed) :]
        case _:
            return ids


@pytest.mark.spec("otp-32")
@pytest.mark.parametrize("failed", IDS)
async def test_one_for_one_leaves_the_siblings_as_they_are(clock: Clock, failed: str) -> None:
    sup = await supervise(clock, kids(Diary(), IDS))
    before = await living(sup)
    await end(before[failed], "crash")
    after = await living(sup)
    assert list(after) == list(IDS)
    assert {id for id in IDS if after[id] is not before[id]} == {failed}


@pytest.mark.spec("otp-33")
@pytest.mark.parametrize("failed", IDS)
async def test_one_for_all_replaces_everyone(clock: Clock, failed: str) -> None:
    sup = await supervise(clock, kids(Diary(), IDS), strategy="one_for_all")
    before = await living(sup)
    await end(before[failed], "crash")
    after = await living(sup)
    assert list(after) == list(IDS)
    assert not any(ref.alive for ref in before.values())
    assert not set(before.values()) & set(after.values())


class Census(Diary):
    """Counts, at each start, the earlier kids that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Ref] = []
        self.alive: list[int] = []

    def outcome(self, id: Hashable) -> str:
        self.alive.append(sum(ref.alive for ref in self.before))
        return super().outcome(id)


@pytest.mark.spec("otp-33")
@pytest.mark.parametrize("how", ["normal", "crash", "kill"])
async def test_no_old_child_is_alive_when_the_first_new_one_starts(clock: Clock, how: str) -> None:
    diary = Census()
    sup = await supervise(clock, kids(diary, IDS), strategy="one_for_all")
    children = await living(sup)
    diary.before, diary.alive = list(children.values()), []
    await end(children["c"], how)
    await living(sup)
    assert diary.alive == [0] * len(IDS)


@pytest.mark.spec("otp-34")
@pytest.mark.parametrize("failed", IDS)
async def test_rest_for_one_replaces_only_those_started_later(clock: Clock, failed: str) -> None:
    sup = await supervise(clock, kids(Diary(), IDS), strategy="rest_for_one")
    before = await living(sup)
    await end(before[failed], "crash")
    after = await living(sup)
    assert list(after) == list(IDS)
    assert "".join(id for id in IDS if after[id] is not before[id]) == IDS[IDS.index(failed) :]
    assert [id for id in IDS if before[id].alive] == list(IDS[: IDS.index(failed)])


@pytest.mark.spec("otp-34")
async def test_rest_for_one_counts_children_added_at_run_time_as_later(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"), strategy="rest_for_one")
    await start_child(sup, kid(diary, "c"))
    before = await living(sup)
    await end(before["b"], "crash")
    after = await living(sup)
    assert after["a"] is before["a"]
    assert after["b"] is not before["b"]
    assert after["c"] is not before["c"]


@pytest.mark.spec("otp-35")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
@pytest.mark.parametrize("failed", IDS)
async def test_siblings_are_stopped_in_reverse_and_restarted_in_order(clock: Clock, strategy: str, failed: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, IDS), strategy=strategy)
    diary.clear()
    await end((await living(sup))[failed], "crash")
    await living(sup)
    group = together(strategy, IDS, failed)
    stopped: Lines = [("ended", id) for id in reversed(group) if id != failed]
    started: Lines = [("started", id) for id in group]
    assert diary.lines == [("ended", failed), *stopped, *started]
    asked = [note.reason for note in diary.notes[1 : 1 + len(stopped)]]
    assert asked == [Exit.SHUTDOWN] * len(stopped)


@pytest.mark.spec("otp-32", "otp-33", "otp-34", "otp-35")
@settings(deadline=None, max_examples=150)
@given(
    strategy=st.sampled_from(STRATEGIES),
    restarts=st.lists(st.sampled_from(["permanent", "transient", "temporary"]), min_size=1, max_size=7),
    ends=st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["crash", "kill"])), max_size=5),
)
def test_any_crashes_restart_whom_the_strategy_names_in_order(
    strategy: str, restarts: list[str], ends: list[tuple[int, str]]
) -> None:
    """The diary of any series of crashes, against the rule in a few lines."""
    kinds = {"abcdefg"[place]: restart for place, restart in enumerate(restarts)}

    async def main(clock: VirtualClock) -> None:
        diary = Diary()
        specs = [kid(diary, id, restart=restart) for id, restart in kinds.items()]
        sup = await supervise(clock, specs, strategy=strategy, intensity=100)
        left = "".join(kinds)
        for place, how in ends:
            if not left:
                break
            left = await crash_one(sup, diary, left, left[place % len(left)], how)

    async def crash_one(sup: Ref, diary: Diary, ids: str, failed: str, how: str) -> str:
        before = await living(sup)
        diary.clear()
        await end(before[failed], how)
        after = await living(sup)
        group = "" if kinds[failed] == "temporary" else together(strategy, ids, failed)
        stopped: Lines = [("ended", id) for id in reversed(group) if id != failed]
        started: Lines = [("started", id) for id in group if kinds[id] != "temporary"]
        own: Lines = [] if how == "kill" else [("ended", failed)]
        assert diary.lines == [*own, *stopped, *started]
        gone = {id for id in {failed, *group} if kinds[id] == "temporary"}
        left = "".join(id for id in ids if id not in gone)
        assert list(after) == list(left)
        assert {id for id in left if after[id] is not before[id]} == set(group) - gone
        return left

    clock = VirtualClock()
    clock.run(lambda: main(clock))


@pytest.mark.spec("otp-36")
@pytest.mark.parametrize("restart", ["permanent", "transient"])
@pytest.mark.parametrize("stopped", ["a", "c"])
async def test_one_for_all_starts_a_child_that_had_been_stopped_by_hand(
    clock: Clock, stopped: str, restart: str
) -> None:
    sup = await supervise(clock, kids(Diary(), "abc", restart=restart), strategy="one_for_all")
    await terminate_child(sup, stopped)
    before = await refs(sup)
    assert before[stopped] is None
    assert before["b"] is not None
    await end(before["b"], "crash")
    assert list(await living(sup)) == ["a", "b", "c"]


@pytest.mark.spec("otp-36")
async def test_one_for_all_starts_a_transient_child_that_had_ended_in_order(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "ab", restart="transient"), strategy="one_for_all")
    before = await living(sup)
    await end(before["b"], "normal")
    assert (await refs(sup))["b"] is None
    await end(before["a"], "crash")
    assert list(await living(sup)) == ["a", "b"]


@pytest.mark.spec("otp-36")
async def test_rest_for_one_starts_a_stopped_child_only_if_it_is_later(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "abc"), strategy="rest_for_one")
    await terminate_child(sup, "a")
    await terminate_child(sup, "c")
    middle = (await refs(sup))["b"]
    assert middle is not None
    await end(middle, "crash")
    after = await refs(sup)
    assert after["a"] is None
    assert after["c"] is not None


@pytest.mark.spec("otp-36")
async def test_one_for_one_leaves_a_stopped_child_stopped(clock: Clock) -> None:
    sup = await supervise(clock, kids(Diary(), "ab"))
    await terminate_child(sup, "a")
    other = (await refs(sup))["b"]
    assert other is not None
    await end(other, "crash")
    assert (await refs(sup))["a"] is None


@pytest.mark.spec("otp-36")
async def test_a_stopped_subtree_comes_back_with_everyone(clock: Clock) -> None:
    diary = Diary()
    inner = ChildSpec(id="inner", start=Supervisor, args=(kids(diary, "xy"),), restart="transient")
    sup = await supervise(clock, [kid(diary, "a"), inner], strategy="one_for_all")
    await terminate_child(sup, "inner")
    first = (await refs(sup))["a"]
    assert first is not None
    await end(first, "crash")
    after = await living(sup)
    assert list(await living(after["inner"])) == ["x", "y"]


@pytest.mark.spec("otp-37")
async def test_one_for_all_starts_over_when_another_child_fails_to_restart(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "ok", "raise", "raise", "ok")
    sup = await supervise(clock, kids(diary, "abc"), strategy="one_for_all", intensity=3)
    diary.clear()
    await end((await living(sup))["a"], "crash")
    await diary.written("started", "c")
    attempt: Lines = [("started", "a"), ("refused", "b"), ("ended", "a")]
    stopped: Lines = [("ended", "a"), ("ended", "c"), ("ended", "b")]
    assert diary.lines == [*stopped, *attempt, *attempt, ("started", "a"), ("started", "b"), ("started", "c")]
    after = await living(sup)
    assert [ref for ref in diary.refs("a") if ref.alive] == [after["a"]]


@pytest.mark.spec("otp-38")
async def test_rest_for_one_does_not_restart_again_what_already_runs(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "ok", "raise", "raise", "ok")
    sup = await supervise(clock, kids(diary, "abc"), strategy="rest_for_one", intensity=3)
    diary.clear()
    await end((await living(sup))["a"], "crash")
    await diary.written("started", "c")
    stopped: Lines = [("ended", "a"), ("ended", "c"), ("ended", "b")]
    refused: Lines = [("refused", "b"), ("refused", "b")]
    assert diary.lines == [*stopped, ("started", "a"), *refused, ("started", "b"), ("started", "c")]
    after = await living(sup)
    assert diary.refs("a") == [after["a"]]


@pytest.mark.spec("otp-39")
@pytest.mark.parametrize("how", ["normal", "crash", "kill"])
async def test_dynamic_children_restart_one_by_one_with_their_own_arguments(clock: Clock, how: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor, intensity=5)
    children = [await start_child(sup, f"kid {n}", n, colour=n * 10) for n in range(4)]
    for n in (1, 3):
        child = children[n]
        assert child is not None
        await end(child, how)
    listed = [info.ref for info in reversed(await which_children(sup))]
    assert [listed[0], listed[2]] == [children[0], children[2]]
    assert not {listed[1], listed[3]} & {children[1], children[3]}
    for n, ref in enumerate(listed):
        assert ref is not None
        assert await ref.call("who") == (f"kid {n}", n)
        assert await ref.call(lambda it: it.more) == {"colour": n * 10}


@pytest.mark.spec("otp-39")
async def test_a_dynamic_child_keeps_its_arguments_over_many_restarts(clock: Clock) -> None:
    diary = Diary()
    template = ChildSpec(id="t", start=kid(diary, "t").start, args=(diary,), kwargs={"colour": "red", "size": 1})
    sup = await supervise(clock, template, DynamicSupervisor, intensity=5)
    ref = await start_child(sup, "a", 7, size=2)
    for _ in range(4):
        assert ref is not None
        assert await ref.call(lambda it: (it.id, it.rest, it.more)) == ("a", (7,), {"colour": "red", "size": 2})
        await end(ref, "crash")
        [info] = await which_children(sup)
        ref = info.ref


@pytest.mark.spec("otp-40")
@pytest.mark.parametrize("restart", ["permanent", "transient"])
async def test_a_dynamic_child_that_ignores_its_restart_is_dropped(clock: Clock, restart: str) -> None:
    diary = Diary()
    diary.will("a", "ok", "ignore")
    sup = await supervise(clock, kid(diary, "t", args=(diary,), restart=restart), DynamicSupervisor)
    first = await start_child(sup, "a")
    other = await start_child(sup, "b")
    assert first is not None
    await end(first, "crash")
    assert [info.ref for info in await which_children(sup)] == [other]
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)
    assert diary.ids("refused") == ["a"]
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN


@pytest.mark.spec("otp-40")
async def test_a_static_child_that_ignores_its_restart_keeps_its_spec(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "ok", "ignore")
    sup = await supervise(clock, kids(diary, "ab"))
    await end((await living(sup))["a"], "crash")
    assert (await refs(sup))["a"] is None
    assert await count_children(sup) == Counts(specs=2, active=1, supervisors=0, workers=2)
