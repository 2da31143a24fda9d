"""What a user writes: an actor class with handlers, and the values that its handlers answer with.

How messages reach the handlers is ref.py's business.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from raptor.errors import shown
from raptor.exits import Exit, Reason

if TYPE_CHECKING:
    import asyncio

    from raptor.ref import Monitor, Ref, Timer
    from raptor.runtime import Runtime


class Directive:
    """An answer that asks the actor's loop for something; any other answer to a call is its reply."""

    __slots__ = ()


class _Word(Directive):
    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    def __repr__(self) -> str:
        return self._word


IGNORE: Final = _Word("IGNORE")
"""From `init`: do not start, and call that no error."""

NOREPLY: Final = _Word("NOREPLY")
"""From `handle_call`: `caller.reply(...)` will follow later."""

TIMEOUT: Final = _Word("TIMEOUT")
"""The message that `handle_info` gets when a `Timeout` has run out."""


@dataclass(frozen=True, slots=True)
class Stop(Directive):
    """End with this reason, after `terminate`; a call may be given its reply first."""

    reason: object = Exit.NORMAL
    reply: object = NOREPLY


@dataclass(frozen=True, slots=True)
class Continue(Directive):
    """Run `handle_continue(term)` before any message that waits."""

    term: object = None
    reply: object = NOREPLY


@dataclass(frozen=True, slots=True)
class Timeout(Directive):
    """Send TIMEOUT to `handle_info` if no message comes for so long; None means never."""

    after_s: float | None
    reply: object = NOREPLY


@dataclass(frozen=True, slots=True)
class Info(Directive):
    """From `init`: started, with something to tell the starter (`ref.info`)."""

    info: object


@dataclass(frozen=True, slots=True)
class Exited:
    """To `handle_info` of an actor that traps exits: a linked actor ended."""

    ref: Ref
    reason: Reason


@dataclass(frozen=True, slots=True)
class Down:
    """To `handle_info`: a monitored actor ended, or was not there."""

    monitor: Monitor
    ref: Ref
    reason: Reason


class Caller:
    """Who waits for the reply to a call."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def reply(self, value: object) -> None:
        """Answer the call. A reply that comes too late, or second, is dropped."""
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        """Answer the call with an error, which is raised at the caller."""
        if not self._future.done():
            self._future.set_exception(error)

    def when_answered(self, told: Callable[[], object]) -> None:
        """Have `told` called once nobody waits any more."""
        self._future.add_done_callback(lambda _: told())


Answer: TypeAlias = object
MaybeAsync: TypeAlias = Coroutine[Any, Any, Answer] | Answer


class Actor:
    """State behind a mailbox: one message at a time, in order. Handlers are plain or `async`.

    A handler that waits holds up its own actor only. State lives in attributes, set by `init`.
    """

    trap_exit: ClassVar[bool] = False
    """Get `Exited` for linked actors that end, instead of ending with them."""

    ref: Ref
    runtime: Runtime

    def init(self, *args: Any, **kwargs: Any) -> MaybeAsync:
        """Start: None, Continue, Timeout or Info to go on, IGNORE or Stop(reason) not to."""
        return None

    def handle_call(self, message: Any, caller: Caller) -> MaybeAsync:
        """A message whose sender waits: the answer is the reply, or a directive."""
        raise TypeError(f"{type(self).__name__} was called, but has no handle_call")

    def handle_cast(self, message: Any) -> MaybeAsync:
        """A message whose sender does not wait: None, or a directive."""
        raise TypeError(f"{type(self).__name__} was sent a cast, but has no handle_cast")

    def handle_info(self, message: Any) -> MaybeAsync:
        """Anything else: timers, Down, Exited, TIMEOUT. Not expected by default: reported and dropped."""
        self.runtime.events.emit("unexpected", actor=repr(self.ref), message=shown(message))
        return None

    def handle_continue(self, term: Any) -> MaybeAsync:
        """What a Continue asked for."""
        raise TypeError(f"{type(self).__name__} was told to continue, but has no handle_continue")

    def terminate(self, reason: Reason) -> MaybeAsync:
        """The last thing an actor does, whatever ends it except a kill."""
        return None

    def redact(self, report: Mapping[str, object]) -> Mapping[str, object]:
        """Take secrets out of a crash report's `message` and `state`."""
        return report

    async def start_link(
        self, actor: type[Actor], *args: Any, name: str | None = None, timeout_s: float | None = None, **kwargs: Any
    ) -> Ref | None:
        """Start a child: it ends with this actor, and this actor hears of its end."""
        return await self.runtime.spawn(actor, args, kwargs, name=name, parent=self.ref, timeout_s=timeout_s)

    def send_after(self, delay_s: float, message: object) -> Timer:
        """Send a message to this actor's `handle_info` later; the timer can be cancelled, and dies with the actor."""
        return self.ref.timer(delay_s, message)

    def monitor(self, ref: Ref) -> Monitor:
        """Have a `Down` sent to this actor when the other ends (at once if it has)."""
        return ref.monitor(self.ref)

    def link(self, ref: Ref) -> None:
        """Tie two lives together: an abnormal end of one ends the other, unless it traps exits."""
        self.ref.link(ref)

    def unlink(self, ref: Ref) -> None:
        """Undo a link."""
        self.ref.unlink(ref)


_HANDLERS: Final = ("handle_call", "handle_cast", "handle_info", "handle_continue")


def has_handlers(actor: type[Actor]) -> bool:
    """Whether an actor class handles anything at all."""
    return any(getattr(actor, handler) is not getattr(Actor, handler) for handler in _HANDLERS)
