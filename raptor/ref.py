"""A running actor: its address, its links, its start and its end. Its messages are mailbox.py's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from raptor.actor import IGNORE, NOREPLY, Actor, Caller, Continue, Down, Exited, Info, Stop, Timeout
from raptor.errors import ActorDied, CallingSelf, CallTimeout, NoSuchActor, StartFailed, shown
from raptor.exits import Exit, Reason, as_reason, is_clean
from raptor.mailbox import CALL, CAST, CONTINUE, END, INFO, STOP, Letter, Mailbox, Step, current_task

if TYPE_CHECKING:
    from raptor.runtime import Runtime

KILL_GRACE_S: Final = 1.0
"""How long a killed actor's cancelled handler may take before it is abandoned."""

ORPHAN_GRACE_S: Final = 5.0
"""How long an actor may go on after the end of the one it is linked to, before it is killed."""


class Ref(Mailbox):
    """The address of one incarnation of an actor, and what there is of it."""

    __slots__ = ("_links", "_monitors", "_parent", "_reason", "_timers", "info", "kind", "name", "number", "started_at")

    def __init__(self, runtime: Runtime, actor: Actor, number: int, name: str | None, parent: Ref | None) -> None:
        super().__init__(runtime, actor)
        self.kind = type(actor)
        self.name = name
        self.number = number
        self.info: object = None
        self.started_at = runtime.clock.monotonic()
        self._parent = parent
        self._reason: Reason | None = None
        # Made when needed, so that an idle actor stays small.
        self._links: dict[Ref, None] | None = None
        self._monitors: dict[Monitor, Callable[[Reason], None]] | None = None
        self._timers: dict[Timer, None] | None = None

    def __repr__(self) -> str:
        label = f" {self.name}" if self.name else ""
        return f"<{self.kind.__name__}{label} #{self.number}>"

    # What others may ask of an actor

    @property
    def alive(self) -> bool:
        return self._reason is None

    @property
    def killed(self) -> bool:
        """Whether it was killed; its handler may not have ended yet."""
        return self._killed or self._reason == Exit.KILLED

    @property
    def reason(self) -> Reason | None:
        """Why it ended, once it has."""
        return self._reason

    @property
    def actor(self) -> Actor | None:
        """The object behind the mailbox, to look at (never to change); None once it has ended."""
        return self._actor

    def cast(self, message: object) -> None:
        """Send a message and go on, whether or not anybody is there to get it."""
        self._post((CAST, message, None))

    def send(self, message: object) -> None:
        """Send a message to `handle_info`."""
        self._post((INFO, message, None))

    async def call(self, message: object, timeout_s: float | None = 5.0) -> Any:
        """Send a message and wait for its reply."""
        self._check_reachable()
        loop = self.runtime.loop
        future: asyncio.Future[Any] = loop.create_future()
        self._post((CALL, message, Caller(future)))
        if timeout_s is not None:
            self.runtime.deadlines.add(future, timeout_s, self)
        return await future

    async def stop(self, reason: object = Exit.NORMAL, timeout_s: float | None = None) -> Reason:
        """Have it end after the messages that wait already; -> the reason it ended with.

        A timeout is raised here, and the actor ends all the same.
        """
        self._check_reachable()
        self._post((STOP, as_reason(reason), None))
        return await self.wait(timeout_s)

    def _check_reachable(self) -> None:
        if self._actor is None:
            raise NoSuchActor(f"{self!r} is not alive: {shown(self._reason)}")
        if self.busy_since is not None and asyncio.current_task() is self._task:
            raise CallingSelf(f"{self!r} would wait for itself for ever: use a cast, a plain method, or answer Stop")

    async def wait(self, timeout_s: float | None = None) -> Reason:
        """Wait for its end; -> the reason."""
        if not await all_ended((self,), timeout_s):
            raise CallTimeout(f"{self!r} has not ended after {timeout_s} s")
        assert self._reason is not None
        return self._reason

    def exit(self, reason: object = Exit.SHUTDOWN) -> None:
        """Tell it to end, with `terminate`: after the message in hand, before those that wait."""
        if self._actor is None:
            return
        idle = self._box is None
        self._hold().appendleft((STOP, as_reason(reason), None))
        if idle:
            self._wake()

    def kill(self) -> None:
        """End it now: no `terminate`, the message in hand is cancelled. Its children are killed with it."""
        if self._actor is None or self._killed:
            return
        if self.busy_since is None or self._task is None:
            self._die(Exit.KILLED)
            return
        self._killed = True
        self._task.cancel()
        self.runtime.loop.call_later(KILL_GRACE_S, self._abandon)

    def monitor(self, watcher: Ref) -> Monitor:
        """Have a `Down` sent to the watcher when this actor ends."""
        if self._reason is not None:
            gone = Monitor(self)
            watcher.send(Down(gone, self, Exit.NOPROC))
            return gone
        monitor = self._watch(lambda reason: watcher.send(Down(monitor, self, reason)))
        return monitor

    def timer(self, delay_s: float, message: object) -> Timer:
        """Send a message to `handle_info` after a delay."""
        return Timer(self, delay_s, message)

    def link(self, other: Ref) -> None:
        if other._reason is not None:
            self._linked_ended(other, Exit.NOPROC)
            return
        for one, two in ((self, other), (other, self)):
            if one._links is None:
                one._links = {}
            one._links[two] = None

    def unlink(self, other: Ref) -> None:
        for one, two in ((self, other), (other, self)):
            if one._links is not None:
                one._links.pop(two, None)

    # Starting

    async def start(self, args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float | None) -> bool:
        """Run `init`; -> False when it chose not to start. A failure leaves nothing behind."""
        actor = self._actor
        assert actor is not None
        answer: Any
        try:
            answer = self.runtime.context.copy().run(actor.init, *args, **kwargs)
        except BaseException as error:
            answer = _Raised(error)
        if answer.__class__ is CoroutineType:
            answer = await self._wait_for_init(answer, timeout_s)
        if self._actor is None and not isinstance(answer, _Raised):
            raise StartFailed(repr(self), self._reason or Exit.KILLED)  # it ended itself
        return self._begin(answer)

    async def _wait_for_init(self, init: Coroutine[Any, Any, object], timeout_s: float | None) -> object:
        self._hold()  # messages wait until init is done
        task = self._task = self.runtime.create_task(_caught(init))
        self.busy_since = self.runtime.clock.monotonic()
        over: asyncio.Future[None] = self.runtime.loop.create_future()

        def end(_: object) -> None:
            if not over.done():
                over.set_result(None)

        task.add_done_callback(end)
        killed = self._watch(end)  # and abandoned, if it ignored that
        try:
            await asyncio.wait({over}, timeout=timeout_s)
            if not over.done():
                self.kill()
                await over
                self._task = self.busy_since = None
                return _Raised(TimeoutError(f"init took longer than {timeout_s} s"))
        except asyncio.CancelledError:
            # The starter was cancelled, and its child is killed; whoever waits for the children waits for it, too.
            self.kill()
            task.add_done_callback(lambda _: self._die(Exit.KILLED))
            raise
        finally:
            killed.cancel()
        self._task = self.busy_since = None
        return Stop(Exit.KILLED) if self._killed or task.cancelled() else task.result()

    def _begin(self, answer: object) -> bool:
        match answer:
            case None:
                pass
            case Continue(term=term):
                self._hold().appendleft((CONTINUE, term, None))
            case Timeout(after_s=after_s):
                self._arm_idle(after_s)
            case Info(info=info):
                self.info = info
            case _Raised(error=error):
                self._vanish(error)
                raise StartFailed(repr(self), error) from error
            case Stop(reason=reason):  # or killed meanwhile
                self._vanish(as_reason(reason))
                raise StartFailed(repr(self), as_reason(reason))
            case _ if answer is IGNORE:
                self._vanish(Exit.NORMAL)
                return False
            case _:
                bad = Exit.FAILED(("bad_return", answer))
                self._vanish(bad)
                raise StartFailed(repr(self), bad)
        if self._box is not None:
            self._wake()
        return True

    def _vanish(self, reason: Reason) -> None:
        """End without having begun: nobody linked hears of it, the starter is told instead."""
        if self._parent is not None:
            self.unlink(self._parent)
        self._die(reason)

    # Ending

    def _end(self, reason: Reason, letter: Letter, reply: object = NOREPLY) -> Step | None:
        """End in order: `terminate`, then the death. -> a step when `terminate` has to wait."""
        actor = self._actor
        if actor is None:
            self._too_late(letter[2])
            return None
        if not is_clean(reason):
            self.runtime.report_crash(self, actor, reason, letter[1])
        end: Letter = (END, (reason, letter, reply), letter[2])
        try:
            answer: Any = actor.terminate(reason)
        except BaseException as error:
            self._finish(end, error)
            return None
        if answer.__class__ is CoroutineType:
            return end, answer
        self._finish(end, None)
        return None

    def _finish(self, end: Letter, error: BaseException | None) -> None:
        _, (reason, (_, message, _), reply), caller = end
        if error is not None and self._actor is not None:
            self.runtime.report_crash(self, self._actor, error, message)
        if caller is not None and reply is not NOREPLY:
            caller.reply(reply)
        elif caller is not None:
            caller.fail(ActorDied(repr(self), error or reason))
        self._die(error or reason)

    def _abandon(self) -> None:
        """Its handler ignores the cancellation: go on without it, and say so."""
        if self._actor is not None:
            self.runtime.events.emit("abandoned", actor=repr(self), after_s=KILL_GRACE_S)
            self._die(Exit.KILLED)

    def _die(self, reason: Reason) -> None:
        """The mailbox closes, then the children go, then the world hears of it."""
        if self._actor is None:
            return
        box, deferred, timers, step = self._box, self._deferred, self._timers, self._step
        self._actor = self._box = self._deferred = self._timers = self._step = None
        if self._task is not None and self.busy_since is None and self._task is not current_task():
            self._task.cancel()  # nothing is in its hands; it only ends
        if step is not None and self.busy_since is None:
            step[1].close()  # never begun
        self.busy_since = None
        for timer in timers or ():
            timer.drop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        in_hand = None if step is None else step[0][2]
        for caller in [in_hand, *(deferred or ()), *(letter[2] for letter in box or ())]:
            if caller is not None:
                caller.fail(ActorDied(repr(self), reason))
        children = [other for other in self._links or () if other._parent is self and other.alive]
        self._outlive(children, reason)
        for child in children:
            child._linked_ended(self, reason)

    def _outlive(self, children: list[Ref], reason: Reason) -> None:
        """Be dead when the last child is: a successor must not meet its predecessor's children."""
        left = len(children)
        if not left:
            self._bury(reason)

        def gone(_: Reason) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.runtime.loop.call_soon(self._bury, reason)  # not at once: a chain may be of any length

        for child in children:
            child._watch(gone)

    def _bury(self, reason: Reason) -> None:
        self._reason = reason
        self._task = None
        self.runtime.forget(self)
        links, monitors = self._links, self._monitors
        self._links = self._monitors = None
        for other in links or ():
            if other._links is not None:
                other._links.pop(self, None)
            other._linked_ended(self, reason)
        for told in list((monitors or {}).values()):
            told(reason)

    def _linked_ended(self, other: Ref, reason: Reason) -> None:
        """A linked actor has ended, or, if it is the parent, is ending."""
        actor = self._actor
        if actor is None:
            return
        from_parent = other is self._parent
        if from_parent and reason == Exit.KILLED:
            self.runtime.loop.call_soon(self.kill)
        elif actor.trap_exit and not from_parent:
            self._post((INFO, Exited(other, reason), None))
        elif from_parent or reason != Exit.NORMAL:
            self.exit(reason)
            if self._actor is not None:
                self.runtime.loop.call_later(ORPHAN_GRACE_S, self.kill)

    def _watch(self, told: Callable[[Reason], None]) -> Monitor:
        monitor = Monitor(self)
        if self._monitors is None:
            self._monitors = {}
        self._monitors[monitor] = told
        return monitor


class Monitor:
    """A standing request to be told of an actor's end."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Ref) -> None:
        self._ref = ref

    def cancel(self) -> None:
        if self._ref._monitors is not None:
            self._ref._monitors.pop(self, None)


class Timer:
    """A message on its way to its own actor."""

    __slots__ = ("_due", "_handle", "_message", "_ref")

    def __init__(self, ref: Ref, delay_s: float, message: object) -> None:
        self._ref = ref
        self._message = message
        self._due = ref.runtime.clock.monotonic() + delay_s
        self._handle = ref.runtime.loop.call_later(delay_s, self._fire)
        if ref._timers is None:
            ref._timers = {}
        ref._timers[self] = None

    def cancel(self) -> bool:
        """-> False when it was too late: the message is in the mailbox, or handled."""
        self._handle.cancel()
        return self._forget()

    def drop(self) -> None:
        self._handle.cancel()

    def _forget(self) -> bool:
        timers = self._ref._timers
        return timers is not None and timers.pop(self, self) is None

    def _fire(self) -> None:
        left = self._due - self._ref.runtime.clock.monotonic()
        if left > 0:  # a loop may round its timers down; a message is never early
            self._handle = self._ref.runtime.loop.call_later(left, self._fire)
        elif self._forget():
            self._ref.send(self._message)


async def all_ended(refs: Iterable[Ref], timeout_s: float | None = None) -> bool:
    """Wait for the end of all of these; -> False when the time was too short."""
    living = [ref for ref in refs if ref.alive]
    if not living:
        return True
    left = len(living)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def gone(_: Reason) -> None:
        nonlocal left
        left -= 1
        if not left and not done.done():
            done.set_result(None)

    monitors = [ref._watch(gone) for ref in living]
    try:
        await asyncio.wait({done}, timeout=timeout_s)
    finally:
        for monitor in monitors:
            monitor.cancel()
    return done.done()


@dataclass(frozen=True, slots=True)
class _Raised:
    """What `init` came to, when that is an exception."""

    error: BaseException


async def _caught(init: Coroutine[Any, Any, object]) -> object:
    """Any exception as a value: a task would let some of them through to the loop, and end the program."""
    try:
        return await init
    except BaseException as error:
        return _Raised(error)
