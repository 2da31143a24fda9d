"""The way of one process to the store, and what may happen on it.

A call is acknowledged, refused before a write, or its fate is unknown: written and the answer lost, or not.
A process may die before a write, after it, or between the write and the answer. What is written is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from raptor.errors import NotWritten, RefusedState
from raptor.state.base import Taken
from raptor.state.memory import MemoryStore
from raptor.state.prospect import is_sure
from raptor.task import Task

if TYPE_CHECKING:
    from tests.simulation.lives import Living

CALL_S = 20.0  # a call waits so long for a server that does not answer
SETTLE_S = 30.0  # and so long to hear what became of a commit
SAME = {"put", "take", "settle", "cancel", "revive", "drop", "save"}
"""Verbs whose second try with the same first argument joins the first: docs/decisions/0016."""

READS = {"load", "find", "stat", "queues", "upcoming", "history", "slots", "holders", "nodes"}

FLOW = {"put", "take", "settle", "extend"}
"""The steady flow of tasks, on a connection of its own."""


class Door:
    """A Store, for one life of a node."""

    def __init__(self, living: Living, image: MemoryStore) -> None:
        self.exclusive = image.exclusive
        self.broken = False
        self.shut_until = 0.0  # nothing passes before, by the loop's time
        self.calls = 0
        self._living = living
        self._world = living.world
        self._loop = living.world.loop
        self._image = image
        self._doubts: dict[int, tuple[Any, Any]] = {}  # by the identity of what was asked with: that, and the answer
        self._untold: dict[int, Taken] = {}  # of those, the takes
        self._found: list[Any] = []  # tasks that were taken, and nobody heard of it
        self._free_at: dict[str, float] = {}  # when a lane is done with the last call
        self._ears: list[tuple[set[Any], Any]] = []

    @property
    def sequence(self) -> int:
        return self._image.sequence

    @property
    def looks_ahead(self) -> bool:
        return self._world.foresees if self.exclusive else len(self._world.alive) == 1

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        verb = partial(self._call, name, getattr(self._image, name))
        setattr(self, name, verb)
        return verb

    async def close(self) -> None:
        self.deafen()

    # Hearing

    def listen(self) -> Any:
        bell = self._image.listen()
        self._ears.append((self._image._bells._bells, bell))  # pyright: ignore[reportPrivateUsage]
        return bell

    def watch(self) -> Any:
        watch = self._image.watch()
        self._ears.append((self._image._news._watches, watch))  # pyright: ignore[reportPrivateUsage]
        return watch

    def deafen(self) -> None:
        for crowd, ear in self._ears:
            crowd.discard(ear)

    def hear_again(self) -> None:
        """As after a connection that was made anew: anything may have happened."""
        queues = _at_once(self._image.queues())
        for crowd, ear in self._ears:
            crowd.add(ear)
            ear.hear(dict.fromkeys(queues, 0.0) if crowd is self._image._bells._bells else frozenset({("", "")}))  # pyright: ignore[reportPrivateUsage]

    # Calling

    async def _call(self, name: str, verb: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
        world, process = self._world, self._living.process
        self.calls += 1
        if world.point(process):
            await world.never()
        if self.broken:
            raise RefusedState("broken", "the image", "could not be written", "start again")
        about = args[0] if name in SAME and args else None
        if about is not None and (known := self._doubts.pop(id(about), None)) is not None and known[0] is about:
            self._untold.pop(id(about), None)
            await asyncio.sleep(0)
            return known[1]
        if name == "take" and not await is_sure(kwargs.get("prospect")):
            return Taken([], {})
        if name == "take" and (self._found or self._untold):
            found = [*self._found, *(task for taken in self._untold.values() for task in taken.tasks)]
            for wants in self._untold:
                self._doubts.pop(wants, None)
            self._found, self._untold = [], {}
            return Taken(found, {})
        world.rules.before(name, args)
        # On its own: whoever does not wait any longer leaves the work to be done.
        future: asyncio.Future[Any] = self._loop.create_future()
        fate = world.plan.of_call()
        lane = self._lane(name, args)
        work = partial(self._serve, future, fate, lane, name, verb, args, kwargs)
        free_at = self._free_at.get(lane, 0.0)
        if fate is None and max(self.shut_until, free_at) <= self._loop.now_s:
            self._loop.call_soon(work)
        else:
            self._delay(work, fate, lane, future)
        return await future

    def _lane(self, name: str, args: tuple[Any, ...]) -> str:
        """Calls of one lane are done one after the other: of files all are, of a server those of a connection."""
        if self.exclusive:
            return "disk"
        keyed = name in ("put", "settle") and any(_key(one) is not None for one in args[0])
        if name == "appear":
            return "session"
        return "looks" if name in READS else "flow" if name in FLOW and not keyed else "rest"

    def _delay(self, work: Callable[[], None], fate: str | None, lane: str, future: asyncio.Future[Any]) -> None:
        now, world = self._loop.now_s, self._world
        if fate is not None:
            world.note(self._living, fate)
        if self.shut_until > now and self.exclusive:
            self._loop.call_soon(_fail, future, "full")
            return
        if self.shut_until - now > CALL_S:  # a server that is not there is given up after a while
            self._loop.call_later(CALL_S, _fail, future, "unreachable")
            return
        serve_at = max(now, self.shut_until, self._free_at.get(lane, 0.0))
        if fate == "delay":
            wait_s = world.plan.rng.choice((0.01, 0.5, 5.0, 15.0))
            world.trouble(self._living, wait_s)
            serve_at += wait_s
            self._free_at[lane] = serve_at
        if serve_at > now:
            self._loop.call_at(serve_at, work)
        else:
            self._loop.call_soon(work)  # in its turn

    def _serve(
        self,
        future: asyncio.Future[Any],
        fate: str | None,
        lane: str,
        name: str,
        verb: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        world, living = self._world, self._living
        if fate in ("unreachable", "full", "busy"):
            world.trouble(living, 0.0)
            _fail(future, fate)
            return
        if fate == "broken":
            self.broken = True
            world.trouble(living, 0.0)
            future.set_exception(RefusedState("broken", "the image", "could not be written", "start again"))
            return
        if fate == "crash_before":
            world.kill(living)
            return
        if fate == "lost" and name not in READS:
            self._leave(future, lane)
            return
        try:
            answer = _at_once(verb(*args, **kwargs))
        except AssertionError:
            raise
        except Exception as error:  # a refusal
            world.trace(living, name, type(error).__name__)
            if not future.done():
                future.set_exception(error)
            return
        if (prospect := kwargs.get("prospect")) is not None and prospect.found is not None:
            prospect.found(answer.tasks)  # before it is given, and perhaps in vain
        world.trace(living, name, "" if fate is None else fate)
        world.rules.after(living, name, args, kwargs, answer)
        if fate == "crash_after" or world.point(living.process):
            if not living.process.dead:
                world.kill(living)
            return
        if fate == "unknown" and name not in READS:
            if name in SAME:
                self._doubts[id(args[0])] = args[0], answer
            if name == "take":
                self._untold[id(args[0])] = answer
            self._leave(future, lane)
        elif fate == "slow":
            wait_s = world.plan.rng.choice((0.01, 1.0, 10.0))
            world.trouble(living, wait_s)
            self._free_at[lane] = self._loop.now_s + wait_s
            self._loop.call_later(wait_s, self._answer, future, name, answer)
        else:
            self._answer(future, name, answer)

    def _leave(self, future: asyncio.Future[Any], lane: str) -> None:
        """Whoever waits is told that its fate is not known."""
        wait_s = self._world.plan.rng.choice((0.1, 5.0, SETTLE_S))
        self._world.trouble(self._living, wait_s)
        self._free_at[lane] = self._loop.now_s + wait_s
        self._loop.call_later(wait_s, _fail, future, "unknown")

    def _answer(self, future: asyncio.Future[Any], name: str, answer: Any) -> None:
        if not future.done():
            future.set_result(answer)
        elif name == "take" and not self.exclusive:
            self._found += answer.tasks


def _key(one: Any) -> str | None:
    """Of a task, or of the successor that a move puts."""
    task = one if isinstance(one, Task) else one.successor
    return None if task is None else task.key


def _fail(future: asyncio.Future[Any], reason: str) -> None:
    if not future.done():
        future.set_exception(NotWritten(reason, "the image", f"the simulation says: {reason}"))


def _at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a store in memory, which never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("a store in memory waited for something")
