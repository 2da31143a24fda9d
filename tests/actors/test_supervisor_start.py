"""How a supervisor and its children start, and what is refused (otp-1 to otp-20)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from raptor.actor import IGNORE, Actor, Stop
from raptor.child import ChildFailed, Counts
from raptor.childspec import ChildSpec, Flags
from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import BadSpec, ChildError, NameTaken, StartFailed
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.runtime import Runtime
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
from tests.actors.kids import Boom, Diary, Kid, Parent, begin, end, kid, kids, living, refs, supervise


class Mute(Actor):
    """An actor class without handlers."""


class Ignoring(Supervisor):
    def init(self, *_: Any) -> Any:
        return IGNORE


class Talking(Supervisor):
    def init(self, *_: Any) -> Any:
        return "nonsense"


class Failing(Supervisor):
    def init(self, *_: Any) -> Any:
        raise Boom("no supervisor today")


async def started_by_an_actor(runtime: Runtime, kind: type[Actor], *args: Any, **kwargs: Any) -> Any:
    """What an actor gets that starts another, linked to itself; it must survive that."""
    parent = await begin(runtime, Parent)
    answer = await parent.call((kind, args, kwargs))
    again = await parent.call((kind, args, kwargs))
    assert type(again) is type(answer)
    assert parent.alive
    return answer


async def bad_spec(starting: Awaitable[object]) -> BadSpec:
    """The mistake for which a supervisor does not start."""
    with pytest.raises(StartFailed) as caught:
        await starting
    assert isinstance(caught.value.reason, BadSpec)
    assert str(caught.value.reason) in str(caught.value)
    return caught.value.reason


async def refused_child(starting: Awaitable[object]) -> ChildFailed:
    """The child because of which a supervisor does not start."""
    with pytest.raises(StartFailed) as caught:
        await starting
    reason = caught.value.reason
    assert isinstance(reason, Exit)
    assert reason.kind == "shutdown"
    assert isinstance(reason.term, ChildFailed)
    return reason.term


# The supervisor itself


@pytest.mark.spec("otp-1")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_a_supervisor_starts_and_stops_with_shutdown(clock: Clock, kind: type[Supervisor]) -> None:
    runtime = Runtime(clock)
    children: Any = [] if kind is Supervisor else kid(Diary(), "a")
    sup = await begin(runtime, kind, children, name="top")
    assert runtime.whereis("top") is sup
    sup.exit(Exit.SHUTDOWN)
    assert await sup.wait() == Exit.SHUTDOWN
    assert runtime.whereis("top") is None


@pytest.mark.spec("otp-1")
async def test_a_supervisor_that_shuts_down_takes_its_children_along(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "ab"))
    children = await living(sup)
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    assert [ref.reason for ref in children.values()] == [Exit.SHUTDOWN, Exit.SHUTDOWN]


@pytest.mark.spec("otp-2")
async def test_a_supervisor_that_ignores_its_start_leaves_its_starter_unharmed(clock: Clock) -> None:
    runtime = Runtime(clock)
    assert await runtime.start(Ignoring, name="top") is None
    assert await started_by_an_actor(runtime, Ignoring, name="top") is None
    assert runtime.whereis("top") is None


@pytest.mark.spec("otp-3")
async def test_a_supervisor_whose_init_answers_nonsense_fails_with_bad_return(clock: Clock) -> None:
    runtime = Runtime(clock)
    failed = await started_by_an_actor(runtime, Talking, name="top")
    assert isinstance(failed, StartFailed)
    assert failed.reason == Exit.FAILED(("bad_return", "nonsense"))
    assert runtime.whereis("top") is None


@pytest.mark.spec("otp-4")
async def test_a_supervisor_whose_init_raises_fails_with_that_exception(clock: Clock) -> None:
    runtime = Runtime(clock)
    failed = await started_by_an_actor(runtime, Failing, name="top")
    assert isinstance(failed, StartFailed)
    assert isinstance(failed.reason, Boom)
    assert "no supervisor today" in str(failed)
    assert runtime.whereis("top") is None


# Children that do not start


@pytest.mark.spec("otp-5")
async def test_a_child_that_ignores_its_start_keeps_its_spec_without_a_ref(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "ignore")
    sup = await supervise(clock, kids(diary, "ab"))
    found = await refs(sup)
    assert found["a"] is None
    assert found["b"] is not None
    assert await count_children(sup) == Counts(specs=2, active=1, supervisors=0, workers=2)


@pytest.mark.spec("otp-5")
@pytest.mark.parametrize("restart", ["permanent", "transient"])
async def test_a_child_added_later_that_ignores_its_start_keeps_its_spec(clock: Clock, restart: str) -> None:
    diary = Diary()
    diary.will("b", "ignore", "ok")
    sup = await supervise(clock, kids(diary, "a"))
    assert await start_child(sup, kid(diary, "b", restart=restart)) is None
    assert (await refs(sup))["b"] is None
    assert await count_children(sup) == Counts(specs=2, active=1, supervisors=0, workers=2)
    assert await restart_child(sup, "b") is not None


@pytest.mark.spec("otp-6")
async def test_a_temporary_child_that_ignores_its_start_is_dropped_from_init(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "ignore")
    sup = await supervise(clock, [kid(diary, "a", restart="temporary"), kid(diary, "b")])
    assert list(await living(sup)) == ["b"]
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)


@pytest.mark.spec("otp-6")
async def test_a_temporary_child_that_ignores_its_start_is_dropped_from_start_child(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "ignore", "ok")
    sup = await supervise(clock, kids(diary, "a"))
    assert await start_child(sup, kid(diary, "b", restart="temporary")) is None
    assert list(await living(sup)) == ["a"]
    assert await start_child(sup, kid(diary, "b")) is not None


@pytest.mark.spec("otp-7")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_a_dynamic_child_that_ignores_its_start_is_dropped(clock: Clock, restart: str) -> None:
    diary = Diary()
    diary.will("a", "ignore")
    sup = await supervise(clock, kid(diary, "t", args=(diary,), restart=restart), DynamicSupervisor)
    other = await start_child(sup, "b")
    assert other is not None
    assert await start_child(sup, "a") is None
    assert [info.ref for info in await which_children(sup)] == [other]
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)
    sup.exit(Exit.SHUTDOWN)
    assert await sup.wait() == Exit.SHUTDOWN
    assert other.reason == Exit.SHUTDOWN


FAILURES: dict[str, Callable[[object], bool]] = {
    "raise": lambda reason: isinstance(reason, Boom),
    "stop": lambda reason: reason == Exit.FAILED("refusal"),
    "bad": lambda reason: reason == Exit.FAILED(("bad_return", "nonsense")),
    "hang": lambda reason: isinstance(reason, TimeoutError),
}


@pytest.mark.spec("otp-8")
@pytest.mark.parametrize("outcome", FAILURES)
async def test_start_child_passes_a_failure_on_and_keeps_no_spec(clock: Clock, outcome: str) -> None:
    diary = Diary()
    diary.will("b", outcome)
    sup = await supervise(clock, kids(diary, "a"))
    with pytest.raises(StartFailed) as caught:
        await start_child(sup, kid(diary, "b"))
    assert FAILURES[outcome](caught.value.reason)
    assert list(await living(sup)) == ["a"]
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)
    with pytest.raises(ChildError, match="no such child"):
        await get_childspec(sup, "b")


@pytest.mark.spec("otp-8")
@pytest.mark.parametrize("outcome", FAILURES)
async def test_start_child_of_a_dynamic_supervisor_keeps_nothing_of_a_failure(clock: Clock, outcome: str) -> None:
    diary = Diary()
    diary.will("a", outcome)
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor)
    with pytest.raises(StartFailed) as caught:
        await start_child(sup, "a")
    assert FAILURES[outcome](caught.value.reason)
    assert await which_children(sup) == []
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=0)


@pytest.mark.spec("otp-9")
@pytest.mark.parametrize("outcome", FAILURES)
async def test_restart_child_passes_a_failure_on_and_keeps_the_spec(clock: Clock, outcome: str) -> None:
    diary = Diary()
    diary.will("a", "ok", outcome, "ok")
    sup = await supervise(clock, kids(diary, "a"))
    await terminate_child(sup, "a")
    with pytest.raises(StartFailed) as caught:
        await restart_child(sup, "a")
    assert FAILURES[outcome](caught.value.reason)
    [info] = await which_children(sup)
    assert (info.id, info.ref, info.restarting) == ("a", None, False)
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=1)
    assert await restart_child(sup, "a") is not None


@pytest.mark.spec("otp-10")
@pytest.mark.parametrize("outcome", FAILURES)
async def test_a_child_that_fails_at_boot_stops_those_before_it_in_reverse(clock: Clock, outcome: str) -> None:
    diary = Diary()
    diary.will("d", outcome)
    runtime = Runtime(clock)
    failed = await refused_child(runtime.start(Supervisor, kids(diary, "abcde"), name="top"))
    assert failed.id == "d"
    assert FAILURES[outcome](failed.reason)
    assert diary.ids("started") == ["a", "b", "c"]
    assert diary.ids("ended") == ["c", "b", "a"]
    assert not any(ref.alive for id in "abc" for ref in diary.refs(id))
    assert runtime.whereis("top") is None


@pytest.mark.spec("otp-10")
async def test_the_message_of_a_failed_start_names_the_child_and_its_reason(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "raise")
    with pytest.raises(StartFailed, match=r"'b'.*b does not start"):
        await supervise(clock, kids(diary, "ab"))


@pytest.mark.spec("otp-10")
async def test_a_child_that_fails_deep_down_stops_the_whole_tree(clock: Clock) -> None:
    diary = Diary()
    diary.will("d", "raise")
    inner = ChildSpec(id="inner", start=Supervisor, args=(kids(diary, "cd"),))
    failed = await refused_child(supervise(clock, [*kids(diary, "ab"), inner]))
    assert failed.id == "inner"
    assert isinstance(failed.reason, Exit)
    assert isinstance(failed.reason.term, ChildFailed)
    assert failed.reason.term.id == "d"
    assert diary.ids("ended") == ["c", "b", "a"]


# Specifications


@pytest.mark.spec("otp-11")
def test_the_defaults_of_a_child_are_otps() -> None:
    spec = ChildSpec(id="a", start=Kid)
    assert (spec.restart, spec.shutdown, spec.type, spec.significant) == ("permanent", 5.0, "worker", False)
    assert (spec.args, spec.kwargs, spec.name) == ((), {}, None)


@pytest.mark.spec("otp-11")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
def test_the_defaults_of_a_supervisor_as_a_child_are_otps(kind: type[Supervisor]) -> None:
    spec = ChildSpec(id="a", start=kind)
    assert (spec.restart, spec.shutdown, spec.type, spec.significant) == ("permanent", "infinity", "supervisor", False)


@pytest.mark.spec("otp-11")
def test_a_worker_said_to_be_a_supervisor_is_waited_for_without_limit() -> None:
    assert ChildSpec(id="a", start=Kid, type="supervisor").shutdown == "infinity"
    assert ChildSpec(id="a", start=Supervisor, type="worker").shutdown == 5.0


@pytest.mark.spec("otp-11")
async def test_the_defaults_of_a_supervisor_are_otps(clock: Clock) -> None:
    flags = Flags()
    assert (flags.strategy, flags.intensity, flags.period_s) == ("one_for_one", 1, 5.0)
    assert (flags.auto_shutdown, flags.backoff) == ("never", None)
    for sup in (await supervise(clock), await supervise(clock, kid(Diary(), "t"), DynamicSupervisor)):
        assert isinstance(sup.actor, Supervisor)
        assert sup.actor.flags == flags


@pytest.mark.spec("otp-11")
async def test_get_childspec_shows_the_defaults(clock: Clock) -> None:
    given = ChildSpec(id="a", start=Kid, args=(Diary(), "a"))
    sup = await supervise(clock, [given])
    assert await get_childspec(sup, "a") == given
    assert (await get_childspec(sup, "a")).shutdown == 5.0


@pytest.mark.spec("otp-12")
def test_an_unknown_field_of_a_child_is_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="child 'a': unknown field 'modules'"):
        spec = ChildSpec.from_mapping({"id": "a", "start": Kid, "modules": [], "restart": "transient"})
    assert spec == ChildSpec(id="a", start=Kid, restart="transient")


@pytest.mark.spec("otp-12")
def test_a_wrong_known_field_beside_an_unknown_one_is_refused_all_the_same() -> None:
    with pytest.warns(UserWarning, match="modules"), pytest.raises(BadSpec) as caught:
        ChildSpec.from_mapping({"id": "a", "start": Kid, "modules": [], "restart": "sometimes"})
    assert caught.value.field == "restart"


@pytest.mark.spec("otp-12")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
async def test_an_unknown_flag_of_a_supervisor_is_ignored_with_a_warning(clock: Clock, kind: type[Supervisor]) -> None:
    children: Any = [] if kind is Supervisor else kid(Diary(), "t")
    with pytest.warns(UserWarning, match="supervisor: unknown field 'colour'"):
        sup = await supervise(clock, children, kind, colour="red", intensity=7)
    assert isinstance(sup.actor, Supervisor)
    assert sup.actor.flags == Flags(intensity=7)


GOOD: dict[str, Any] = {"id": "x", "start": Kid}

WRONG_FIELDS: list[tuple[str, Any]] = [
    ("id", []),
    ("start", None),
    ("start", "Kid"),
    ("start", print),
    ("start", object),
    ("start", Kid()),
    ("start", Actor),
    ("start", Mute),
    ("args", [1, 2]),
    ("args", "ab"),
    ("kwargs", [("a", 1)]),
    ("kwargs", None),
    ("name", ""),
    ("name", 7),
    ("restart", "sometimes"),
    ("restart", None),
    ("restart", []),
    ("shutdown", -10),
    ("shutdown", -0.001),
    ("shutdown", None),
    ("shutdown", True),
    ("shutdown", "5"),
    ("shutdown", math.inf),
    ("shutdown", math.nan),
    ("shutdown", "brutal"),
    ("type", "manager"),
    ("type", None),
    ("significant", "yes"),
    ("significant", 1),
    ("significant", None),
    ("start_timeout_s", 0),
    ("start_timeout_s", -1),
    ("start_timeout_s", "60"),
    ("start_timeout_s", math.inf),
    ("stall_s", 0),
    ("stall_s", -1),
    ("stall_s", True),
    ("stall_s", math.nan),
]


@pytest.mark.spec("otp-13")
@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_each_wrong_field_is_refused_by_its_name_and_its_child(field: str, value: Any) -> None:
    with pytest.raises(BadSpec) as caught:
        ChildSpec(**{**GOOD, field: value})
    wrong = caught.value
    assert wrong.field == field
    assert wrong.child == (value if field == "id" else "x")
    assert str(wrong).startswith(f"child {wrong.child!r}: {field}: ")
    assert wrong.problem in str(wrong)


@pytest.mark.spec("otp-13")
def test_a_missing_id_and_a_missing_start_have_errors_of_their_own() -> None:
    with pytest.raises(BadSpec, match=r"^id: missing"):
        ChildSpec(start=Kid)
    with pytest.raises(BadSpec, match=r"^child 'x': start: missing"):
        ChildSpec(id="x")


@pytest.mark.spec("otp-13")
def test_none_is_an_id_like_any_other() -> None:
    assert ChildSpec(id=None, start=Kid).id is None


ABSENT = object()

MATRIX: dict[str, tuple[list[Any], list[Any]]] = {
    # field: right values, wrong values
    "id": (["x", 3, ("a", 1)], [ABSENT, {}]),
    "start": ([Kid, Supervisor], [ABSENT, Mute, "Kid"]),
    "restart": ([ABSENT, "permanent", "transient", "temporary"], ["sometimes"]),
    "shutdown": ([ABSENT, 0, 2.5, "brutal_kill", "infinity"], [-10, "soon"]),
    "type": ([ABSENT, "worker", "supervisor"], ["manager"]),
    "significant": ([ABSENT, True, False], ["true"]),
}


@pytest.mark.spec("otp-13", "otp-17")
def test_every_combination_of_fields_is_accepted_or_refused_for_a_reason() -> None:
    combinations = list(itertools.product(*(right + wrong for right, wrong in MATRIX.values())))
    assert len(combinations) >= 7_000
    for values in combinations:
        given = {field: value for field, value in zip(MATRIX, values, strict=True) if value is not ABSENT}
        guilty = wrong_among(dict(zip(MATRIX, values, strict=True)))
        made = made_or_wrong(given)
        if isinstance(made, BadSpec):
            assert made.field in guilty, given
        else:
            assert not guilty, given
            assert all(getattr(made, field) == value for field, value in given.items())


def made_or_wrong(given: dict[str, Any]) -> ChildSpec | BadSpec:
    try:
        return ChildSpec(**given)
    except BadSpec as wrong:
        return wrong


def wrong_among(values: dict[str, Any]) -> set[str]:
    """The fields that an error may name, by the table and the one rule about two of them."""
    guilty = {field for field, value in values.items() if any(value is wrong for wrong in MATRIX[field][1])}
    if values["significant"] is True and values["restart"] in (ABSENT, "permanent"):
        guilty.add("significant")
    return guilty


@pytest.mark.spec("otp-14")
async def test_two_children_of_one_id_are_refused_before_any_starts(clock: Clock) -> None:
    diary = Diary()
    runtime = Runtime(clock)
    wrong = await bad_spec(runtime.start(Supervisor, kids(diary, "abca"), name="top"))
    assert (wrong.field, wrong.child) == ("id", "a")
    assert diary.notes == []
    assert runtime.whereis("top") is None


WRONG_FLAGS: list[tuple[str, Any]] = [
    ("strategy", "two_for_one"),
    ("strategy", "simple_one_for_one"),
    ("strategy", None),
    ("intensity", "infinity"),
    ("intensity", math.inf),
    ("intensity", -1),
    ("intensity", 1.5),
    ("intensity", True),
    ("intensity", None),
    ("period_s", 0),
    ("period_s", "infinity"),
    ("period_s", math.inf),
    ("period_s", math.nan),
    ("period_s", -1),
    ("period_s", None),
    ("auto_shutdown", "sometimes"),
    ("auto_shutdown", True),
    ("auto_shutdown", None),
    ("backoff", 3),
    ("backoff", "exponential"),
]


@pytest.mark.spec("otp-15")
@pytest.mark.parametrize(("field", "value"), WRONG_FLAGS)
async def test_a_wrong_flag_is_refused_by_its_name_before_any_child_starts(
    clock: Clock, field: str, value: Any
) -> None:
    diary = Diary()
    runtime = Runtime(clock)
    for kind, children in ((Supervisor, kids(diary, "ab")), (DynamicSupervisor, kid(diary, "t"))):
        wrong = await bad_spec(runtime.start(kind, children, name="top", **{field: value}))
        assert wrong.field == field
        assert runtime.whereis("top") is None
    assert diary.notes == []


@pytest.mark.spec("otp-15")
async def test_a_wrong_flag_of_an_inner_supervisor_is_passed_up_with_its_place(clock: Clock) -> None:
    diary = Diary()
    inner = ChildSpec(id="inner", start=Supervisor, kwargs={"strategy": "two_for_one"})
    failed = await refused_child(supervise(clock, [*kids(diary, "a"), inner]))
    assert failed.id == "inner"
    assert isinstance(failed.reason, BadSpec)
    assert failed.reason.field == "strategy"
    assert diary.lines == [("started", "a"), ("ended", "a")]


@pytest.mark.spec("otp-16")
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_dynamic_supervisor_refuses_a_list_of_templates(clock: Clock, count: int) -> None:
    wrong = await bad_spec(supervise(clock, kids(Diary(), "ab"[:count]), DynamicSupervisor))
    assert wrong.field == "template"


@pytest.mark.spec("otp-16")
async def test_a_dynamic_supervisor_needs_exactly_one_template(clock: Clock) -> None:
    runtime = Runtime(clock)
    diary = Diary()
    assert (await bad_spec(runtime.start(DynamicSupervisor, name="top"))).field == "template"
    with pytest.raises(StartFailed):
        await runtime.start(DynamicSupervisor, kid(diary, "a"), kid(diary, "b"), name="top")
    assert runtime.whereis("top") is None
    sup = await begin(runtime, DynamicSupervisor, kid(diary, "a"), name="top")
    assert await count_children(sup) == Counts(specs=1, active=0, supervisors=0, workers=0)


@pytest.mark.spec("otp-17")
def test_a_significant_permanent_child_is_refused() -> None:
    with pytest.raises(BadSpec) as caught:
        ChildSpec(id="a", start=Kid, significant=True)
    assert (caught.value.field, caught.value.child) == ("significant", "a")


@pytest.mark.spec("otp-17")
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_a_significant_child_needs_a_supervisor_that_shuts_down_by_itself(clock: Clock, restart: str) -> None:
    diary = Diary()
    vital = kid(diary, "v", restart=restart, significant=True)
    wrong = await bad_spec(supervise(clock, [kid(diary, "a"), vital]))
    assert (wrong.field, wrong.child) == ("significant", "v")
    assert diary.notes == []
    sup = await supervise(clock, kids(diary, "a"))
    with pytest.raises(BadSpec) as caught:
        await start_child(sup, vital)
    assert (caught.value.field, caught.value.child) == ("significant", "v")
    assert list(await living(sup)) == ["a"]


@pytest.mark.spec("otp-17")
@pytest.mark.parametrize("auto_shutdown", ["any_significant", "all_significant"])
async def test_a_dynamic_supervisor_does_not_shut_down_by_itself(clock: Clock, auto_shutdown: str) -> None:
    template = kid(Diary(), "t", restart="transient")
    wrong = await bad_spec(supervise(clock, template, DynamicSupervisor, auto_shutdown=auto_shutdown))
    assert wrong.field == "auto_shutdown"


@pytest.mark.spec("otp-17")
async def test_a_dynamic_supervisor_has_no_significant_children(clock: Clock) -> None:
    template = kid(Diary(), "t", restart="transient", significant=True)
    assert (await bad_spec(supervise(clock, template, DynamicSupervisor))).field == "significant"


@pytest.mark.spec("otp-18")
async def test_children_start_in_order_and_are_listed_newest_first(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "bca"))
    await start_child(sup, kid(diary, "e"))
    await start_child(sup, kid(diary, "d"))
    assert diary.ids("started") == list("bcaed")
    listed = await which_children(sup)
    assert [info.id for info in listed] == list("deacb")
    assert [info.ref for info in listed] == [diary.refs(id)[0] for id in "deacb"]


@pytest.mark.spec("otp-18")
async def test_a_stopped_or_restarted_child_keeps_its_place(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "abc"))
    await terminate_child(sup, "a")
    assert [info.id for info in await which_children(sup)] == list("cba")
    await restart_child(sup, "a")
    await end((await living(sup))["b"], "kill")
    assert [info.id for info in await which_children(sup)] == list("cba")


@pytest.mark.spec("otp-18")
async def test_a_deleted_child_that_is_added_again_is_the_newest(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "abc"))
    await terminate_child(sup, "a")
    await delete_child(sup, "a")
    await start_child(sup, kid(diary, "a"))
    assert [info.id for info in await which_children(sup)] == list("acb")


# Names


async def holder_of(runtime: Runtime, name: str) -> Ref:
    return await begin(runtime, Kid, Diary(), "outsider", name=name)


@pytest.mark.spec("otp-19")
async def test_a_name_held_outside_is_refused_by_start_child_and_its_holder_left_alone(clock: Clock) -> None:
    runtime = Runtime(clock)
    outsider = await holder_of(runtime, "taken")
    diary = Diary()
    sup = await begin(runtime, Supervisor, kids(diary, "a"))
    with pytest.raises(NameTaken, match="taken") as caught:
        await start_child(sup, kid(diary, "b", name="taken"))
    assert caught.value.ref is outsider
    assert list(await living(sup)) == ["a"]
    assert await sup.stop(Exit.SHUTDOWN) == Exit.SHUTDOWN
    assert outsider.alive
    assert runtime.whereis("taken") is outsider


@pytest.mark.spec("otp-19")
async def test_a_name_held_outside_is_refused_at_boot_and_its_holder_left_alone(clock: Clock) -> None:
    runtime = Runtime(clock)
    outsider = await holder_of(runtime, "taken")
    diary = Diary()
    failed = await refused_child(runtime.start(Supervisor, [kid(diary, "a"), kid(diary, "b", name="taken")]))
    assert failed.id == "b"
    assert repr(outsider) in str(failed.reason)
    assert diary.lines == [("started", "a"), ("ended", "a")]
    assert outsider.alive
    assert runtime.whereis("taken") is outsider


@pytest.mark.spec("otp-19")
async def test_a_name_taken_while_its_child_was_down_is_not_taken_back(clock: Clock) -> None:
    runtime = Runtime(clock)
    diary = Diary()
    sup = await begin(runtime, Supervisor, [kid(diary, "a", name="wanted")])
    await terminate_child(sup, "a")
    outsider = await holder_of(runtime, "wanted")
    with pytest.raises(NameTaken) as caught:
        await restart_child(sup, "a")
    assert caught.value.ref is outsider
    assert await refs(sup) == {"a": None}
    await outsider.stop()
    restarted = await restart_child(sup, "a")
    assert restarted is not None
    assert runtime.whereis("wanted") is restarted


async def test_two_children_of_one_name_do_not_start_and_leave_the_name_free(clock: Clock) -> None:
    runtime = Runtime(clock)
    diary = Diary()
    failed = await refused_child(runtime.start(Supervisor, kids(diary, "ab", name="same")))
    assert failed.id == "b"
    assert diary.lines == [("started", "a"), ("ended", "a")]
    assert runtime.whereis("same") is None


async def test_a_supervisor_whose_name_is_taken_starts_none_of_its_children(clock: Clock) -> None:
    runtime = Runtime(clock)
    outsider = await holder_of(runtime, "top")
    diary = Diary()
    with pytest.raises(NameTaken, match=r"^the name 'top' is held by") as caught:
        await runtime.start(Supervisor, kids(diary, "ab"), name="top")
    assert caught.value.ref is outsider
    assert diary.notes == []


async def test_the_name_of_a_restarted_child_belongs_to_its_successor(clock: Clock) -> None:
    runtime = Runtime(clock)
    sup = await begin(runtime, Supervisor, [kid(Diary(), "a", name="service")])
    first = runtime.whereis("service")
    assert first is not None
    await end(first, "kill")
    second = (await living(sup))["a"]
    assert runtime.whereis("service") is second is not first


# What a start may tell


@pytest.mark.spec("otp-20")
async def test_start_child_passes_extra_information_to_its_caller(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "info")
    sup = await supervise(clock)
    ref = await start_child(sup, kid(diary, "a"))
    assert ref is not None
    assert ref.info == "extra of a"
    [info] = await which_children(sup)
    assert (info.id, info.ref) == ("a", ref)


@pytest.mark.spec("otp-20")
async def test_a_dynamic_supervisor_passes_extra_information_too(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "info")
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor)
    ref = await start_child(sup, "a")
    assert ref is not None
    assert ref.info == "extra of a"


@pytest.mark.spec("otp-20")
async def test_extra_information_changes_nothing_in_the_life_of_a_child(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "info")
    sup = await supervise(clock, kids(diary, "a"))
    first = (await living(sup))["a"]
    await end(first, "crash")
    second = (await living(sup))["a"]
    assert second is not first
    await terminate_child(sup, "a")
    assert await refs(sup) == {"a": None}
    third = await restart_child(sup, "a")
    assert third is not None
    assert third.info == "extra of a"
    assert await count_children(sup) == Counts(specs=1, active=1, supervisors=0, workers=1)


# Bad input, while a supervisor runs


@pytest.mark.parametrize("wrong", [None, "a", Kid, {"id": "a", "start": Kid}])
async def test_start_child_refuses_what_is_no_child_spec(clock: Clock, wrong: Any) -> None:
    sup = await supervise(clock, kids(Diary(), "a"))
    before = await living(sup)
    with pytest.raises(BadSpec, match="expected one ChildSpec"):
        await start_child(sup, wrong)
    assert await living(sup) == before


@pytest.mark.parametrize("wrong", [None, "a", {"id": "a", "start": Kid}, Kid])
async def test_a_supervisor_refuses_a_child_that_is_no_child_spec(clock: Clock, wrong: Any) -> None:
    diary = Diary()
    found = await bad_spec(supervise(clock, [kid(diary, "a"), wrong]))
    assert found.field == "children"
    assert repr(wrong) in str(found)
    assert diary.notes == []


@pytest.mark.parametrize("wrong", [5, Kid])
async def test_a_supervisor_refuses_children_that_are_no_list(clock: Clock, wrong: Any) -> None:
    assert (await bad_spec(supervise(clock, wrong))).field == "children"


async def test_a_supervisor_refuses_a_lone_child_spec_by_naming_the_field(clock: Clock) -> None:
    assert (await bad_spec(supervise(clock, kid(Diary(), "a")))).field == "children"


@pytest.mark.parametrize("wrong", [Mute, Actor, object, "Kid", None])
async def test_an_actor_class_without_handlers_is_refused(clock: Clock, wrong: Any) -> None:
    runtime = Runtime(clock)
    with pytest.raises(BadSpec) as caught:
        await runtime.start(wrong, name="mute")
    assert caught.value.field == "start"
    assert getattr(wrong, "__name__", repr(wrong)) in str(caught.value)
    assert runtime.whereis("mute") is None


async def test_a_child_whose_arguments_do_not_fit_fails_and_leaves_nothing(clock: Clock) -> None:
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"))
    before = await living(sup)
    with pytest.raises(StartFailed, match="TypeError"):
        await start_child(sup, ChildSpec(id="b", start=Kid))
    assert await living(sup) == before


@pytest.mark.parametrize("key", ["name", "timeout_s", "actor"])
async def test_a_keyword_for_init_may_have_any_name(clock: Clock, key: str) -> None:
    """What a supervisor says to start a child must not get in the way of what the child's init takes."""
    diary = Diary()
    sup = await supervise(clock, kids(diary, "a"))
    ref = await start_child(sup, kid(diary, "b", kwargs={key: "mine"}))
    assert ref is not None
    assert await ref.call(lambda child: child.more) == {key: "mine"}
    assert list(await living(sup)) == ["a", "b"]


@pytest.mark.parametrize("key", ["name", "timeout_s", "actor", "sup", "parent"])
async def test_a_keyword_for_a_dynamic_childs_init_may_have_any_name(clock: Clock, key: str) -> None:
    diary = Diary()
    sup = await supervise(clock, kid(diary, "t", args=(diary,)), DynamicSupervisor)
    ref = await start_child(sup, "a", **{key: "mine"})
    assert ref is not None
    assert await ref.call(lambda child: child.more) == {key: "mine"}
    assert sup.alive


def test_a_keyword_for_init_that_is_no_string_is_refused() -> None:
    with pytest.raises(BadSpec) as caught:
        ChildSpec(id="a", start=Kid, kwargs={1: 2})  # type: ignore[dict-item]
    assert (caught.value.field, caught.value.child) == ("kwargs", "a")


async def test_a_supervisor_may_be_stopped_by_its_own_init(clock: Clock) -> None:
    class Refusing(Supervisor):
        def init(self, *_: Any) -> Any:
            return Stop(Exit.SHUTDOWN("closed today"))

    failed = await started_by_an_actor(Runtime(clock), Refusing)
    assert isinstance(failed, StartFailed)
    assert failed.reason == Exit.SHUTDOWN("closed today")
