"""Continue, timeouts, `terminate` and crash reports (otp-81)."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from raptor.actor import TIMEOUT, Actor, Caller, Continue, Stop, Timeout
from raptor.clock import Clock
from raptor.errors import ActorDied, CallTimeout, NoSuchActor
from raptor.events import Event
from raptor.exits import Exit, Reason
from raptor.mailbox import BUDGET
from raptor.ref import Ref
from raptor.runtime import Runtime
from tests.actors.kids import Boom, begin

SECRET = "hunter2"
REASONS = [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term"), Exit.FAILED("word"), Boom("an error")]
RAISED = ("raise", Boom("an error"))


class Ender(Actor):
    """Does what it is sent, and writes down what comes; how it terminates and redacts is set from outside."""

    def init(self, first: Any = None) -> Any:
        self.seen: list[Any] = []
        self.ends: list[Reason] = []
        self.ending: Callable[[Ender], Any] = lambda _: None
        return first

    def handle_call(self, message: Any, caller: Caller) -> Any:
        return message(self) if callable(message) else self._write(message) or message

    def handle_cast(self, message: Any) -> Any:
        return message(self) if callable(message) else self._write(message)

    def handle_info(self, message: Any) -> Any:
        return self.handle_cast(message)

    def handle_continue(self, term: Any) -> Any:
        return self.handle_cast(term)

    def terminate(self, reason: Reason) -> Any:
        self.ends.append(reason)
        return self.ending(self)

    def _write(self, message: Any) -> None:
        self.seen.append(message)


class Child(Ender):
    """An Ender that outlives nobody, trapping exits or not."""

    trap_exit = True


async def ender(clock: Clock, kind: type[Ender] = Ender, **options: Any) -> tuple[Ref, Ender]:
    ref = await begin(Runtime(clock, log=False), kind, **options)
    assert isinstance(ref.actor, Ender)
    return ref, ref.actor


def answering(answer: object, is_async: bool) -> Callable[[Ender], Any]:
    async def later(_: Ender) -> object:
        await asyncio.sleep(0)
        return answer

    return later if is_async else lambda _: answer


def raising(error: BaseException) -> Callable[[Ender], Any]:
    def handler(_: Ender) -> Any:
        raise error

    return handler


async def waits(_: Ender) -> None:
    await asyncio.get_running_loop().create_future()


def crashes_of(ref: Ref) -> list[Mapping[str, object]]:
    crashes: list[Mapping[str, object]] = []
    ref.runtime.events.subscribe(lambda event: crashes.append(event.facts), "crash")
    return crashes


# Continue


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_continue_from_init_runs_before_any_message(clock: Clock, is_async: bool) -> None:
    runtime = Runtime(clock)

    class Eager(Ender):
        def init(self, first: Any = None) -> Any:
            super().init()
            self.ref.cast("a message that waits already")
            return answering(Continue("continued"), is_async)(self)

    ref = await begin(runtime, Eager)
    ref.cast("another")
    await ref.call("end")
    assert ref.actor.seen == ["continued", "a message that waits already", "another", "end"]  # type: ignore[union-attr]


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["cast", "send", "call"])
async def test_a_continue_from_a_handler_runs_before_the_messages_that_wait(
    clock: Clock, is_async: bool, kind: str
) -> None:
    ref, actor = await ender(clock)
    first = getattr(ref, kind)(answering(Continue("continued", reply="replied"), is_async))
    calling = None if first is None else asyncio.create_task(first)
    await asyncio.sleep(0) if calling else None
    ref.cast("waiting")
    await ref.call("end")
    assert actor.seen == ["continued", "waiting", "end"]
    if calling:
        assert await calling == "replied"


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3 * BUDGET])
async def test_a_chain_of_continues_runs_to_its_end_before_the_next_message(
    clock: Clock, is_async: bool, length: int
) -> None:
    ref, actor = await ender(clock)

    def link(number: int) -> Callable[[Ender], Any]:
        def handler(me: Ender) -> Any:
            me.seen.append(number)
            return answering(Continue(link(number + 1)) if number < length else None, is_async)(me)

        return handler

    ref.cast(link(0))
    ref.cast("waiting")
    await ref.call("end")
    assert actor.seen == [*range(length + 1), "waiting", "end"]


@pytest.mark.spec("otp-81")
async def test_a_continue_may_stop_the_actor(clock: Clock) -> None:
    ref, actor = await ender(clock)
    ref.cast(lambda _: Continue(lambda _: Stop(Exit.SHUTDOWN)))
    ref.cast("never handled")
    assert await ref.wait() == Exit.SHUTDOWN
    assert actor.seen == []


@pytest.mark.spec("otp-81")
async def test_a_continue_of_a_call_without_a_reply_leaves_it_to_the_handler(clock: Clock) -> None:
    class Deferring(Ender):
        def handle_call(self, message: Any, caller: Caller) -> Any:
            return Continue(caller)

        def handle_continue(self, term: Caller) -> None:
            term.reply("from the continue")

    ref, _ = await ender(clock, Deferring)
    assert await ref.call("hello") == "from the continue"


# Timeout


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("kind", ["cast", "send", "call", "continue"])
async def test_a_timeout_comes_when_no_message_did(clock: Clock, is_async: bool, kind: str) -> None:
    ref, actor = await ender(clock)
    handler = answering(Timeout(3, reply="replied"), is_async)
    if kind == "call":
        assert await ref.call(handler) == "replied"
    elif kind == "continue":
        ref.cast(lambda _: Continue(handler))
    else:
        getattr(ref, kind)(handler)
    await clock.sleep(2.9)
    assert actor.seen == []
    await clock.sleep(0.2)
    assert actor.seen == [TIMEOUT]
    await clock.sleep(60)
    assert actor.seen == [TIMEOUT], "once only"


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_timeout_of_nothing_comes_at_once_but_behind_what_waits(clock: Clock, is_async: bool) -> None:
    ref, actor = await ender(clock)
    ref.cast(answering(Timeout(0), is_async))
    await clock.sleep(0.001)
    assert actor.seen == [TIMEOUT]
    actor.seen.clear()
    ref.cast(answering(Timeout(0), is_async))
    ref.cast("waiting")
    await clock.sleep(60)
    assert actor.seen == ["waiting"], "a message that waits comes first and cancels it"


@pytest.mark.spec("otp-81")
async def test_a_timeout_of_none_never_comes(clock: Clock) -> None:
    ref, actor = await ender(clock)
    ref.cast(answering(Timeout(None), False))
    await clock.sleep(86_400)
    assert actor.seen == []


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_message_cancels_a_timeout(clock: Clock, is_async: bool) -> None:
    ref, actor = await ender(clock)
    ref.cast(answering(Timeout(3), is_async))
    await clock.sleep(2)
    ref.cast("a message")
    await clock.sleep(60)
    assert actor.seen == ["a message"]
    ref.cast(answering(Timeout(3), is_async))
    ref.cast(answering(Timeout(5), is_async))
    await clock.sleep(4)
    assert actor.seen == ["a message"], "the newer one holds"
    await clock.sleep(2)
    assert actor.seen == ["a message", TIMEOUT]


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("before", [0, 1, BUDGET - 1, BUDGET, 2 * BUDGET - 1])
async def test_a_timeout_is_not_lost_behind_a_long_run_of_messages(clock: Clock, is_async: bool, before: int) -> None:
    """The one that asks for it is the last before others have their turn, or not."""
    ref, actor = await ender(clock)
    for _ in range(before):
        ref.cast(answering(None, is_async))
    ref.cast(answering(Timeout(0), is_async))
    await clock.sleep(1)
    assert actor.seen == [TIMEOUT]


async def test_a_timeout_dies_with_its_actor(clock: Clock) -> None:
    ref, actor = await ender(clock)
    ref.cast(answering(Timeout(3), False))
    await ref.stop()
    await clock.sleep(60)
    assert actor.seen == []


# Terminate


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("by", "reason"), [*itertools.product(["stop", "exit", "directive"], REASONS), RAISED])
async def test_terminate_runs_once_with_the_reason_whatever_ends_the_actor(
    clock: Clock, is_async: bool, reason: Reason, by: str
) -> None:
    ref, actor = await ender(clock)
    actor.ending = answering(None, is_async)
    match by:
        case "stop":
            await ref.stop(reason)
        case "exit":
            ref.exit(reason)
        case "directive":
            ref.cast(answering(Stop(reason), is_async))
        case _:
            assert isinstance(reason, BaseException)
            ref.cast(raising(reason))
    assert await ref.wait() == reason
    assert actor.ends == [reason]


@pytest.mark.spec("otp-81")
async def test_a_reason_that_is_a_plain_value_is_a_failure_with_that_term(clock: Clock) -> None:
    ref, actor = await ender(clock)
    assert await ref.stop("word") == Exit.FAILED("word")
    assert actor.ends == [Exit.FAILED("word")]


@pytest.mark.spec("otp-81")
async def test_a_stop_waits_its_turn_and_an_exit_does_not(clock: Clock) -> None:
    one, first = await ender(clock)
    two, second = await ender(clock)
    one.cast("waiting")
    two.cast("waiting")
    two.exit()
    assert await one.stop() == Exit.NORMAL
    assert await two.wait() == Exit.SHUTDOWN
    assert (first.seen, second.seen) == (["waiting"], [])


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("kind", [Ender, Child])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("reason", [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term"), Boom("an error")])
async def test_terminate_runs_when_the_parent_exits(
    clock: Clock, kind: type[Ender], is_async: bool, reason: Reason
) -> None:
    """OTP-4820; whether the child traps exits or not."""
    parent, _ = await ender(clock)
    child: Ref = await parent.call(lambda me: me.start_link(kind))
    actor = child.actor
    assert isinstance(actor, Ender)
    actor.ending = answering(None, is_async)
    await parent.stop(reason)
    assert await child.wait() == reason
    assert actor.ends == [reason]
    assert actor.seen == [], "the exit of a parent is no message"


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("state", ["idle", "busy", "lingering", "terminating"])
async def test_terminate_never_runs_on_a_kill(clock: Clock, state: str) -> None:
    ref, actor = await ender(clock)
    if state == "busy":
        ref.cast(waits)
    elif state == "lingering":
        await ref.call(answering("warm", True))
    elif state == "terminating":
        actor.ending = waits
        ref.exit()
    await clock.sleep(0.1)
    ref.kill()
    assert await ref.wait() == Exit.KILLED
    assert actor.ends == ([Exit.SHUTDOWN] if state == "terminating" else [])
    assert clock.monotonic() == 0.1


@pytest.mark.spec("otp-81")
async def test_a_killed_parents_child_is_killed_without_terminate(clock: Clock) -> None:
    parent, _ = await ender(clock)
    child: Ref = await parent.call(lambda me: me.start_link(Child))
    actor = child.actor
    assert isinstance(actor, Ender)
    parent.kill()
    assert (await parent.wait(), child.reason, actor.ends) == (Exit.KILLED, Exit.KILLED, [])


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_actor_that_kills_itself_while_it_terminates_has_one_reason(clock: Clock, is_async: bool) -> None:
    ref, actor = await ender(clock)
    reasons: list[Reason] = []
    ref._watch(reasons.append)

    async def kills_later(me: Ender) -> None:
        me.ref.kill()

    actor.ending = kills_later if is_async else lambda me: me.ref.kill()
    ref.exit()
    assert await ref.wait() == Exit.KILLED
    assert (ref.reason, reasons) == (Exit.KILLED, [Exit.KILLED])


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_in_terminate_is_the_reason_and_is_reported(clock: Clock, is_async: bool) -> None:
    ref, actor = await ender(clock)
    crashes = crashes_of(ref)
    error = Boom("in terminate")

    async def raises_later(_: Ender) -> None:
        raise error

    actor.ending = raises_later if is_async else raising(error)
    with pytest.raises(ActorDied) as died:
        await ref.call(answering(Stop(Exit.NORMAL), False))
    await clock.sleep(0)
    assert died.value.reason is ref.reason is error
    assert [crash["reason"] for crash in crashes] == [error]


async def test_a_reply_given_with_the_stop_arrives_even_when_terminate_fails(clock: Clock) -> None:
    ref, actor = await ender(clock)
    actor.ending = raising(Boom("in terminate"))
    assert await ref.call(answering(Stop(Exit.NORMAL, "replied"), False)) == "replied"


async def test_messages_that_come_while_an_actor_terminates_are_not_handled_and_callers_are_told(
    clock: Clock,
) -> None:
    ref, actor = await ender(clock)

    async def slowly(_: Ender) -> None:
        await clock.sleep(2)

    actor.ending = slowly
    ref.exit()
    await clock.sleep(1)
    ref.cast("too late")
    with pytest.raises(ActorDied):
        await ref.call("too late", timeout_s=60)
    assert (actor.seen, clock.monotonic()) == ([], 2.0)


async def test_a_stop_with_a_timeout_raises_at_the_caller_and_the_actor_ends_all_the_same(clock: Clock) -> None:
    ref, actor = await ender(clock)

    async def slowly(_: Ender) -> None:
        await clock.sleep(3)

    actor.ending = slowly
    with pytest.raises(CallTimeout):
        await ref.stop(timeout_s=1)
    assert clock.monotonic() == 1.0
    assert await ref.wait() == Exit.NORMAL
    assert clock.monotonic() == 3.0
    with pytest.raises(NoSuchActor):
        await ref.stop()


async def test_waiting_for_the_end_of_the_dead_gives_the_reason_at_once(clock: Clock) -> None:
    ref, _ = await ender(clock)
    await ref.stop(Exit.SHUTDOWN("term"))
    assert await ref.wait() == Exit.SHUTDOWN("term")


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_terminate_does_not_see_the_context_of_whoever_asked_for_the_end(clock: Clock) -> None:
    ref, actor = await ender(clock)
    seen: list[str] = []
    actor.ending = lambda _: seen.append(WHO.get())
    token = WHO.set("the one who ends it")
    ref.exit()
    await ref.wait()
    WHO.reset(token)
    assert seen == ["nobody"]


# Crash reports


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("reason", [Exit.NORMAL, Exit.SHUTDOWN, Exit.SHUTDOWN("term")])
async def test_a_clean_end_is_not_reported(clock: Clock, is_async: bool, reason: Exit) -> None:
    for by in ("stop", "exit", "directive"):
        ref, _ = await ender(clock)
        crashes = crashes_of(ref)
        if by == "directive":
            ref.cast(answering(Stop(reason), is_async))
        else:
            ref.exit(reason) if by == "exit" else await ref.stop(reason)
        assert await ref.wait() == reason
        await clock.sleep(0)
        assert crashes == []


@pytest.mark.spec("otp-81")
async def test_a_kill_is_not_reported_as_a_crash(clock: Clock) -> None:
    ref, _ = await ender(clock)
    crashes = crashes_of(ref)
    ref.kill()
    await clock.sleep(0)
    assert crashes == []


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("kind", ["cast", "send"])
async def test_a_crash_is_reported_with_the_last_message_and_the_state(clock: Clock, kind: str) -> None:
    class Counter(Actor):
        def init(self) -> None:
            self.count = 41

        def handle_cast(self, message: Any) -> Any:
            raise Boom("at 42")

        handle_info = handle_cast

    ref = await begin(Runtime(clock, log=False), Counter, name="counter")
    crashes = crashes_of(ref)
    getattr(ref, kind)({"add": 1})
    reason = await ref.wait()
    await clock.sleep(0)
    (crash,) = crashes
    assert crash["actor"] == "<Counter counter #1>"
    assert crash["reason"] is reason
    assert crash["message"] == "{'add': 1}"
    assert crash["state"] == "{'count': 41}"


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("reason", ["word", Exit.FAILED(7), Boom("as a value")])
async def test_an_abnormal_stop_is_reported_like_a_crash(clock: Clock, reason: object) -> None:
    ref, _ = await ender(clock)
    crashes = crashes_of(ref)
    await ref.stop(reason)
    await clock.sleep(0)
    assert [crash["reason"] for crash in crashes] == [ref.reason]


class Guarded(Actor):
    """Has a secret, and a redaction hook that is set from outside."""

    redaction: Callable[[Mapping[str, object]], Any] = staticmethod(lambda report: report)

    def init(self) -> None:
        self.password = SECRET
        self.user = "ann"

    def handle_call(self, message: Any, caller: Caller) -> Any:
        raise Boom("in the handler")

    def redact(self, report: Mapping[str, object]) -> Mapping[str, object]:
        result: Mapping[str, object] = type(self).redaction(report)
        return result


async def crash_of(clock: Clock, redaction: Callable[[Any], Any]) -> tuple[Mapping[str, object], Ref]:
    """The report of a crash with such a hook; the end itself must be as ever."""
    kind = type("Hooked", (Guarded,), {"redaction": staticmethod(redaction)})
    ref = await begin(Runtime(clock, log=False), kind, name="guarded")
    crashes = crashes_of(ref)
    with pytest.raises(ActorDied) as died:
        await ref.call({"token": SECRET})
    assert isinstance(died.value.reason, Boom)
    assert ref.runtime.whereis("guarded") is None
    await clock.sleep(0)
    (crash,) = crashes
    return crash, ref


@pytest.mark.spec("otp-81")
async def test_the_redaction_hook_takes_secrets_out_of_message_and_state(clock: Clock) -> None:
    def hook(report: Mapping[str, Any]) -> Mapping[str, object]:
        return {"message": {**report["message"], "token": "***"}, "state": {**report["state"], "password": "***"}}

    crash, _ = await crash_of(clock, hook)
    assert crash["message"] == "{'token': '***'}"
    assert crash["state"] == "{'password': '***', 'user': 'ann'}"


class Unspeakable:
    """Raises on every way to show it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __repr__(self) -> str:
        raise self._error

    __str__ = __repr__
    __format__ = None  # type: ignore[assignment]


class Mined(dict[str, object]):
    """A mapping that raises when it is looked at."""

    def __getitem__(self, key: str) -> object:
        raise Boom(SECRET)


class Leaky(BaseException):
    """An error whose text has the secret."""

    def __str__(self) -> str:
        return SECRET

    __repr__ = __str__


def _raises(error: BaseException) -> Callable[[Any], Any]:
    def hook(report: Any) -> Any:
        raise error

    return hook


HOOKS: dict[str, Callable[[Any], Any]] = {
    "raises": _raises(Boom(SECRET)),
    "raises an error with the secret": _raises(Leaky()),
    "raises SystemExit": _raises(SystemExit(SECRET)),
    "raises KeyboardInterrupt": _raises(KeyboardInterrupt(SECRET)),
    "raises CancelledError": _raises(asyncio.CancelledError(SECRET)),
    "raises StopIteration": _raises(StopIteration(SECRET)),
    "recurses": lambda report: HOOKS["recurses"](report),
    "returns None": lambda _: None,
    "returns a number": lambda _: 42,
    "returns a list": lambda _: [1, 2],
    "returns a text": lambda _: "redacted",
    "returns an empty mapping": lambda _: {},
    "returns half of it": lambda _: {"message": "redacted"},
    "returns a mapping that raises": lambda _: Mined(),
    "returns what cannot be shown": lambda _: {key: Unspeakable(Boom()) for key in ("message", "state")},
    "returns what ends programs when shown": lambda _: {
        key: Unspeakable(SystemExit(1)) for key in ("message", "state")
    },
    "returns what cannot be shown, deep down": lambda _: {
        key: [{"x": (Unspeakable(Boom()),)}] for key in ("message", "state")
    },
    "clears the report": lambda report: report.clear() or report,
}


@pytest.mark.spec("otp-81")
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
async def test_a_redaction_hook_that_fails_hurts_nobody_and_leaks_nothing(
    clock: Clock, hook: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    crash, _ = await crash_of(clock, hook)
    shown = f"{crash['message']} {crash['state']}"
    assert isinstance(crash["message"], str)
    assert isinstance(crash["state"], str)
    assert SECRET not in shown
    assert SECRET not in repr(crash)
    assert SECRET not in caplog.text


@pytest.mark.spec("otp-81")
async def test_a_redaction_hook_that_is_async_leaks_nothing(clock: Clock) -> None:
    """A mistake that is easily made: its coroutine is not the report."""

    async def hook(report: Any) -> Any:
        return report

    with pytest.warns(RuntimeWarning, match="never awaited"):
        crash, _ = await crash_of(clock, hook)
    assert "not shown" in str(crash["state"])


@pytest.mark.spec("otp-81")
async def test_the_redaction_hook_of_an_actor_that_goes_on_raising_does_not_stop_its_restarts(clock: Clock) -> None:
    for _ in range(3):
        crash, ref = await crash_of(clock, HOOKS["raises"])
        assert "not shown" in str(crash["message"])
        assert not ref.alive


async def test_a_huge_state_is_reported_short(clock: Clock) -> None:
    class Huge(Actor):
        def init(self) -> None:
            self.text = "x" * 10_000_000
            self.numbers = list(range(1_000_000))

        def handle_cast(self, message: Any) -> Any:
            raise Boom

    ref = await begin(Runtime(clock, log=False), Huge)
    crashes = crashes_of(ref)
    ref.cast("y" * 10_000_000)
    await ref.wait()
    await clock.sleep(0)
    (crash,) = crashes
    assert len(str(crash["message"])) + len(str(crash["state"])) < 5_000


async def test_a_state_that_holds_itself_is_reported(clock: Clock) -> None:
    class Loop(Actor):
        def init(self) -> None:
            self.me = self
            self.deep: list[object] = []
            self.deep.append(self.deep)

        def handle_cast(self, message: Any) -> Any:
            raise Boom

    ref = await begin(Runtime(clock, log=False), Loop)
    crashes = crashes_of(ref)
    ref.cast("hello")
    await ref.wait()
    await clock.sleep(0)
    assert "deep" in str(crashes[0]["state"])


async def test_a_crash_is_logged_with_its_traceback_unless_logging_is_off(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for log in (True, False):
        caplog.clear()
        ref = await begin(Runtime(clock, log=log), Ender, name="it")
        ref.cast(raising(Boom("for the log")))
        await ref.wait()
        await clock.sleep(0)
        records = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert [record.name for record in records] == (["raptor"] if log else [])
        if log:
            assert "crash" in caplog.text
            assert "Boom: for the log" in caplog.text
            assert "in handler" in caplog.text


async def test_a_crash_that_nobody_hears_of_gathers_no_facts(clock: Clock) -> None:
    asked: list[str] = []

    class Quiet(Ender):
        def redact(self, report: Mapping[str, object]) -> Mapping[str, object]:
            asked.append("redact")
            return report

    ref = await begin(Runtime(clock, log=False), Quiet)
    ref.cast(raising(Boom()))
    await ref.wait()
    assert asked == []


async def test_an_unexpected_message_is_reported_and_dropped(clock: Clock) -> None:
    class Plain(Actor):
        def handle_call(self, message: object, caller: Caller) -> object:
            return message

    ref = await begin(Runtime(clock, log=False), Plain)
    events: list[Event] = []
    ref.runtime.events.subscribe(events.append, "unexpected")
    ref.send("what is this?")
    assert await ref.call("still there?") == "still there?"
    await clock.sleep(0)
    assert [event.facts["message"] for event in events] == ["'what is this?'"]
