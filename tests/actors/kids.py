"""Children for supervisors under test: they start as a diary plans, and write down what they do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from raptor.actor import IGNORE, Actor, Caller, Info, Stop
from raptor.childspec import ChildSpec
from raptor.clock import Clock
from raptor.exits import Exit, Reason
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, which_children

STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")

EXITS: dict[str, Reason] = {
    "normal": Exit.NORMAL,
    "shutdown": Exit.SHUTDOWN,
    "shutdown_term": Exit.SHUTDOWN("term"),
    "crash": Exit.FAILED("crash"),
    "kill": Exit.KILLED,
}
"""The ways to end, and the reason that each leaves behind (see `end`)."""


class Boom(Exception):
    """What a kid that fails raises."""


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the diary."""

    what: str  # started, refused or ended
    id: Hashable
    at: float
    ref: Ref
    reason: Reason | None = None


class Diary:
    """What the kids of one test did, in order, and what their next starts come to."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._plans: dict[Hashable, deque[str]] = {}
        self._news = asyncio.Event()

    def will(self, id: Hashable, *outcomes: str) -> None:
        """Plan the starts of a kid: ok, ignore, raise, stop, bad, info or hang; the last one goes on for ever."""
        self._plans[id] = deque(outcomes)

    def outcome(self, id: Hashable) -> str:
        plan = self._plans.get(id)
        if plan is None:
            return "ok"
        return plan.popleft() if len(plan) > 1 else plan[0]

    def write(self, note: Note) -> None:
        self.notes.append(note)
        self._news.set()

    @property
    def lines(self) -> list[tuple[str, Hashable]]:
        return [(note.what, note.id) for note in self.notes]

    def ids(self, what: str) -> list[Hashable]:
        """Who started, was refused or ended, in order."""
        return [note.id for note in self.notes if note.what == what]

    def times(self, what: str, id: Hashable) -> list[float]:
        return [note.at for note in self.notes if (note.what, note.id) == (what, id)]

    def refs(self, id: Hashable) -> list[Ref]:
        """Every incarnation of a kid, oldest first."""
        return [note.ref for note in self.notes if (note.what, note.id) == ("started", id)]

    def clear(self) -> None:
        self.notes.clear()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for the note that makes something true."""
        while not true():
            self._news.clear()
            await self._news.wait()

    async def written(self, what: str, id: Hashable, times: int = 1) -> Ref:
        """Wait until a kid has done something so many times; -> who did it last."""
        await self.until(lambda: len(self.times(what, id)) >= times)
        return [note.ref for note in self.notes if (note.what, note.id) == (what, id)][times - 1]


class Kid(Actor):
    """Its start is what the diary plans. Casts: a Stop, an exception to raise, or a function to run on it."""

    def init(self, diary: Diary, id: Hashable, *rest: Any, **more: Any) -> Any:
        self.diary, self.id, self.rest, self.more = diary, id, rest, more
        outcome = diary.outcome(id)
        self._write("started" if outcome in ("ok", "info") else "refused")
        match outcome:
            case "ok":
                return None
            case "info":
                return Info(f"extra of {id}")
            case "ignore":
                return IGNORE
            case "stop":
                return Stop("refusal")
            case "bad":
                return "nonsense"
            case "hang":
                return self._hang()
            case _:
                raise Boom(f"{id} does not start")

    def handle_call(self, message: object, caller: Caller) -> Any:
        return message(self) if callable(message) else (self.id, *self.rest)

    def handle_cast(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message(self) if callable(message) else message

    def terminate(self, reason: Reason) -> Any:
        self._write("ended", reason)

    def _write(self, what: str, reason: Reason | None = None) -> None:
        self.diary.write(Note(what, self.id, self.runtime.clock.monotonic(), self.ref, reason))

    async def _hang(self) -> None:
        await asyncio.get_running_loop().create_future()


class Parent(Actor):
    """Starts others linked to itself, and ends with them: it traps no exits."""

    def init(self) -> None:
        pass

    async def handle_call(self, message: tuple[type[Actor], tuple[Any, ...], dict[str, Any]], caller: Caller) -> Any:
        actor, args, kwargs = message
        try:
            return await self.start_link(actor, *args, **kwargs)
        except Exception as error:
            return error


def kid(diary: Diary, id: Hashable, *rest: Any, **fields: Any) -> ChildSpec:
    """The spec of a kid."""
    return ChildSpec(**{"id": id, "start": Kid, "args": (diary, id, *rest), **fields})


def kids(diary: Diary, ids: str, **fields: Any) -> list[ChildSpec]:
    """A spec for each letter."""
    return [kid(diary, id, **fields) for id in ids]


async def begin(runtime: Runtime, actor: type[Actor], *args: Any, **kwargs: Any) -> Ref:
    """Start an actor that must start."""
    ref = await runtime.start(actor, *args, **kwargs)
    assert ref is not None
    return ref


async def supervise(clock: Clock, children: Any = (), kind: type[Supervisor] = Supervisor, **flags: Any) -> Ref:
    """A supervisor on a quiet node of its own."""
    return await begin(Runtime(clock, log=False), kind, children, **flags)


async def end(ref: Ref, how: str) -> None:
    """Have a kid end in one of the EXITS; it is dead, and its supervisor has a message about it, when this returns."""
    if how == "kill":
        ref.kill()
    else:
        ref.cast(Stop(EXITS[how]))
    assert await ref.wait() == EXITS[how]


async def refs(sup: Ref) -> dict[Any, Ref | None]:
    """The children by id, in the order of starting; waits for what the supervisor has to do first."""
    return {info.id: info.ref for info in reversed(await which_children(sup))}


async def living(sup: Ref) -> dict[Any, Ref]:
    """As `refs`, where all of them run."""
    found = await refs(sup)
    running = {id: ref for id, ref in found.items() if ref is not None and ref.alive}
    assert running.keys() == found.keys(), f"not all run: {found}"
    return running
