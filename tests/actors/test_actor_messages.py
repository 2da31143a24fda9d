"""Messages: their order, their replies, and what becomes of those who wait (otp-80, otp-82)."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.actor import NOREPLY, Actor, Caller, Continue, Stop
from raptor.clock import Clock, VirtualClock
from raptor.errors import ActorDied, CallingSelf, CallTimeout, NoSuchActor
from raptor.exits import Exit, Reason
from raptor.mailbox import BUDGET, LINGER_S
from raptor.ref import KILL_GRACE_S, Ref
from raptor.runtime import Runtime
from tests.actors.kids import Boom, begin

ENDINGS: dict[str, Any] = {
    "error": Boom("in the handler"),
    "recursion": RecursionError(),
    "system exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "generator exit": GeneratorExit(),
    "cancelled": asyncio.CancelledError(),
    "stop iteration": StopIteration(1),
}


class Doer(Actor):
    """Does what it is sent: a function of itself (and of the caller); anything else it writes down."""

    def init(self) -> None:
        self.seen: list[Any] = []
        self.callers: list[Caller] = []

    def handle_call(self, message: Any, caller: Caller) -> Any:
        if callable(message):
            return message(self, caller)
        self.seen.append(message)
        return message

    def handle_cast(self, message: Any) -> Any:
        if callable(message):
            return message(self)
        self.seen.append(message)
        return None

    def handle_info(self, message: Any) -> Any:
        return self.handle_cast(message)

    def handle_continue(self, term: Any) -> Any:
        return self.handle_cast(term)


async def doer(clock: Clock, **options: Any) -> Ref:
    return await begin(Runtime(clock, log=False), Doer, **options)


def state(ref: Ref) -> Doer:
    assert isinstance(ref.actor, Doer)
    return ref.actor


async def waits(me: Doer, caller: Caller | None = None) -> None:
    """A handler that waits for something that never comes."""
    await asyncio.get_running_loop().create_future()


def later(answer: object) -> Callable[..., Any]:
    """An `async` handler with that answer."""

    async def handler(*_: object) -> object:
        await asyncio.sleep(0)
        return answer

    return handler


async def with_task(ref: Ref) -> Ref:
    """An actor whose task lingers: it has just handled something `async`."""
    assert await ref.call(later("warm")) == "warm"
    return ref


def heard(ref: Ref, *names: str) -> list[str]:
    """The names of the events of its node, as they come."""
    names_heard: list[str] = []
    ref.runtime.events.subscribe(lambda event: names_heard.append(event.name), *names)
    return names_heard


# 80: order


@pytest.mark.spec("otp-80")
@settings(max_examples=60, deadline=None)
@given(
    plan=st.lists(
        st.tuples(
            st.sampled_from(["cast", "send", "call"]),
            st.sampled_from(["plain", "async", "waiting"]),
            st.booleans(),
        ),
        max_size=3 * BUDGET,
    )
)
def test_messages_of_one_sender_are_handled_in_the_order_of_sending(plan: list[tuple[str, str, bool]]) -> None:
    """Whatever kind of message, whatever kind of handler, and whether the sender pauses in between or not."""
    clock = VirtualClock()

    async def program() -> None:
        ref = await doer(clock)
        calls = []
        for number, (kind, manner, pause) in enumerate(plan):
            message = numbered(number, manner)
            if kind == "call":
                calls.append(asyncio.create_task(ref.call(message)))
                await asyncio.sleep(0)  # a call is sent by its own task
            else:
                getattr(ref, kind)(message)
            if pause:
                await clock.sleep(number % 3)
        await ref.call("end")
        assert state(ref).seen == [*range(len(plan)), "end"]
        assert all(call.done() for call in calls)

    clock.run(program)


def numbered(number: int, manner: str) -> Callable[..., Any]:
    def plain(me: Doer, caller: Caller | None = None) -> None:
        me.seen.append(number)

    async def at_once(me: Doer, caller: Caller | None = None) -> None:
        me.seen.append(number)

    async def waiting(me: Doer, caller: Caller | None = None) -> None:
        await me.runtime.clock.sleep(0.01)
        me.seen.append(number)

    return {"plain": plain, "async": at_once, "waiting": waiting}[manner]


@pytest.mark.spec("otp-80")
async def test_many_senders_keep_each_their_order(clock: Clock) -> None:
    ref = await doer(clock)

    async def sender(name: int) -> None:
        for number in range(50):
            ref.cast((name, number))
            if number % 7 == name % 7:
                await asyncio.sleep(0)

    await asyncio.gather(*(sender(name) for name in range(20)))
    await ref.call("end")
    assert len(state(ref).seen) == 1_001
    for name in range(20):
        assert [message[1] for message in state(ref).seen[:-1] if message[0] == name] == list(range(50))


@pytest.mark.spec("otp-80")
async def test_one_message_is_handled_at_a_time(clock: Clock) -> None:
    ref = await doer(clock)
    inside: list[int] = []

    async def alone(me: Doer) -> None:
        inside.append(len(me.seen))
        me.seen.append("in")
        await clock.sleep(0.1)
        me.seen.pop()

    for _ in range(20):
        ref.cast(alone)
    await ref.call("end", timeout_s=None)
    assert inside == [0] * 20


async def test_a_thousand_callers_get_each_their_own_answer(clock: Clock) -> None:
    ref = await doer(clock)
    answers = await asyncio.gather(*(ref.call(number) for number in range(1_000)))
    assert answers == list(range(1_000))
    answers = await asyncio.gather(*(ref.call(later(number)) for number in range(1_000)))
    assert answers == list(range(1_000))


# 80: time limits


@pytest.mark.spec("otp-80")
async def test_a_call_that_takes_too_long_raises_at_the_caller_and_its_late_reply_is_dropped(clock: Clock) -> None:
    ref = await doer(clock)

    async def slow(me: Doer, caller: Caller) -> str:
        await clock.sleep(3)
        me.seen.append("handled all the same")
        return "late"

    with pytest.raises(CallTimeout, match="did not answer within 1 s"):
        await ref.call(slow, timeout_s=1)
    assert clock.monotonic() == 1.0
    assert await ref.call("next") == "next", "and not the late reply"
    assert state(ref).seen == ["handled all the same", "next"]


@pytest.mark.spec("otp-80")
async def test_a_call_waits_five_seconds_unless_told_otherwise(clock: Clock) -> None:
    ref = await doer(clock)
    ref.cast(waits)
    with pytest.raises(CallTimeout):
        await ref.call("hello")
    assert clock.monotonic() == 5.0


@pytest.mark.spec("otp-80")
async def test_a_call_without_a_limit_waits_for_as_long_as_it_takes(clock: Clock) -> None:
    ref = await doer(clock)

    async def slow(me: Doer, caller: Caller) -> str:
        await clock.sleep(1_000_000)
        return "at last"

    assert await ref.call(slow, timeout_s=None) == "at last"


@pytest.mark.spec("otp-80")
async def test_late_replies_of_deferred_calls_are_dropped_too_and_only_the_first_counts(clock: Clock) -> None:
    ref = await doer(clock)

    def defer(me: Doer, caller: Caller) -> Any:
        me.callers.append(caller)
        return NOREPLY

    with pytest.raises(CallTimeout):
        await ref.call(defer, timeout_s=1)
    second = asyncio.create_task(ref.call(defer))
    await clock.sleep(0.5)
    for caller in state(ref).callers:
        caller.reply("first")
        caller.reply("second")
        caller.fail(Boom("third"))
    assert await second == "first"


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0, 5.0, None]), st.floats(0, 8), st.sampled_from([0.0, 0.3, 1.1])),
        max_size=12,
    )
)
def test_every_call_is_answered_or_timed_out_just_when_it_should_be(
    calls: list[tuple[float | None, float, float]],
) -> None:
    """Limits of several lengths at once: each caller waits for the shorter of its limit and its answer."""
    clock = VirtualClock()

    async def program() -> None:
        ref = await doer(clock)

        def defer(answer_s: float) -> Callable[[Doer, Caller], Any]:
            def handler(me: Doer, caller: Caller) -> Any:
                asyncio.get_running_loop().call_later(answer_s, caller.reply, "answer")
                return NOREPLY

            return handler

        async def ask(limit_s: float | None, answer_s: float) -> None:
            began = clock.monotonic()
            try:
                assert await ref.call(defer(answer_s), timeout_s=limit_s) == "answer"
                assert clock.monotonic() - began == pytest.approx(answer_s)
                assert limit_s is None or answer_s <= limit_s
            except CallTimeout:
                assert limit_s is not None
                assert clock.monotonic() - began == pytest.approx(limit_s)
                assert answer_s >= limit_s

        asking = []
        for limit_s, answer_s, pause_s in calls:
            asking.append(asyncio.create_task(ask(limit_s, answer_s)))
            await clock.sleep(pause_s)
        await asyncio.gather(*asking)

    clock.run(program)


async def test_a_caller_that_is_cancelled_goes_and_the_actor_does_not_notice(clock: Clock) -> None:
    ref = await doer(clock)

    async def slow(me: Doer, caller: Caller) -> str:
        await clock.sleep(2)
        me.seen.append("handled")
        return "for nobody"

    calling = asyncio.create_task(ref.call(slow))
    await clock.sleep(1)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await ref.call("next") == "next"
    assert state(ref).seen == ["handled", "next"]


# 80: the dead and the dying


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_call_to_a_dead_actor_is_refused_at_once(clock: Clock, killed: bool) -> None:
    ref = await doer(clock)
    if killed:
        ref.kill()
    else:
        await ref.stop()
    with pytest.raises(NoSuchActor):
        await ref.call("hello")
    assert clock.monotonic() == 0.0


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("warm", [False, True])
async def test_a_call_whose_handler_raises_fails_with_the_reason_at_once(
    clock: Clock, is_async: bool, ending: str, warm: bool
) -> None:
    ref = await doer(clock)
    if warm:
        await with_task(ref)
    error = ENDINGS[ending]

    def raises(me: Doer, caller: Caller) -> Any:
        raise error

    async def raises_later(me: Doer, caller: Caller) -> Any:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(ActorDied) as died:
        await ref.call(raises_later if is_async else raises)
    assert clock.monotonic() == 0.0
    assert died.value.reason is ref.reason
    if ending == "stop iteration" and is_async:
        assert isinstance(ref.reason, RuntimeError), "Python's own doing"
    elif ending == "generator exit" and is_async:
        assert ref.reason in (error, Exit.KILLED), "as when the loop closes"
    else:
        assert ref.reason is error


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("reason", [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term"), Exit.FAILED("word")])
async def test_a_call_whose_handler_stops_fails_with_the_reason_unless_it_replies(
    clock: Clock, is_async: bool, reason: Exit
) -> None:
    def answering(answer: object) -> Callable[..., Any]:
        return later(answer) if is_async else lambda *_: answer

    ref = await doer(clock)
    with pytest.raises(ActorDied) as died:
        await ref.call(answering(Stop(reason)))
    assert (died.value.reason, ref.reason) == (reason, reason)
    ref = await doer(clock)
    assert await ref.call(answering(Stop(reason, "farewell"))) == "farewell"
    assert await ref.wait() == reason


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("killed", [False, True])
async def test_everybody_who_waits_is_told_when_the_actor_dies(clock: Clock, killed: bool) -> None:
    """The one in hand, those in the mailbox, and those whose reply was put off."""
    ref = await doer(clock)

    def defer(me: Doer, caller: Caller) -> Any:
        return NOREPLY

    async def dies(me: Doer, caller: Caller) -> None:
        await clock.sleep(2)
        raise Boom

    messages = [defer, defer, dies, "waiting", later("waiting"), defer]
    calls = [asyncio.create_task(ref.call(message, timeout_s=60)) for message in messages]
    await clock.sleep(1)
    if killed:
        ref.kill()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ActorDied] * len(messages)
    assert all(answer.reason is ref.reason for answer in answers)  # type: ignore[union-attr]
    assert clock.monotonic() == (1.0 if killed else 2.0)


async def test_an_error_that_cannot_be_shown_still_ends_its_actor_and_answers_its_caller(clock: Clock) -> None:
    class Unspeakable(Exception):
        def __repr__(self) -> str:
            raise Boom("no repr")

    def raises(me: Doer, caller: Caller) -> Any:
        raise Unspeakable

    ref = await doer(clock, name="it")
    with pytest.raises(ActorDied):
        await ref.call(raises)
    assert not ref.alive
    assert ref.runtime.whereis("it") is None


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_answer_that_cannot_be_shown_ends_its_actor_like_any_wrong_answer(
    clock: Clock, is_async: bool
) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise Boom("no repr")

    ref = await doer(clock)
    ref.cast(later(Unspeakable()) if is_async else lambda _: Unspeakable())
    assert isinstance(await ref.wait(60), BaseException)
    assert clock.monotonic() == 0.0


async def test_an_unexpected_message_that_cannot_be_shown_is_dropped_like_any_other(clock: Clock) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise Boom("no repr")

    class Plain(Actor):
        def handle_call(self, message: object, caller: Caller) -> object:
            return message

    ref = await begin(Runtime(clock, log=False), Plain)
    ref.send(Unspeakable())
    assert await ref.call("still there?") == "still there?"


@pytest.mark.parametrize("answer", ["word", 0, False, NOREPLY, Exit.NORMAL])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_cast_that_is_answered_by_a_value_is_a_mistake_that_ends_the_actor(
    clock: Clock, answer: object, is_async: bool
) -> None:
    ref = await doer(clock)
    ref.cast(later(answer) if is_async else lambda _: answer)
    assert isinstance(await ref.wait(), TypeError)


@pytest.mark.parametrize("kind", ["call", "cast", "continue"])
async def test_a_message_that_an_actor_has_no_handler_for_ends_it_and_says_so(clock: Clock, kind: str) -> None:
    class Deaf(Actor):
        def handle_info(self, message: Any) -> Any:
            return message

    ref = await begin(Runtime(clock, log=False), Deaf)
    if kind == "cast":
        ref.cast("hello")
    elif kind == "continue":
        ref.send(Continue("hello"))
    else:
        with pytest.raises(ActorDied):
            await ref.call("hello")
    reason = await ref.wait()
    assert isinstance(reason, TypeError)
    assert f"has no handle_{kind}" in str(reason)


# 80: to oneself


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("warm", [False, True])
async def test_an_actor_that_calls_itself_is_refused_at_once(clock: Clock, warm: bool) -> None:
    ref = await doer(clock)
    if warm:
        await with_task(ref)

    async def calls_itself(me: Doer, caller: Caller) -> str:
        with pytest.raises(CallingSelf):
            await me.ref.call("hello")
        return "refused"

    assert await ref.call(calls_itself) == "refused"
    assert clock.monotonic() == 0.0
    assert state(ref).seen == []


@pytest.mark.spec("otp-80")
async def test_two_actors_may_call_each_other_in_turn(clock: Clock) -> None:
    one, two = await doer(clock), await doer(clock)

    async def asks_on(me: Doer, caller: Caller) -> Any:
        return await two.call("hello")

    assert await one.call(asks_on) == "hello"
    assert await two.call(later("and back")) == "and back"


# 80: casts


@pytest.mark.spec("otp-80")
@pytest.mark.parametrize("kind", ["cast", "send"])
async def test_a_cast_returns_at_once_whoever_is_there(clock: Clock, kind: str) -> None:
    living, busy, dead = await doer(clock), await doer(clock), await doer(clock)
    busy.cast(waits)
    await dead.stop()
    for ref in (living, busy, dead):
        answer: object = getattr(ref, kind)("hello")
        assert answer is None
    assert (dead.mailbox, living.mailbox, busy.mailbox) == (0, 1, 1)
    assert state(living).seen == [], "handled later, not in the sender's own turn"
    await living.call("end")
    assert state(living).seen == ["hello", "end"]


# 82: long mailboxes


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


class Counted:
    """A message that counts how often anybody looks at it."""

    looks = 0

    def _look(self, *_: object) -> bool:
        Counted.looks += 1
        return False

    __eq__ = __ne__ = __bool__ = _look

    def __hash__(self) -> int:
        return int(self._look())

    def __repr__(self) -> str:
        return str(self._look())


@pytest.mark.spec("otp-82")
async def test_a_call_made_with_a_huge_mailbox_is_as_much_work_as_with_an_empty_one(clock: Clock) -> None:
    """OTP's case: the caller has many messages that wait, and must not look at them to find the reply."""
    server = await doer(clock)
    await server.call("warm")
    counts: list[int] = []

    async def asks(me: Doer, caller: Caller) -> None:
        await asyncio.sleep(0)  # until the mailbox is full
        assert me.ref.mailbox == waiting
        counts.append(await calls_during(lambda: server.call("hello")))
        assert me.ref.mailbox == waiting

    for waiting in (0, 100_000):
        client = await doer(clock)
        asking = asyncio.create_task(client.call(asks, timeout_s=None))
        await asyncio.sleep(0)
        for _ in range(waiting):
            client.cast(Counted())
        Counted.looks = 0
        await asking
        assert Counted.looks == 0
    assert counts[1] <= counts[0] + 5


@pytest.mark.spec("otp-82")
async def test_a_call_among_many_that_wait_elsewhere_is_the_same_work(clock: Clock) -> None:
    """The node's other mailboxes and pending calls do not matter either."""
    server, stuck = await doer(clock), await doer(clock)
    await server.call("warm")
    before = await calls_during(lambda: server.call("hello"))
    stuck.cast(waits)
    pending = [asyncio.create_task(stuck.call(number, timeout_s=5.0)) for number in range(2_000)]
    await clock.sleep(0.001)
    assert stuck.mailbox == 2_000
    assert await calls_during(lambda: server.call("hello")) <= before + 20
    stuck.kill()
    await asyncio.gather(*pending, return_exceptions=True)


@pytest.mark.spec("otp-82")
async def test_the_work_per_message_does_not_grow_with_the_mailbox(clock: Clock) -> None:
    counts: list[int] = []
    for waiting in (1_000, 10_000):
        ref = await doer(clock)
        for number in range(waiting):
            ref.cast(number)
        counts.append(await calls_during(lambda ref=ref: ref.call("end", timeout_s=None)))
    assert counts[1] <= 10.5 * counts[0]


# Kills


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_an_actor_that_kills_itself_in_a_call_is_dead_and_its_caller_told_at_once(
    clock: Clock, is_async: bool, warm: bool
) -> None:
    ref = await doer(clock)
    if warm:
        await with_task(ref)
    abandoned = heard(ref, "abandoned")

    def kills(me: Doer, caller: Caller) -> str:
        me.ref.kill()
        return "done"

    async def kills_later(me: Doer, caller: Caller) -> str:
        await asyncio.sleep(0)
        return kills(me, caller)

    with pytest.raises(ActorDied) as died:
        await ref.call(kills_later if is_async else kills)
    assert died.value.reason == Exit.KILLED
    assert await ref.wait() == Exit.KILLED
    assert (clock.monotonic(), abandoned) == (0.0, [])


@pytest.mark.parametrize("warm", [False, True])
async def test_an_actor_that_killed_itself_handles_nothing_more(clock: Clock, warm: bool) -> None:
    ref = await doer(clock)
    if warm:
        await with_task(ref)
    seen = state(ref).seen
    ref.cast("before")
    ref.cast(lambda me: me.ref.kill())
    ref.cast("after")
    assert await ref.wait() == Exit.KILLED
    assert seen == ["before"]
    assert clock.monotonic() == 0.0


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_a_kill_right_behind_a_message_is_a_kill(clock: Clock, is_async: bool, warm: bool) -> None:
    ref = await doer(clock)
    if warm:
        await with_task(ref)
    abandoned = heard(ref, "abandoned")
    ref.cast(waits if is_async else "plain")
    ref.kill()
    assert await ref.wait() == Exit.KILLED
    assert (clock.monotonic(), abandoned) == (0.0, [])


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("message", [waits, later("answer"), "plain"])
async def test_a_kill_in_any_turn_of_the_loop_ends_the_call_at_once(
    clock: Clock, turns: int, warm: bool, message: Any
) -> None:
    """Before its message is begun, while its task is about to run, in the middle, and after."""
    ref = await doer(clock)
    if warm:
        await with_task(ref)
    abandoned = heard(ref, "abandoned")
    calling = asyncio.create_task(ref.call(message))
    for _ in range(turns):
        await asyncio.sleep(0)
    ref.kill()
    (answer,) = await asyncio.gather(calling, return_exceptions=True)
    assert isinstance(answer, ActorDied | NoSuchActor) or answer in ("answer", "plain")
    assert await ref.wait() == Exit.KILLED
    assert (clock.monotonic(), abandoned) == (0.0, [])


async def test_a_kill_while_others_have_their_turn_forgets_no_caller(clock: Clock) -> None:
    """The last message of a long run fails, its `terminate` is to wait, and the kill comes in between."""

    class Waits(Doer):
        async def terminate(self, reason: Reason) -> None:
            await clock.sleep(1)

    ref = await begin(Runtime(clock, log=False), Waits)

    async def fails(me: Doer, caller: Caller) -> None:
        asyncio.get_running_loop().call_soon(me.ref.kill)
        raise Boom

    async def nothing(me: Doer) -> None:
        pass

    for _ in range(BUDGET - 1):
        ref.cast(nothing)
    with pytest.raises(ActorDied):
        await ref.call(fails)
    assert ref.reason == Exit.KILLED


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_second_kill_changes_nothing(clock: Clock, is_async: bool) -> None:
    ref = await doer(clock)
    if is_async:
        ref.cast(waits)
        await clock.sleep(1)
    for _ in range(3):
        ref.kill()
    assert await ref.wait() == Exit.KILLED
    ref.kill()
    ref.exit()
    assert ref.reason == Exit.KILLED


async def test_a_handler_may_clean_up_when_it_is_killed_but_not_answer(clock: Clock) -> None:
    ref = await doer(clock)
    cleaned: list[float] = []

    async def tidy(me: Doer, caller: Caller) -> str:
        try:
            await waits(me)
        except asyncio.CancelledError:
            await clock.sleep(0.5)
            cleaned.append(clock.monotonic())
        return "an answer after all"

    calling = asyncio.create_task(ref.call(tidy))
    await clock.sleep(1)
    ref.kill()
    with pytest.raises(ActorDied):
        await calling
    assert (cleaned, ref.reason) == ([1.5], Exit.KILLED)


async def test_a_handler_that_swallows_its_cancellation_for_ever_is_abandoned_and_reported(clock: Clock) -> None:
    ref = await doer(clock, name="it")
    over = asyncio.Event()

    async def deaf(me: Doer, caller: Caller) -> str:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass
        return "too late"

    abandoned = heard(ref, "abandoned")
    calling = asyncio.create_task(ref.call(deaf, timeout_s=60))
    waiting = asyncio.create_task(ref.call("waiting", timeout_s=60))
    await clock.sleep(1)
    ref.kill()
    answers = await asyncio.gather(calling, waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ActorDied, ActorDied]
    assert clock.monotonic() == 1 + KILL_GRACE_S
    await clock.sleep(0)
    assert abandoned == ["abandoned"]
    successor = await begin(ref.runtime, Doer, name="it")
    over.set()
    await clock.sleep(60)
    assert ref.reason == Exit.KILLED, "whatever becomes of the handler"
    assert await successor.call("hello") == "hello"


async def test_an_actor_whose_task_somebody_cancels_is_killed(clock: Clock) -> None:
    ref = await doer(clock)

    async def cancelled(me: Doer, caller: Caller) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await waits(me)

    with pytest.raises(ActorDied):
        await ref.call(cancelled)
    assert ref.reason == Exit.KILLED


# What handlers may use


async def test_a_handler_may_use_asyncio_timeout_again_and_again(clock: Clock) -> None:
    ref = await doer(clock)

    async def impatient(me: Doer, caller: Caller) -> str:
        try:
            async with asyncio.timeout(1):
                await waits(me)
        except TimeoutError:
            return "out of patience"
        return "never"

    for number in range(3):
        assert await ref.call(impatient) == "out of patience"
        assert clock.monotonic() == number + 1.0
    assert ref.alive


async def test_a_handler_that_lets_its_timeout_out_fails_by_it(clock: Clock) -> None:
    ref = await doer(clock)

    async def impatient(me: Doer) -> None:
        async with asyncio.timeout(1):
            await waits(me)

    ref.cast(impatient)
    assert isinstance(await ref.wait(), TimeoutError)


async def test_a_handler_may_use_a_task_group(clock: Clock) -> None:
    ref = await doer(clock)

    async def concurrent(me: Doer, caller: Caller) -> list[int]:
        async def work(number: int) -> int:
            await clock.sleep(number)
            return number

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(number)) for number in range(4)]
        return [task.result() for task in tasks]

    assert await ref.call(concurrent) == [0, 1, 2, 3]
    assert clock.monotonic() == 3.0


async def fails() -> None:
    raise Boom


async def group_of(*work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one())


async def test_a_task_group_that_fails_fails_its_actor(clock: Clock) -> None:
    ref = await doer(clock)
    crashes = heard(ref, "crash")
    ref.cast(lambda _: group_of(fails, fails))
    assert isinstance(await ref.wait(), ExceptionGroup)
    await clock.sleep(0)
    assert crashes == ["crash"]


async def test_an_actor_that_outlived_a_failed_task_group_can_still_crash(clock: Clock) -> None:
    """A group that fails leaves marks on the task that it ran in."""
    ref = await doer(clock)

    async def careful(me: Doer, caller: Caller) -> str:
        try:
            await group_of(fails)
        except ExceptionGroup:
            return "mended"
        return "never"

    async def crashes(me: Doer) -> None:
        raise Boom

    assert await ref.call(careful) == "mended"
    ref.cast(crashes)
    assert isinstance(await ref.wait(), Boom)


async def test_a_kill_ends_a_task_group_with_all_its_tasks(clock: Clock) -> None:
    ended: list[str] = []

    async def tidy() -> None:
        try:
            await clock.sleep(3_600)
        finally:
            ended.append("cancelled")

    ref = await doer(clock)
    ref.cast(lambda _: group_of(tidy, tidy))
    await clock.sleep(1)
    ref.kill()
    assert await ref.wait() == Exit.KILLED
    assert ended == ["cancelled"] * 2
    assert clock.monotonic() == 1.0


# Fairness


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_actor_that_casts_to_itself_for_ever_starves_nobody(clock: Clock, is_async: bool) -> None:
    greedy, other = await doer(clock), await doer(clock)

    def again(me: Doer) -> None:
        me.ref.cast(again)

    async def again_later(me: Doer) -> None:
        me.ref.cast(again_later)

    greedy.cast(again_later if is_async else again)
    for number in range(100):
        assert await other.call(number, timeout_s=None) == number
    assert await greedy.call("hello", timeout_s=None) == "hello"
    greedy.kill()
    assert await greedy.wait() == Exit.KILLED


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_actor_that_continues_for_ever_starves_nobody(clock: Clock, is_async: bool) -> None:
    greedy, other = await doer(clock), await doer(clock)

    def again(me: Doer) -> Continue:
        return Continue(again)

    async def again_later(me: Doer) -> Continue:
        return Continue(again_later)

    greedy.cast(again_later if is_async else again)
    for number in range(100):
        assert await other.call(number, timeout_s=None) == number
    greedy.kill()
    assert await greedy.wait() == Exit.KILLED


async def test_an_actor_that_waits_in_a_message_holds_up_nobody_else(clock: Clock) -> None:
    stuck, other = await doer(clock), await doer(clock)
    stuck.cast(waits)
    assert await other.call("hello") == "hello"
    assert clock.monotonic() == 0.0
    stuck.kill()


# Context

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["cast", "send", "call"])
async def test_a_handler_does_not_see_the_context_of_the_sender(clock: Clock, is_async: bool, kind: str) -> None:
    ref = await doer(clock)
    seen: list[str] = []

    def looks(me: Doer, caller: Caller | None = None) -> None:
        seen.append(WHO.get())

    async def looks_later(me: Doer, caller: Caller | None = None) -> None:
        looks(me)

    token = WHO.set("the sender")
    for _ in range(2):  # without a task, and with one
        answer = getattr(ref, kind)(looks_later if is_async else looks)
        if answer is not None:
            await answer
        await ref.call("end")
    WHO.reset(token)
    assert seen == ["nobody", "nobody"]


# Tasks


async def test_a_task_lingers_for_a_moment_and_goes(clock: Clock) -> None:
    before = len(asyncio.all_tasks())
    ref = await doer(clock)
    await ref.call("plain")
    assert len(asyncio.all_tasks()) == before, "a plain handler needs none"
    await with_task(ref)
    assert len(asyncio.all_tasks()) == before + 1
    for _ in range(20):  # busy enough to keep it
        await clock.sleep(LINGER_S / 4)
        await ref.call("plain")
        assert len(asyncio.all_tasks()) == before + 1
    await clock.sleep(2 * LINGER_S)
    assert len(asyncio.all_tasks()) == before
    await with_task(ref)
    ref.kill()
    await clock.sleep(0)
    assert len(asyncio.all_tasks()) == before, "a dead actor has none"


@pytest.mark.parametrize("pause_s", [LINGER_S / 2, LINGER_S, 1.5 * LINGER_S])
async def test_no_message_is_lost_around_the_end_of_a_lingering_task(clock: Clock, pause_s: float) -> None:
    ref = await doer(clock)
    for number in range(50):
        assert await ref.call(later(number)) == number
        await clock.sleep(pause_s + (number % 5 - 2) * 1e-9)
        ref.cast(number)
    await ref.call("end")
    assert state(ref).seen == [*range(50), "end"]
