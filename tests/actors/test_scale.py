"""Work that grows no faster than the tree (otp-77), and arguments that are let go (otp-78)."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest

from raptor.clock import Clock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import StartFailed
from raptor.exits import Exit
from raptor.mailbox import LINGER_S
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, get_childspec, start_child
from tests.actors.kids import STRATEGIES, Diary, Kid, begin, end, kid, living, supervise


async def calls_during(work: Callable[[], Awaitable[object]]) -> int:
    """How many Python functions were called: work counted, not timed."""
    count = 0

    def counting(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counting)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return count


class Silent(Kid):
    """Writes nothing down, so that the count is the engine's own."""

    def init(self) -> None:  # type: ignore[override]
        pass

    def terminate(self, reason: object) -> None:
        pass


class SilentWaiter(Silent):
    """The same with a `terminate` that waits for a turn of the loop."""

    async def terminate(self, reason: object) -> None:  # type: ignore[override]
        await asyncio.sleep(0)


async def of_size(clock: Clock, kind: type[Supervisor], actor: type[Silent], size: int) -> Ref:
    if kind is Supervisor:
        return await supervise(clock, [kid(Diary(), number, start=actor, args=()) for number in range(size)])
    sup = await supervise(clock, kid(Diary(), "t", start=actor, args=()), kind)
    for _ in range(size):
        await start_child(sup)
    return sup


@pytest.mark.spec("otp-77")
@pytest.mark.parametrize("kind", [Supervisor, DynamicSupervisor])
@pytest.mark.parametrize("actor", [Silent, SilentWaiter])
async def test_stopping_ten_times_the_children_is_ten_times_the_work(
    clock: Clock, kind: type[Supervisor], actor: type[Silent]
) -> None:
    few, many = await of_size(clock, kind, actor, 300), await of_size(clock, kind, actor, 3_000)
    small, large = await calls_during(few.stop), await calls_during(many.stop)
    assert large <= 12 * small


@pytest.mark.spec("otp-77")
async def test_ten_thousand_children_stop_at_about_the_cost_each_of_a_thousand(clock: Clock) -> None:
    few = await of_size(clock, DynamicSupervisor, Silent, 1_000)
    many = await of_size(clock, DynamicSupervisor, Silent, 10_000)
    small, large = await calls_during(few.stop), await calls_during(many.stop)
    assert large <= 12 * small
    assert many.reason == Exit.NORMAL


@pytest.mark.parametrize("ending", ["crash", "kill"])
async def test_a_restart_costs_the_same_among_few_and_among_many(clock: Clock, ending: str) -> None:
    counts: list[int] = []
    for size in (10, 1_000):
        sup = await of_size(clock, DynamicSupervisor, Silent, size)
        child = next(iter(sup.actor.children.values())).ref  # type: ignore[union-attr]
        counts.append(await calls_during(lambda child=child: end(child, ending)))
        assert sup.alive
    assert counts[1] <= 1.2 * counts[0]


# 78: arguments

LINGERED_S = 2 * LINGER_S
"""After so long, the task of an actor that has nothing to do is gone, and the last message with it."""


class Luggage:
    """An argument worth freeing."""


def travels_with(diary: Diary, restart: str) -> tuple[object, object]:
    """A spec with luggage in its args and its kwargs."""
    args, kwargs = Luggage(), Luggage()
    spec = kid(diary, "t", start=Forgetful, args=(args,), kwargs={"more": kwargs}, restart=restart)
    return spec, [weakref.ref(args), weakref.ref(kwargs)]


class Forgetful(Kid):
    """Keeps none of its arguments."""

    def init(self, *args: object, **kwargs: object) -> None:  # type: ignore[override]
        self.diary, self.id = Diary(), "t"


def alive(luggage: object) -> list[bool]:
    gc.collect()
    assert isinstance(luggage, list)
    return [item() is not None for item in luggage]


@pytest.mark.spec("otp-78")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("restart", "kept"), [("temporary", False), ("transient", True), ("permanent", True)])
async def test_the_arguments_of_a_temporary_child_are_not_kept(
    clock: Clock, strategy: str, restart: str, kept: bool
) -> None:
    """The other types show that the test would see it."""
    sup = await supervise(clock, strategy=strategy)
    spec, luggage = travels_with(Diary(), restart)
    await start_child(sup, spec)
    del spec
    await clock.sleep(LINGERED_S)
    assert alive(luggage) == [kept, kept]
    left = await get_childspec(sup, "t")
    assert (bool(left.args), bool(left.kwargs)) == (kept, kept)
    assert len(await living(sup)) == 1


@pytest.mark.spec("otp-78")
@pytest.mark.parametrize(("restart", "kept"), [("temporary", False), ("transient", True), ("permanent", True)])
async def test_the_arguments_of_a_dynamic_temporary_child_are_not_kept(clock: Clock, restart: str, kept: bool) -> None:
    sup = await supervise(clock, kid(Diary(), "t", start=Forgetful, args=(), restart=restart), DynamicSupervisor)
    argument, keyword = Luggage(), Luggage()
    luggage = [weakref.ref(argument), weakref.ref(keyword)]
    child = await start_child(sup, argument, more=keyword)
    del argument, keyword
    await clock.sleep(LINGERED_S)
    assert alive(luggage) == [kept, kept]
    assert child is not None
    assert child.alive


@pytest.mark.spec("otp-78")
async def test_the_arguments_of_a_child_that_did_not_start_are_not_kept(clock: Clock) -> None:
    sup = await supervise(clock)
    argument = Luggage()
    luggage = [weakref.ref(argument)]
    spec = kid(Diary(), "t", start=Refuses, args=(argument,))
    del argument
    assert "no room" in await error_of(start_child(sup, spec))
    del spec
    await clock.sleep(LINGERED_S)
    assert alive(luggage) == [False]


async def error_of(work: Awaitable[object]) -> str:
    """The text of what it raises, without its traceback: that keeps every local alive."""
    with pytest.raises(StartFailed) as failed:
        await work
    return str(failed.value)


class Refuses(Forgetful):
    def init(self, *args: object, **kwargs: object) -> None:
        raise ValueError("no room")


# Idle actors


async def test_idle_actors_have_no_task_and_leave_none_behind(clock: Clock) -> None:
    class Worker(Silent):
        async def handle_call(self, message: object, caller: object) -> object:
            await asyncio.sleep(0)
            return message

    before = asyncio.all_tasks()
    runtime = Runtime(clock, log=False)
    refs = [await begin(runtime, Worker, name=f"worker {number}") for number in range(1_000)]
    assert asyncio.all_tasks() == before, "nothing has been sent yet"
    for ref in refs:
        await ref.call("work")
    assert len(asyncio.all_tasks()) > len(before)
    await clock.sleep(LINGERED_S)
    assert asyncio.all_tasks() == before, "they have lingered in vain"
    assert await refs[7].call("still there?") == "still there?"
    for ref in refs:
        await ref.stop()
    assert [runtime.whereis(f"worker {number}") for number in (0, 999)] == [None, None]
    await clock.sleep(LINGERED_S)
    assert asyncio.all_tasks() == before


async def test_an_ended_actor_is_freed_with_its_state(clock: Clock) -> None:
    runtime = Runtime(clock, log=False)
    luggage: list[weakref.ref[Luggage]] = []

    class Carrier(Silent):
        def init(self) -> None:
            self.load = Luggage()
            luggage.append(weakref.ref(self.load))

    ref = await begin(runtime, Carrier, name="carrier")
    await ref.stop()
    assert alive(luggage) == [False], "even while somebody still has its ref"
