"""How actors start, and how they do not (otp-79)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any

import pytest

from raptor.actor import IGNORE, NOREPLY, TIMEOUT, Actor, Caller, Continue, Info, Stop, Timeout
from raptor.childspec import ChildSpec
from raptor.clock import Clock, VirtualClock
from raptor.errors import ActorDied, BadSpec, CallingSelf, NameTaken, NoSuchActor, StartFailed
from raptor.exits import Exit
from raptor.ref import KILL_GRACE_S, Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, start_child
from tests.actors.kids import Boom, Diary, Kid, begin, kid, living, supervise

TIMES = 5
"""OTP's suite tries each way not to start five times in a row: the name must be free each time."""


class Starter(Actor):
    """Starts by doing what it is given: a function of itself, whose answer is init's."""

    def init(self, how: Callable[[Starter], Any] = lambda _: None) -> Any:
        self.seen: list[object] = []
        return how(self)

    def handle_call(self, message: object, caller: Caller) -> Any:
        self.seen.append(message)
        return list(self.seen)

    def handle_cast(self, message: Any) -> Any:
        self.seen.append(message)
        return message(self) if callable(message) else None

    def handle_info(self, message: object) -> None:
        self.seen.append(message)

    def handle_continue(self, term: object) -> None:
        self.seen.append(term)


def plainly(answer: object) -> Callable[[Starter], object]:
    """An init that answers so at once."""
    return lambda _: answer


def in_time(answer: object) -> Callable[[Starter], object]:
    """An `async` init that answers so after a while."""

    async def init(starter: Starter) -> object:
        await starter.runtime.clock.sleep(1)
        return answer

    return init


def raising(error: BaseException) -> Callable[[Starter], object]:
    def init(_: Starter) -> object:
        raise error

    return init


def raising_in_time(error: BaseException) -> Callable[[Starter], object]:
    async def init(starter: Starter) -> object:
        await starter.runtime.clock.sleep(1)
        raise error

    return init


async def fails(runtime: Runtime, how: Callable[[Starter], Any], **options: Any) -> Any:
    """The reason of a start that must fail, and leave nothing behind."""
    with pytest.raises(StartFailed) as failed:
        await runtime.start(Starter, how, name="it", **options)
    assert runtime.whereis("it") is None
    return failed.value.reason


# 79: synchronous, and five times in a row


@pytest.mark.spec("otp-79")
@pytest.mark.parametrize("way", [plainly, in_time])
async def test_a_start_returns_when_init_is_done(clock: Clock, way: Any) -> None:
    ref = await begin(Runtime(clock), Starter, way(None), name="it")
    assert clock.monotonic() == (1.0 if way is in_time else 0.0)
    assert await ref.call("hello") == ["hello"]
    assert ref.runtime.whereis("it") is ref


@pytest.mark.spec("otp-79")
@pytest.mark.parametrize("way", [plainly, in_time])
@pytest.mark.parametrize("reason", [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term"), "stopped", Boom("stopped")])
async def test_an_init_that_stops_fails_with_its_reason_each_time(clock: Clock, way: Any, reason: object) -> None:
    runtime = Runtime(clock)
    for _ in range(TIMES):
        found = await fails(runtime, way(Stop(reason)))
        assert found == (Exit.FAILED("stopped") if reason == "stopped" else reason)


@pytest.mark.spec("otp-79")
@pytest.mark.parametrize("way", [plainly, in_time])
async def test_an_init_that_ignores_is_no_error_each_time(clock: Clock, way: Any) -> None:
    runtime = Runtime(clock)
    for _ in range(TIMES):
        assert await runtime.start(Starter, way(IGNORE), name="it") is None
        assert runtime.whereis("it") is None


@pytest.mark.spec("otp-79")
@pytest.mark.parametrize("way", [plainly, in_time])
@pytest.mark.parametrize("answer", ["nonsense", 0, False, NOREPLY, TIMEOUT, Exit.NORMAL, (None,), {}])
async def test_an_init_with_a_bad_return_fails_each_time(clock: Clock, way: Any, answer: object) -> None:
    runtime = Runtime(clock)
    for _ in range(TIMES):
        assert await fails(runtime, way(answer)) == Exit.FAILED(("bad_return", answer))


@pytest.mark.spec("otp-79")
@pytest.mark.parametrize("way", [raising, raising_in_time])
@pytest.mark.parametrize("error", [Boom("in init"), RecursionError(), MemoryError(), TimeoutError(), BaseException()])
async def test_an_init_that_raises_fails_with_its_error_each_time(clock: Clock, way: Any, error: BaseException) -> None:
    runtime = Runtime(clock)
    for _ in range(TIMES):
        with pytest.raises(StartFailed) as failed:
            await runtime.start(Starter, way(error), name="it")
        assert failed.value.reason is error
        assert failed.value.__cause__ is error
        assert runtime.whereis("it") is None


@pytest.mark.spec("otp-79")
async def test_an_init_that_takes_too_long_fails_each_time(clock: Clock) -> None:
    runtime = Runtime(clock)
    for number in range(TIMES):
        assert isinstance(await fails(runtime, in_time(None), timeout_s=0.5), TimeoutError)
        assert clock.monotonic() == 0.5 * (number + 1)


@pytest.mark.spec("otp-79")
async def test_an_init_that_takes_just_long_enough_starts(clock: Clock) -> None:
    assert (await begin(Runtime(clock), Starter, in_time(None), timeout_s=1.5)).alive


@pytest.mark.spec("otp-79")
async def test_after_every_failure_the_name_can_be_taken(clock: Clock) -> None:
    runtime = Runtime(clock)
    for how in (plainly(Stop("no")), plainly(IGNORE), plainly("nonsense"), raising(Boom()), in_time(None)):
        with contextlib.suppress(StartFailed):
            assert await runtime.start(Starter, how, name="it", timeout_s=0.5) is None
        assert await (await begin(runtime, Starter, name="it")).stop() == Exit.NORMAL


@pytest.mark.spec("otp-79")
async def test_a_failed_start_does_not_end_the_one_who_started_it(clock: Clock) -> None:
    diary = Diary()
    parent = await begin(Runtime(clock), Kid, diary, "parent")

    async def tries(me: Kid) -> str:
        for how in (plainly(Stop("no")), plainly(IGNORE), plainly("nonsense"), raising(Boom()), in_time(None)):
            try:
                await me.start_link(Starter, how, timeout_s=0.5)
            except StartFailed:
                pass
        return "unharmed"

    assert await parent.call(tries) == "unharmed"
    assert await parent.call("hello") == ("parent",)


# More ways to raise


@pytest.mark.parametrize("way", [raising, raising_in_time])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_an_init_that_raises_what_ends_programs_only_fails_to_start(way: Any, error: type[BaseException]) -> None:
    clock = VirtualClock()

    async def program() -> bool:
        runtime = Runtime(clock, log=False)
        await fails(runtime, way(error()))
        return (await begin(runtime, Starter, name="it")).alive

    try:
        assert clock.run(program)
    except (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError) as escaped:
        pytest.fail(f"{escaped!r} got out of the actor and ended the program")


@pytest.mark.parametrize("way", [raising, raising_in_time])
async def test_an_init_that_raises_stop_iteration_fails(clock: Clock, way: Any) -> None:
    assert isinstance(await fails(Runtime(clock), way(StopIteration(1))), StopIteration | RuntimeError)


async def test_an_init_with_an_answer_that_cannot_be_shown_fails_like_any_other(clock: Clock) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise Boom("no repr")

    await fails(Runtime(clock), plainly(Unspeakable()))


async def test_a_constructor_that_raises_fails_the_start(clock: Clock) -> None:
    class Broken(Starter):
        def __init__(self) -> None:
            raise Boom("in __init__")

    runtime = Runtime(clock)
    with pytest.raises(StartFailed, match="in __init__"):
        await runtime.start(Broken, name="it")
    assert runtime.whereis("it") is None


@pytest.mark.parametrize("nonsense", [None, object, 5, "Starter", Starter(), Actor])
async def test_what_is_no_actor_class_or_handles_nothing_is_refused(clock: Clock, nonsense: Any) -> None:
    with pytest.raises(BadSpec, match="start"):
        await Runtime(clock).start(nonsense)


# Names


async def test_a_name_that_is_taken_fails_and_says_who_has_it(clock: Clock) -> None:
    runtime = Runtime(clock)
    holder = await begin(runtime, Starter, name="it")
    with pytest.raises(NameTaken) as taken:
        await runtime.start(Starter, name="it")
    assert taken.value.ref is holder
    assert runtime.whereis("it") is holder


async def test_a_name_is_taken_from_the_beginning_of_init(clock: Clock) -> None:
    runtime = Runtime(clock)
    starting = asyncio.create_task(runtime.start(Starter, in_time(None), name="it"))
    await asyncio.sleep(0)
    with pytest.raises(NameTaken):
        await runtime.start(Starter, name="it")
    assert await starting is runtime.whereis("it")


async def test_a_name_is_free_when_its_holders_end_is_known(clock: Clock) -> None:
    runtime = Runtime(clock)
    for _ in range(TIMES):
        ref = await begin(runtime, Starter, name="it")
        ref.kill()
        assert runtime.whereis("it") is None


async def test_two_nodes_do_not_share_names(clock: Clock) -> None:
    one, two = Runtime(clock), Runtime(clock)
    first, second = await begin(one, Starter, name="it"), await begin(two, Starter, name="it")
    assert (one.whereis("it"), two.whereis("it")) == (first, second)
    await first.stop()
    assert (one.whereis("it"), two.whereis("it")) == (None, second)


# Messages that come while init runs


async def test_a_call_to_an_actor_in_init_waits_and_messages_keep_their_order(clock: Clock) -> None:
    runtime = Runtime(clock)
    starting = asyncio.create_task(runtime.start(Starter, in_time(None), name="it"))
    await asyncio.sleep(0)
    ref = runtime.whereis("it")
    assert ref is not None
    ref.cast("first")
    assert await ref.call("second") == ["first", "second"]
    assert clock.monotonic() == 1.0
    assert await starting is ref


@pytest.mark.parametrize("how", [in_time(Stop("no")), in_time(IGNORE), raising_in_time(Boom())])
async def test_a_call_to_an_actor_that_does_not_start_is_told_so(clock: Clock, how: Any) -> None:
    runtime = Runtime(clock)
    starting = asyncio.create_task(runtime.start(Starter, how, name="it"))
    await asyncio.sleep(0)
    ref = runtime.whereis("it")
    assert ref is not None
    with pytest.raises(ActorDied):
        await ref.call("hello", timeout_s=60)
    assert clock.monotonic() == 1.0
    await asyncio.gather(starting, return_exceptions=True)


async def test_an_init_that_sends_to_itself_gets_it_as_its_first_message(clock: Clock) -> None:
    def init(me: Starter) -> None:
        me.ref.cast("one")
        me.ref.send("two")

    assert await (await begin(Runtime(clock), Starter, init)).call("three") == ["one", "two", "three"]


async def test_an_async_init_that_sends_to_itself_gets_it_as_its_first_message(clock: Clock) -> None:
    async def init(me: Starter) -> Continue:
        me.ref.cast("one")
        await asyncio.sleep(0)
        me.ref.send("two")
        return Continue("zero")

    assert await (await begin(Runtime(clock), Starter, init)).call("three") == ["zero", "one", "two", "three"]


async def test_an_init_that_calls_itself_is_refused(clock: Clock) -> None:
    async def init(me: Starter) -> None:
        await me.ref.call("hello")

    assert isinstance(await fails(Runtime(clock), init), CallingSelf)


async def test_a_start_may_tell_the_starter_something(clock: Clock) -> None:
    ref = await begin(Runtime(clock), Starter, plainly(Info({"port": 80})))
    assert ref.info == {"port": 80}


async def test_a_start_may_ask_for_a_timeout(clock: Clock) -> None:
    ref = await begin(Runtime(clock), Starter, plainly(Timeout(3)))
    await clock.sleep(4)
    assert await ref.call("hello") == [TIMEOUT, "hello"]


# Kills


async def test_an_actor_killed_in_its_init_does_not_start(clock: Clock) -> None:
    runtime = Runtime(clock)
    starting = asyncio.create_task(runtime.start(Starter, in_time(None), name="it"))
    await clock.sleep(0.5)
    ref = runtime.whereis("it")
    assert ref is not None
    waiting = asyncio.create_task(ref.call("hello"))
    await asyncio.sleep(0)
    ref.kill()
    ref.kill()
    with pytest.raises(StartFailed) as failed:
        await starting
    with pytest.raises(ActorDied):
        await waiting
    assert failed.value.reason == Exit.KILLED
    assert (ref.reason, runtime.whereis("it"), clock.monotonic()) == (Exit.KILLED, None, 0.5)


async def test_an_actor_that_kills_itself_in_a_plain_init_does_not_start(clock: Clock) -> None:
    await fails(Runtime(clock), lambda me: me.ref.kill())


async def test_an_actor_that_asks_itself_to_end_in_a_plain_init_ends_after_it(clock: Clock) -> None:
    ref = await begin(Runtime(clock), Starter, lambda me: me.ref.exit())
    assert await ref.wait() == Exit.SHUTDOWN


async def test_an_actor_that_kills_itself_in_an_async_init_does_not_start(clock: Clock) -> None:
    async def init(me: Starter) -> None:
        me.ref.kill()

    assert await fails(Runtime(clock), init) == Exit.KILLED


async def test_an_init_that_ignores_its_time_limit_is_abandoned_and_reported(clock: Clock) -> None:
    over = asyncio.Event()

    async def deaf(me: Starter) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass

    runtime = Runtime(clock, log=False)
    events: list[object] = []
    runtime.events.subscribe(events.append, "abandoned")
    assert isinstance(await fails(runtime, deaf, timeout_s=2), TimeoutError)
    assert clock.monotonic() == 2 + KILL_GRACE_S
    await clock.sleep(0)
    assert len(events) == 1
    over.set()


async def test_a_starter_that_is_cancelled_takes_the_start_with_it(clock: Clock) -> None:
    runtime = Runtime(clock)
    cancelled: list[bool] = []

    async def init(me: Starter) -> None:
        try:
            await clock.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    starting = asyncio.create_task(runtime.start(Starter, init, name="it"))
    await clock.sleep(1)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await clock.sleep(1)
    assert (cancelled, runtime.whereis("it")) == ([True], None)


async def test_nothing_starts_under_a_parent_that_has_ended(clock: Clock) -> None:
    runtime = Runtime(clock)
    parent = await begin(runtime, Starter)
    await parent.stop()
    with pytest.raises(NoSuchActor):
        await runtime.spawn(Starter, (), {}, name="it", parent=parent)
    assert runtime.whereis("it") is None


async def test_a_supervisor_killed_while_a_child_of_its_is_in_init_takes_it_along(clock: Clock) -> None:
    diary = Diary()
    diary.will("a", "hang")
    sup = await supervise(clock)
    starting = asyncio.create_task(start_child(sup, kid(diary, "a", name="a", start_timeout_s=None)))
    await diary.written("refused", "a")
    child: Ref = diary.notes[0].ref
    await clock.sleep(1)
    sup.kill()
    with pytest.raises(ActorDied):
        await starting
    assert (await sup.wait(), child.reason, sup.runtime.whereis("a")) == (Exit.KILLED, Exit.KILLED, None)


async def test_a_child_that_hangs_in_its_init_fails_its_supervisors_start_in_time(clock: Clock) -> None:
    diary = Diary()
    diary.will("b", "hang")
    with pytest.raises(StartFailed, match="init took longer than 7"):
        await supervise(clock, [kid(diary, "a"), kid(diary, "b", start_timeout_s=7)])
    assert clock.monotonic() == 7.0
    assert diary.ids("ended") == ["a"]


async def test_thousands_of_actors_start_and_answer(clock: Clock) -> None:
    runtime = Runtime(clock)
    refs = [await begin(runtime, Starter) for _ in range(20_000)]
    assert await refs[-1].call("hello") == ["hello"]
    assert len({ref.number for ref in refs}) == len(refs)


# Context

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_an_init_sets_in_its_context_stays_there(clock: Clock, is_async: bool) -> None:
    def init(_: Starter) -> None:
        WHO.set("the actor")

    async def init_in_time(_: Starter) -> None:
        WHO.set("the actor")

    await begin(Runtime(clock), Starter, init_in_time if is_async else init)
    assert WHO.get() == "nobody"


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_init_does_not_see_the_context_of_its_starter(clock: Clock, is_async: bool) -> None:
    runtime = Runtime(clock)
    seen: list[str] = []

    def init(_: Starter) -> None:
        seen.append(WHO.get())

    async def init_in_time(_: Starter) -> None:
        seen.append(WHO.get())

    token = WHO.set("the starter")
    await begin(runtime, Starter, init_in_time if is_async else init)
    WHO.reset(token)
    assert seen == ["nobody"]


async def test_a_supervisor_outlives_a_child_whose_restart_raises_what_ends_programs(clock: Clock) -> None:
    class Fatal(Kid):
        def init(self, diary: Diary, id: str) -> Any:  # type: ignore[override]
            super().init(diary, id)
            if len(diary.refs(id)) == 2:
                raise asyncio.CancelledError
            return None

    diary = Diary()
    sup = await supervise(clock, [kid(diary, "a", start=Fatal)], Supervisor, intensity=5)
    (await living(sup))["a"].cast(Boom())
    await diary.written("started", "a", times=2)
    await clock.sleep(1)
    assert sup.alive
    assert len(await living(sup)) == 1


async def test_a_killed_supervisor_is_dead_when_the_init_that_it_waited_for_is(clock: Clock) -> None:
    """A successor must not meet a child of its predecessor, not even one that never began."""
    ended: list[float] = []

    class Slow(Kid):
        async def init(self) -> None:  # type: ignore[override]
            try:
                await clock.sleep(3_600)
            finally:
                await clock.sleep(0.5)
                ended.append(clock.monotonic())

    runtime = Runtime(clock)
    starting = asyncio.create_task(runtime.start(Supervisor, [ChildSpec(id="a", start=Slow)], name="top"))
    await clock.sleep(1)
    top = runtime.whereis("top")
    assert top is not None
    top.kill()
    await clock.sleep(0.1)
    assert runtime.whereis("top") is top
    await asyncio.gather(starting, return_exceptions=True)
    assert await top.wait() == Exit.KILLED
    assert ended == [1.5]
    assert clock.monotonic() == 1.5
