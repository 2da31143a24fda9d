"""Children for Raptor's supervisors that start, end and stop as a script says, and what they share."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

from raptor.actor import IGNORE, Actor, Caller, Down, Stop
from raptor.childspec import ChildSpec
from raptor.dynamic import DynamicSupervisor
from raptor.exits import Exit, Reason
from raptor.ref import Ref
from raptor.supervisor import Supervisor
from tests.otp.scripts import SIMPLE, TEMPLATE, Child, Tree

# Longer than any limit that is not infinity, and many times within the period of an intensity.
_SLOW_S = 10.0


class Crash(Exception):
    """What an abnormal end is in these scripts."""


REASONS: dict[str, Reason] = {
    "normal": Exit.NORMAL,
    "shutdown": Exit.SHUTDOWN,
    "term": Exit.SHUTDOWN("term"),
    "crash": Crash(),
}


class Log(Actor):
    """Starts and ends, in the order in which they happened: its mailbox keeps it."""

    def init(self, names: dict[Ref, tuple[str, int]]) -> None:
        self.names = names
        self.entries: list[list[Any]] = []

    def handle_info(self, message: Any) -> None:
        match message:
            case Down(ref=ref, reason=reason):
                self.entries.append(["ended", *self.names[ref], word(reason)])
            case entry:
                self.entries.append(entry)

    def handle_call(self, message: object, caller: Caller) -> object:
        entries, self.entries = self.entries, []
        return entries


class Stage:
    """What the children of one script share: plans, births, and the gate."""

    def __init__(self) -> None:
        self.names: dict[Ref, tuple[str, int]] = {}
        self.current: dict[str, Ref] = {}
        self.gate = ""
        self.gated = asyncio.Event()
        self.released: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.log: Ref  # who keeps the log
        self._births: dict[str, int] = {}
        self._tries: dict[int, int] = {}

    async def outcome(self, child: Child) -> str:
        """What this start is to come to; waits if the gate is shut for it."""
        if child.id == self.gate:
            self.gate = ""
            self.gated.set()
            outcome = await self.released
        else:
            tried = self._tries.get(child.key, 0)
            self._tries[child.key] = tried + 1
            outcome = child.starts[tried] if tried < len(child.starts) else "ok"
        if outcome != "ok":
            self.log.send(["ignored" if outcome == "ignore" else "refused", child.id])
        return outcome

    def shut(self, name: str) -> None:
        self.gate = name
        self.gated.clear()
        self.released = asyncio.get_running_loop().create_future()

    def up(self, ref: Ref, name: str) -> None:
        births = self._births[name] = self._births.get(name, 0) + 1
        self.names[ref] = (name, births)
        self.current[name] = ref
        self.log.send(["started", name, births])
        ref.monitor(self.log)


class Worker(Actor):
    """A child that starts, leaves and stops as its script says."""

    async def init(self, stage: Stage, child: Child) -> object:
        self.child = child
        self.leaves = False
        match await stage.outcome(child):
            case "ignore":
                return IGNORE
            case "error":
                return Stop(Crash())
        stage.up(self.ref, child.id)
        return None

    def handle_cast(self, reason: str) -> Stop:
        self.leaves = True
        if reason == "crash":
            raise Crash
        return Stop(REASONS[reason])

    def terminate(self, reason: Reason) -> Coroutine[Any, Any, None] | None:
        if self.leaves or self.child.stop == "obey":
            return None
        match self.child.stop, self.child.shutdown:
            case "crash", _:
                raise Crash
            case "slow", "infinity":
                return asyncio.sleep(_SLOW_S)
            case "slow", _:
                return asyncio.sleep(1)
            case _:
                return _for_ever()


async def _for_ever() -> None:
    # Not by sleeping: if nobody ends this, virtual time stands still, and says so.
    await asyncio.get_running_loop().create_future()


class _Static(Supervisor):
    """The inner supervisor."""

    async def init(self, stage: Stage, child: Child) -> object:  # type: ignore[override]
        return await _start_inner(self, super().init, stage, child)


class _Dynamic(DynamicSupervisor):
    """The inner supervisor, if it is dynamic."""

    async def init(self, stage: Stage, child: Child) -> object:  # type: ignore[override]
        return await _start_inner(self, super().init, stage, child)


async def _start_inner(inner: Supervisor, init: Any, stage: Stage, child: Child) -> object:
    assert child.inner is not None
    match await stage.outcome(child):
        case "ignore":
            return IGNORE
        case "error":
            return Stop(Crash())
    children, flags = arguments(child.inner, stage)
    answer = init(children, **flags)
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, Stop):
        stage.log.send(["refused", child.id])
    else:
        stage.up(inner.ref, child.id)
    return answer


def spec_of(child: Child, stage: Stage) -> ChildSpec:
    start: type[Actor] = Worker
    if child.inner:
        start = _Dynamic if child.inner.strategy == SIMPLE else _Static
    shutdown: Any = child.shutdown
    return ChildSpec(
        id=child.id,
        start=start,
        args=(stage,) if child.id == TEMPLATE else (stage, child),
        restart=child.restart,  # type: ignore[arg-type]
        shutdown=shutdown / 1000 if isinstance(shutdown, int) else shutdown,
        significant={"true": True, "false": False}.get(child.significant, child.significant),  # type: ignore[arg-type]
        type=child.type,  # type: ignore[arg-type]
        start_timeout_s=None,
    )


def arguments(tree: Tree, stage: Stage) -> tuple[Any, dict[str, Any]]:
    specs = [spec_of(child, stage) for child in tree.children]
    flags = {
        "intensity": tree.intensity,
        "period_s": float(tree.period),
        "auto_shutdown": tree.auto_shutdown,
    }
    if tree.strategy == SIMPLE:
        return specs[0], flags
    return specs, {**flags, "strategy": tree.strategy}


def word(reason: object) -> str:
    match reason:
        case Crash():
            return "crash"
        case Exit(kind=kind, term=None):
            return kind
        case Exit(kind=kind, term=term):
            return f"{kind}_{term}"
        case _:
            return repr(reason)
