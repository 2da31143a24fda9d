"""Runs a script on Raptor's supervisors, under the virtual clock."""

from __future__ import annotations

import asyncio
from typing import Any

from raptor import supervisor
from raptor.child import ChildFailed, ChildInfo
from raptor.childspec import ChildSpec
from raptor.clock import VirtualClock
from raptor.dynamic import DynamicSupervisor
from raptor.errors import ActorDied, BadSpec, ChildError, NoSuchActor, StartFailed
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor
from tests.otp.answers import Step, Steps, normal
from tests.otp.children import REASONS, Log, Stage, arguments, spec_of, word
from tests.otp.scripts import SIMPLE, STRANGER, SUB, TOP, Op, Script

_OTP_WORDS = {
    "id": "duplicate_child_name",
    "restart": "invalid_restart_type",
    "shutdown": "invalid_shutdown",
    "type": "invalid_child_type",
    "significant": "invalid_significant",
    "strategy": "invalid_strategy",
    "intensity": "invalid_intensity",
    "period_s": "invalid_period",
    "auto_shutdown": "invalid_auto_shutdown",
}
# How often a supervisor is asked whether it has come to rest: plans and intensities are far smaller.
_PATIENCE = 1000


def run(script: Script) -> Steps:
    """What Raptor answers, in normal form."""
    clock = VirtualClock()

    async def play() -> list[Step]:
        return await _Player(script, Runtime(clock, log=False)).steps()

    return normal(clock.run(play))


class _Player:
    """Plays one script: the supervisor's parent, as far as it has one."""

    def __init__(self, script: Script, runtime: Runtime) -> None:
        self.script = script
        self.runtime = runtime
        self.stage = Stage()

    async def steps(self) -> list[Step]:
        self.stage.log = log = await self.log()
        self.nobody = await self.log()
        self.nobody.kill()
        tree = self.script.tree
        try:
            children, flags = arguments(tree, self.stage)
            kind = DynamicSupervisor if tree.strategy == SIMPLE else Supervisor
            top = await self.runtime.start(kind, children, **flags)
        except (StartFailed, BadSpec) as failed:
            return [Step(_start_error(failed), "dead", [], [], [], await log.call("entries"))]
        assert top is not None
        self.top = top
        self.stage.names[top] = (TOP, 1)
        top.monitor(log)
        steps = [await self.step("ok")]
        for op in self.script.ops:
            alive = top.alive
            steps.append(await self.step(await self.do(op)))
            if not alive:
                break
        return steps

    async def log(self) -> Ref:
        log = await self.runtime.start(Log, self.stage.names)
        assert log is not None
        return log

    async def step(self, answer: Any) -> Step:
        await self.settle()
        log = await self.stage.log.call("entries")
        inner = self.inner()
        return Step(
            answer,
            self.state(log),
            await self.look(self.top, "which_children"),
            await self.look(self.top, "count_children"),
            [await self.look(inner, kind) for kind in ("which_children", "count_children")] if inner else [],
            log,
        )

    def state(self, log: list[list[Any]]) -> str:
        if self.top.alive:
            return "alive"
        return next((entry[3] for entry in log if entry[:2] == ["ended", TOP]), "dead")

    def inner(self) -> Ref | None:
        ref = self.stage.current.get(SUB)
        return ref if ref is not None and ref.alive else None

    async def settle(self) -> None:
        """Wait until nothing restarts, in either supervisor."""
        for _ in range(_PATIENCE):
            inner = self.inner()
            calm = await self.calm(inner) and await self.calm(self.top)
            if calm and self.inner() is inner:
                return
        raise TimeoutError("it does not come to rest")

    async def calm(self, sup: Ref | None) -> bool:
        if sup is None:
            return True
        try:
            return not any(child.restarting for child in await supervisor.which_children(sup))
        except (NoSuchActor, ActorDied):
            return True

    # What is done

    async def do(self, op: Op) -> Any:
        match op.kind:
            case "gate":
                return await self.hold(op)
            case "exit":
                return await self.leave(op)
            case _:
                return await self.ask(op)

    async def leave(self, op: Op) -> str:
        ref = self.top if op.target == TOP else self.stage.current.get(op.target)
        if ref is None or not ref.alive:
            return "noproc"
        if op.reason == "kill":
            ref.kill()
        elif op.target == TOP and op.reason == "shutdown":
            ref.exit(Exit.SHUTDOWN)
        elif op.target in (TOP, SUB):
            await ref.stop(REASONS[op.reason])
        else:
            ref.cast(op.reason)
        await ref.wait()
        return "ok"

    async def hold(self, op: Op) -> list[Any]:
        """End the target, hold its next start, do other things, and let it go on."""
        self.stage.shut(op.target)
        first = await self.leave(op)
        settling = asyncio.ensure_future(self.settle())
        gated = asyncio.ensure_future(self.stage.gated.wait())
        await asyncio.wait({settling, gated}, return_when=asyncio.FIRST_COMPLETED)
        if not gated.done():
            gated.cancel()
            self.stage.gate = ""
            return [first, "ungated"]
        # In its own start a supervisor runs at once with the one that starts it: nothing to compare.
        held = op.on == TOP or self.inner() is not None
        answers = [await self.aside(other, op.on) for other in op.during] if held else ["starting"]
        self.stage.released.set_result(op.outcome)
        await settling
        return [first, *[await a if isinstance(a, asyncio.Future) else a for a in answers]]

    async def aside(self, op: Op, held: str) -> Any:
        """Nothing waits for the supervisor that is held; the other one is let come to rest."""
        if op.target == TOP:
            stop = asyncio.ensure_future(self.stop_in_turn())
            await asyncio.sleep(0)
            return stop
        if op.kind != "exit" and op.on == held:
            answer = asyncio.ensure_future(self.ask(op))
            await asyncio.sleep(0)  # sent, before anything else is
            return answer
        done = await self.do(op)
        while op.on != held and not await self.calm(self.inner()):
            pass
        return done

    async def stop_in_turn(self) -> str:
        """As a message among others, which is how OTP's supervisor hears of its parent's wish."""
        if self.top.alive:
            await self.top.stop(Exit.SHUTDOWN)
        return "ok"

    async def look(self, sup: Ref, kind: str) -> Any:
        return await self.ask(Op(kind), sup)

    async def ask(self, op: Op, sup: Ref | None = None) -> Any:
        """A request to a supervisor; -> its answer in OTP's words."""
        sup = sup or (self.top if op.on == TOP else self.stage.current.get(SUB))
        if sup is None:
            return ["error", "noproc"]
        try:
            return await self.request(op, sup)
        except ChildError as refused:
            started = refused.ref if refused.answer == "already_started" else None
            return ["error", refused.answer, *(self.stage.names[started] if isinstance(started, Ref) else ())]
        except BadSpec as wrong:
            return ["error", _OTP_WORDS[wrong.field]]
        except StartFailed:
            return ["error", "failed"]
        except NoSuchActor:
            return ["error", "noproc"]
        except ActorDied as died:
            return ["error", word(died.reason)]

    async def request(self, op: Op, sup: Ref) -> Any:
        match op.kind:
            case "start_child":
                return await self.start_child(op, sup)
            case "start_dynamic":
                return self.born(await supervisor.start_child(sup, op.child))
            case "restart_child":
                return self.born(await supervisor.restart_child(sup, op.target))
            case "terminate_child":
                await supervisor.terminate_child(sup, op.target)
            case "terminate_dynamic":
                await supervisor.terminate_child(sup, self.someone(op.target))
            case "delete_child":
                await supervisor.delete_child(sup, op.target)
            case "get_childspec":
                return _spec_answer(await supervisor.get_childspec(sup, op.target))
            case "which_children":
                return [self.child(info) for info in await supervisor.which_children(sup)]
            case "count_children":
                counts = await supervisor.count_children(sup)
                return [counts.specs, counts.active, counts.supervisors, counts.workers]
        return "ok"

    async def start_child(self, op: Op, sup: Ref) -> list[Any]:
        assert op.child is not None
        try:
            spec = spec_of(op.child, self.stage)
        except BadSpec:
            # OTP finds the mistake in the supervisor, when its turn comes.
            await supervisor.count_children(sup)
            raise
        return self.born(await supervisor.start_child(sup, spec))

    def someone(self, name: str) -> Ref:
        """A dynamic child by its name here, a stranger, or somebody long dead."""
        return self.stage.log if name == STRANGER else self.stage.current.get(name, self.nobody)

    def born(self, ref: Ref | None) -> list[Any]:
        return ["ok", "undefined"] if ref is None else ["ok", *self.stage.names[ref]]

    def child(self, info: ChildInfo) -> list[Any]:
        if info.ref is None:
            name = "dynamic" if info.id is None else info.id
            return [name, "restarting" if info.restarting else "undefined", info.type]
        return [*self.stage.names[info.ref], info.type]


def _start_error(failed: StartFailed | BadSpec) -> list[Any]:
    match failed:
        case BadSpec(field=field) | StartFailed(reason=BadSpec(field=field)):
            return ["error", _OTP_WORDS[field]]
        case StartFailed(reason=Exit(term=ChildFailed(id=name))):
            return ["error", "failed_to_start_child", name]
        case _:
            return ["error", repr(failed)]


def _spec_answer(spec: ChildSpec) -> list[Any]:
    shutdown = spec.shutdown if isinstance(spec.shutdown, str) else round(spec.shutdown * 1000)
    return ["ok", spec.id, spec.restart, shutdown, str(spec.significant).lower(), spec.type]
