"""How an actor gets its messages: one at a time, in order, without a task while it is idle.

What an end means, and who hears of it, is ref.py's business.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from raptor.actor import NOREPLY, TIMEOUT, Actor, Caller, Continue, Directive, Stop, Timeout
from raptor.errors import ActorDied, shown
from raptor.exits import Exit, Reason, as_reason

if TYPE_CHECKING:
    from raptor.runtime import Runtime

CALL: Final = "handle_call"
CAST: Final = "handle_cast"
INFO: Final = "handle_info"
CONTINUE: Final = "handle_continue"
STOP: Final = "stop"
END: Final = "terminate"

Letter: TypeAlias = tuple[str, Any, Caller | None]
Step: TypeAlias = tuple[Letter, Coroutine[Any, Any, object]]

BUDGET: Final = 100
"""Messages, plain or `async`, that one actor handles in a row before others get their turn."""

LINGER_S: Final = 1.0
"""About how long the task of an actor outlives its last message: making one for each costs more than it."""


class Mailbox:
    """The messages of one actor and their handling.

    A plain handler runs in a callback. The first `async` one makes a task, which handles what follows and
    lingers for a moment. The mailbox (`_box`) exists exactly while something is, or is about to be, handled.
    """

    __slots__ = (
        "_actor",
        "_box",
        "_deferred",
        "_idle_timer",
        "_killed",
        "_step",
        "_swept",
        "_task",
        "_waiter",
        "busy_since",
        "runtime",
    )

    def __init__(self, runtime: Runtime, actor: Actor) -> None:
        self.busy_since: float | None = None  # since when one message has been waiting for something
        self.runtime = runtime
        self._actor: Actor | None = actor
        self._killed = False
        self._box: deque[Letter] | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None  # what a lingering task waits on
        self._step: Step | None = None  # the message in hand, if it has to wait; begun once `busy_since` is set
        self._swept = False  # the runtime looks after its lingering
        self._deferred: dict[Caller, None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def _end(self, reason: Reason, letter: Letter, reply: object = NOREPLY) -> Step | None:
        """End in order; -> a step when that has to wait."""

    @abstractmethod
    def _finish(self, end: Letter, error: BaseException | None) -> None:
        """`terminate` is over."""

    @abstractmethod
    def _die(self, reason: Reason) -> None:
        """Be dead."""

    @property
    def mailbox(self) -> int:
        """How many messages wait."""
        return len(self._box) if self._box else 0

    def _post(self, letter: Letter) -> None:
        box = self._box
        if box is not None:
            box.append(letter)
        elif self._actor is not None:
            self._box = deque((letter,))
            self._wake()

    def _hold(self) -> deque[Letter]:
        """The mailbox, made if there is none, without waking anybody."""
        if self._box is None:
            self._box = deque()
        return self._box

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is None:
            runtime = self.runtime
            if runtime.closed:
                return
            # The actor's own context, not that of whoever happened to send the message.
            runtime.loop.call_soon(self._drain, context=runtime.context.copy())
        else:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _drain(self) -> None:
        """The loop of an actor that has no task."""
        if self._task is not None:
            return
        self._step = self._advance()
        if self._step is not None:
            self._task = self.runtime.create_task(self._serve())
        elif self._box is not None:
            self._wake()

    def _advance(self) -> Step | None:
        """Handle messages until one has to wait (-> that step), none is left, or it is others' turn."""
        for _ in range(BUDGET):
            box = self._box
            if not box:
                self._box = None
                return None
            letter = box.popleft()
            if self._idle_timer is not None:
                self._idle_timer.cancel()
                self._idle_timer = None
            kind, message, caller = letter
            answer: Any
            try:
                if kind is STOP:
                    answer = Stop(message)
                elif caller is None:
                    answer = getattr(self._actor, kind)(message)
                else:
                    answer = getattr(self._actor, kind)(message, caller)
            except BaseException as error:
                step = self._end(error, letter)
            else:
                if answer.__class__ is CoroutineType:
                    return letter, answer
                step = self._settle(letter, answer)
            if step is not None:
                return step
        return None

    async def _serve(self) -> None:
        """The loop of an actor that has a task, until it has lingered in vain."""
        try:
            while self._actor is not None:
                await self._follow()
                if self._box is not None:
                    await asyncio.sleep(0)  # others' turn
                elif self._actor is not None and await self._rests():
                    return
                self._step = self._advance()
        except (asyncio.CancelledError, GeneratorExit):
            if self._actor is not None and self.runtime.is_closing():
                self._close()
            else:
                self._die(Exit.KILLED)  # somebody else cancelled it

    async def _follow(self) -> None:
        """Handle the message in hand, and those after it."""
        clock, task = self.runtime.clock, self._task
        assert task is not None
        turns = 0
        while self._step is not None:
            letter, work = self._step
            cancelled = task.cancelling()
            self.busy_since = clock.monotonic()
            try:
                answer = await work
            except BaseException as error:
                if self._breaks_off(error, cancelled):
                    raise
                step = self._failed(letter, error)
            else:
                step = self._done(letter, answer)
            self.busy_since = None
            self._step = step
            turns += 1
            if turns % BUDGET == 0:
                await asyncio.sleep(0)
            if step is None:
                self._step = self._advance()

    async def _rests(self) -> bool:
        """Linger; -> True when no message came, and the task is to end."""
        waiter = self._waiter = self.runtime.loop.create_future()
        if not self._swept:
            self._swept = True
            self.runtime.lingers(self)
        try:
            await waiter
        except asyncio.CancelledError:
            pass  # dead, or the program is ending; what was not being handled is not disturbed
        if self._waiter is None:
            return False  # whoever brought a message took the waiter away
        self._waiter = self._task = None
        return True

    def _breaks_off(self, error: BaseException, cancelled: int) -> bool:
        """Whether the task itself is ended from outside, rather than its handler by an exception of its own."""
        task = self._task
        if isinstance(error, GeneratorExit):
            return task is not current_task()
        # A task group that fails leaves its own marks, hence the count from before.
        return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancelled

    def _close(self) -> None:
        """The end of the program: without a word to anybody, since nobody will ever be run again."""
        self.runtime.close()
        if self._step is not None and self.busy_since is None:
            self._step[1].close()
        self._step = self._box = None

    def _done(self, letter: Letter, answer: object) -> Step | None:
        """An `async` handler has answered."""
        if self._actor is None:
            return None  # abandoned meanwhile
        if self._killed:
            self._die(Exit.KILLED)
        elif letter[0] is END:
            self._finish(letter, None)
        else:
            return self._settle(letter, answer)
        return None

    def _failed(self, letter: Letter, error: BaseException) -> Step | None:
        """An `async` handler has raised."""
        if self._actor is None:
            return None
        if self._killed:
            self._die(Exit.KILLED)
        elif letter[0] is END:
            self._finish(letter, error)
        else:
            return self._end(error, letter)
        return None

    def rest(self, waiter: asyncio.Future[None] | None) -> asyncio.Future[None] | None:
        """Have the task end if it still waits on this; -> what it waits on instead, None if nothing."""
        if waiter is not None and waiter is self._waiter and not waiter.done():
            waiter.set_result(None)
        elif self._waiter is not None and not self._waiter.done():
            return self._waiter
        self._swept = False
        return None

    def _settle(self, letter: Letter, answer: object) -> Step | None:
        """Do what a handler's answer asks for; -> a step when that has to wait."""
        caller = letter[2]
        if self._actor is None:
            self._too_late(caller)
        elif isinstance(answer, Directive):
            return self._direct(letter, answer)
        elif caller is not None:
            caller.reply(answer)
        elif answer is not None:
            bad = TypeError(f"{self!r} answered {shown(answer)}; a cast or an info is answered by None or a directive")
            return self._end(bad, letter)
        return None

    def _too_late(self, caller: Caller | None) -> None:
        """The actor killed itself in this message."""
        if caller is not None:
            caller.fail(ActorDied(repr(self), Exit.KILLED))

    def _direct(self, letter: Letter, directive: Directive) -> Step | None:
        caller = letter[2]
        match directive:
            case Stop(reason=reason, reply=reply):
                return self._end(as_reason(reason), letter, reply)
            case Continue(term=term, reply=reply):
                self._hold().appendleft((CONTINUE, term, None))
            case Timeout(after_s=after_s, reply=reply):
                self._arm_idle(after_s)
            case _ if directive is NOREPLY and caller is not None:
                reply = NOREPLY
            case _:
                return self._end(TypeError(f"{self!r} answered {shown(directive)} where it has no meaning"), letter)
        if caller is not None and reply is not NOREPLY:
            caller.reply(reply)
        elif caller is not None:
            self._defer(caller)
        return None

    def _defer(self, caller: Caller) -> None:
        """Remember who still waits for a reply: they are told if the actor ends first."""
        if self._deferred is None:
            self._deferred = {}
        waiting = self._deferred
        waiting[caller] = None
        caller.when_answered(lambda: waiting.pop(caller, None))

    def _arm_idle(self, after_s: float | None) -> None:
        if after_s is not None and not self._box:
            self._idle_timer = self.runtime.loop.call_later(after_s, self._idled)

    def _idled(self) -> None:
        self._idle_timer = None
        if self._box is None:
            self._post((INFO, TIMEOUT, None))


def current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # no loop runs any more
