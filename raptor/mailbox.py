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
from raptor.errors import ActorDied
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
"""Messages that one actor handles before others get their turn."""

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
        "_in_hand",
        "_killed",
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
        self._in_hand: Caller | None = None  # who waits for the message that is being handled
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

    @property
    def _at_rest(self) -> bool:
        """Nothing is being handled."""
        return self._task is None or self._waiter is not None

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
        step = self._advance()
        if step is not None:
            self._task = self.runtime.create_task(self._serve(step))
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

    async def _serve(self, step: Step | None) -> None:
        """The loop of an actor that has a task, until it has lingered in vain."""
        try:
            while True:
                await self._follow(step)
                if self._actor is None:
                    return
                if self._box is not None:
                    await asyncio.sleep(0)  # others' turn
                elif await self._rests():
                    return
                step = self._advance()
        except (asyncio.CancelledError, GeneratorExit):
            # Killed between two messages, or the loop is closing and nothing may wait any more.
            if self._actor is not None:
                self._die(Exit.KILLED)

    async def _follow(self, step: Step | None) -> None:
        """Handle what waits for something, and what comes after it."""
        clock = self.runtime.clock
        turns = 0
        while step is not None:
            letter, work = step
            self._in_hand = letter[2]
            self.busy_since = clock.monotonic()
            try:
                answer = await work
            except GeneratorExit:
                raise
            except BaseException as error:
                step = self._failed(letter, error)
            else:
                step = self._done(letter, answer)
            self.busy_since = self._in_hand = None
            turns += 1
            if turns % BUDGET == 0:
                await asyncio.sleep(0)
            step = step or self._advance()

    async def _rests(self) -> bool:
        """Linger; -> True when no message came, and the task is to end."""
        waiter = self._waiter = self.runtime.loop.create_future()
        if not self._swept:
            self._swept = True
            self.runtime.lingers(self)
        try:
            await waiter
        except asyncio.CancelledError:
            pass  # the program is ending; what was not being handled is not disturbed
        if self._waiter is None:
            return False  # whoever brought a message took the waiter away
        self._waiter = self._task = None
        return True

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
        # Cancelled by somebody else; an actor whose handler cancels something of its own only fails.
        if self._killed or (self._task is not None and self._task.cancelling()):
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
            bad = TypeError(f"{self!r} answered {answer!r}; a cast or an info is answered by None or a directive")
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
                return self._end(TypeError(f"{self!r} answered {directive!r} where it has no meaning"), letter)
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
