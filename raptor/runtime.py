"""What the actors of one node share: clock, names, events, and the way to start them."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import reprlib
from collections.abc import Coroutine
from typing import Any

from raptor.actor import Actor, has_handlers
from raptor.clock import Clock, SystemClock
from raptor.deadlines import Deadlines
from raptor.errors import BadSpec, NameTaken, NoSuchActor, StartFailed
from raptor.events import Event, Events
from raptor.exits import Reason
from raptor.mailbox import LINGER_S, Mailbox
from raptor.ref import Ref

_log = logging.getLogger("raptor")

_LEVELS = {
    "crash": logging.ERROR,
    "abandoned": logging.ERROR,
    "stalled": logging.ERROR,
    "gave_up": logging.ERROR,
    "shutdown_error": logging.WARNING,
    "start_failed": logging.WARNING,
    "unexpected": logging.WARNING,
}


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxdict = _SHORT.maxlist = _SHORT.maxtuple = 20


class Runtime:
    """One node's actors. Made inside a running event loop; two of them know nothing of each other."""

    def __init__(self, clock: Clock | None = None, *, log: bool = True) -> None:
        self.clock = clock or SystemClock()
        self.events = Events(self.clock)
        self.loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(self.loop, self.clock)
        self.context = contextvars.copy_context()
        self.closed = False
        self._names: dict[str, Ref] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._checked: set[type[Actor]] = set()
        self._numbers = itertools.count(1)
        self._lingering: dict[Mailbox, asyncio.Future[None] | None] = {}  # and what each last waited on
        if log:
            # A turn later than soon: whoever mends what happened goes first.
            self.events.subscribe(lambda event: self.loop.call_soon(_to_log, event), *_LEVELS)

    async def start(
        self, actor: type[Actor], *args: Any, name: str | None = None, timeout_s: float | None = None, **kwargs: Any
    ) -> Ref | None:
        """Start an actor under nobody; it has begun when this returns. None: it chose not to start."""
        return await self.spawn(actor, args, kwargs, name=name, timeout_s=timeout_s)

    async def spawn(
        self,
        actor: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        name: str | None = None,
        parent: Ref | None = None,
        timeout_s: float | None = None,
    ) -> Ref | None:
        """Start an actor, linked to its parent if it is given one. See `start` and `Actor.start_link`."""
        if actor not in self._checked:
            _check_class(actor)
            self._checked.add(actor)
        if name is not None and name in self._names:
            raise NameTaken(name, self._names[name])
        if parent is not None and parent.actor is None:
            raise NoSuchActor(f"{parent!r} has ended and can start nothing")
        try:
            instance = actor()
        except Exception as error:
            raise StartFailed(actor.__name__, error) from error
        ref = Ref(self, instance, next(self._numbers), name, parent)
        instance.ref = ref
        instance.runtime = self
        if name is not None:
            self._names[name] = ref
        if parent is not None:
            parent.link(ref)
        return ref if await ref.start(args, kwargs, timeout_s) else None

    def whereis(self, name: str) -> Ref | None:
        """The live actor of that name."""
        return self._names.get(name)

    def forget(self, ref: Ref) -> None:
        """Free an ended actor's name."""
        if ref.name is not None and self._names.get(ref.name) is ref:
            del self._names[ref.name]

    def create_task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task in the actors' own context, not in that of whoever caused it."""
        task = self.loop.create_task(work, context=self.context.copy())
        self._tasks.add(task)  # the loop itself would let it be collected
        task.add_done_callback(self._tasks.discard)
        return task

    def is_closing(self) -> bool:
        """Whether the loop is ending: then, and only then, everything that it has to do is being cancelled."""
        return self.closed or all(task.cancelling() for task in asyncio.all_tasks(self.loop))

    def close(self) -> None:
        """Handle no more messages: there will be no loop to do so."""
        self.closed = True

    def lingers(self, mailbox: Mailbox) -> None:
        """Have the actor's task end once it has waited in vain for a while."""
        if not self._lingering:
            self.loop.call_later(LINGER_S / 2, self._sweep)
        self._lingering[mailbox] = None

    def _sweep(self) -> None:
        for mailbox, waiter in list(self._lingering.items()):
            waits_on = mailbox.rest(waiter)
            if waits_on is None:
                del self._lingering[mailbox]
            else:
                self._lingering[mailbox] = waits_on
        if self._lingering:
            self.loop.call_later(LINGER_S / 2, self._sweep)

    def report_crash(self, ref: Ref, actor: Actor, reason: Reason, message: object) -> None:
        """Tell of an abnormal end, with the last message and the state, without secrets."""
        if not self.events.heard("crash"):
            return
        parts = ("message", "state")
        try:
            redacted = actor.redact({"message": message, "state": _state(actor)})
            facts = {part: _SHORT.repr(redacted[part]) for part in parts}
        except BaseException as error:
            # Never the raw report: what could not be redacted is not shown.
            facts = dict.fromkeys(parts, f"<not shown: redact failed with {type(error).__name__}>")
        self.events.emit("crash", actor=repr(ref), reason=reason, **facts)


def _state(actor: Actor) -> dict[str, object]:
    return {key: value for key, value in vars(actor).items() if key not in ("ref", "runtime")}


def _check_class(actor: type[Actor]) -> None:
    if not (isinstance(actor, type) and issubclass(actor, Actor)):
        raise BadSpec("start", f"expected a subclass of Actor, not {actor!r}")
    if not has_handlers(actor):
        raise BadSpec(
            "start",
            f"{actor.__name__} handles nothing: give it handle_call, handle_cast, handle_info or handle_continue",
        )


def _to_log(event: Event) -> None:
    facts = " ".join(f"{key}={value!r}" for key, value in event.facts.items() if key != "reason")
    reason = event.facts.get("reason")
    trace = reason if isinstance(reason, BaseException) else None
    why = "" if reason is None or trace is not None else f" reason={reason!r}"
    _log.log(_LEVELS[event.name], "%s %s%s", event.name, facts, why, exc_info=trace)
