"""OTP's supervisor: it starts its children in order, restarts those that end, and fails when that does not help.

The specifications are childspec.py's, children started at run time dynamic.py's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from raptor.actor import NOREPLY, Actor, Caller, Directive, Exited, Stop
from raptor.child import Child, ChildFailed, ChildInfo, Counts, shut_down
from raptor.childspec import BRUTAL_KILL, ChildSpec, Flags, is_hashable
from raptor.errors import BadSpec, ChildError, NameTaken, RaptorError, StartFailed, shown
from raptor.exits import Exit, Reason, is_clean
from raptor.ref import Ref, Timer


@dataclass(frozen=True, slots=True)
class _Request:
    """What the functions at the end of this file ask for."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _TryAgain:
    """To itself: a restart failed."""

    child: Child


@dataclass(frozen=True, slots=True)
class _Due:
    """To itself: the backoff of a restart is over."""

    child: Child
    attempt: int


_LOOK = object()  # to itself: look for stalled children


class Supervisor(Actor):
    """Static children in order. Give it ChildSpecs and Flags' fields, or subclass `init` and call it."""

    trap_exit = True
    supervises: ClassVar[bool] = True

    def init(self, children: Iterable[ChildSpec] = (), /, **flags: Any) -> Any:
        """Check everything, then start the children; one that fails stops those before it, in reverse."""
        self._set_up(Flags.from_mapping(flags))
        if isinstance(children, ChildSpec) or not isinstance(children, Iterable):
            raise BadSpec("children", f"expected a list of ChildSpecs, not {shown(children)}")
        specs = tuple(children)
        self.flags.check_children(specs)
        self.children.update((spec.id, Child(spec.id, spec)) for spec in specs)
        return self._start_all()

    def _set_up(self, flags: Flags) -> None:
        self.flags = flags
        self.children: dict[Hashable, Child] = {}  # in the order of starting
        self._by_ref: dict[Ref, Child] = {}
        self._restarts: deque[float] = deque()
        self._look: Timer | None = None
        self._look_s = math.inf

    async def _start_all(self) -> Directive | None:
        failed = await self._start_in_order(list(self.children.values()))
        if failed is None:
            return None
        await self._stop_in_reverse(list(self.children.values()))
        return Stop(Exit.SHUTDOWN(failed))

    # Requests

    def handle_call(self, message: object, caller: Caller) -> Any:
        if isinstance(message, _Request):
            return getattr(self, f"on_{message.name}")(*message.args, **message.kwargs)
        caller.fail(RaptorError(f"{self.ref!r} does not understand {shown(message)}"))
        return NOREPLY

    async def on_start_child(self, /, *args: object, **kwargs: object) -> Ref | RaptorError | None:
        match args:
            case (ChildSpec() as spec,) if not kwargs:
                pass
            case _:
                return BadSpec("children", f"expected one ChildSpec, not {args!r} {kwargs or ''}")
        try:
            self.flags.check_child(spec)
        except BadSpec as wrong:
            return wrong
        present = self.children.get(spec.id)
        if present is not None:
            answer = "already_present" if present.ref is None else "already_started"
            return ChildError(answer, spec.id, present.ref)
        child = Child(spec.id, spec)
        failed = await self._start(child)
        if failed is not None:
            return failed
        self.children[spec.id] = child
        if child.ref is None:
            self._forget(child)
        elif spec.restart == "temporary":
            # It will never be started again, so its arguments need not be kept alive.
            child.spec = replace(spec, args=(), kwargs={})
        return child.ref

    async def on_terminate_child(self, key: Hashable) -> RaptorError | None:
        child = self._find(key)
        if child is None:
            return ChildError("not_found", key)
        await self._stop_in_reverse([child])
        return None

    async def on_restart_child(self, key: Hashable) -> Ref | RaptorError | None:
        child = self._find_stopped(key)
        return child if isinstance(child, ChildError) else await self._start(child) or child.ref

    def on_delete_child(self, key: Hashable) -> RaptorError | None:
        child = self._find_stopped(key)
        if isinstance(child, ChildError):
            return child
        del self.children[child.key]
        return None

    def on_get_childspec(self, key: Hashable) -> ChildSpec | RaptorError:
        child = self._find(key)
        return ChildError("not_found", key) if child is None else child.spec

    def on_which_children(self) -> list[ChildInfo]:
        return [ChildInfo(child.key, child.ref, child.restarting, child.spec.type) for child in self._newest_first()]

    def on_count_children(self) -> Counts:
        children = self.children.values()
        active = sum(child.ref is not None and child.ref.alive for child in children)
        supervisors = sum(child.spec.type == "supervisor" for child in children)
        return Counts(len(children), active, supervisors, len(children) - supervisors)

    def on_reconfigure(self, specs: tuple[ChildSpec, ...], flags: dict[str, Any]) -> RaptorError | None:
        """New flags and specs: what runs goes on running, what is new waits to be started."""
        try:
            changed = self.flags.changed(flags)
            changed.check_children(specs)
        except BadSpec as wrong:
            return wrong
        children: dict[Hashable, Child] = {}
        for spec in specs:
            child = self.children.pop(spec.id) if spec.id in self.children else Child(spec.id, spec)
            child.spec = spec
            children[spec.id] = child
        self.children = children | self.children
        self.flags = changed
        return None

    def _newest_first(self) -> list[Child]:
        return list(reversed(self.children.values()))

    def _find(self, key: Hashable) -> Child | None:
        return self.children.get(key) if is_hashable(key) else None

    def _find_stopped(self, key: Hashable) -> Child | ChildError:
        child = self._find(key)
        if child is None:
            return ChildError("not_found", key)
        if child.restarting:
            return ChildError("restarting", key)
        return child if child.ref is None else ChildError("running", key, child.ref)

    # Children that end

    async def handle_info(self, message: object) -> Directive | None:
        match message:
            case Exited(ref=ref) if ref in self._by_ref:
                return await self._child_ended(self._by_ref.pop(ref), message.reason)
            case _TryAgain(child=child) if child.restarting:
                return await self._restart(child)
            case _Due(child=child, attempt=attempt) if child.restarting and child.attempt == attempt:
                return await self._attempt(child)
            case Exited() | _TryAgain() | _Due():
                pass  # about a child that was stopped meanwhile
            case _ if message is _LOOK:
                self._look_for_stalls()
            case _:
                super().handle_info(message)
        return None

    def handle_cast(self, message: object) -> Any:
        return super().handle_info(message)

    async def _child_ended(self, child: Child, reason: Reason) -> Directive | None:
        self._tell("child_ended", child, reason=reason)
        child.previous, child.ref = child.ref, None
        assert child.previous is not None
        lived_s = self.runtime.clock.monotonic() - child.previous.started_at
        if self.flags.backoff is not None and lived_s >= self.flags.backoff.max_s:
            child.streak = 0
        match child.spec.restart:
            case "permanent":
                return await self._restart(child)
            case "transient" if not is_clean(reason):
                return await self._restart(child)
            case _:
                self._forget(child)
                return self._shutdown_if_significant(child)

    def _shutdown_if_significant(self, child: Child) -> Directive | None:
        if not child.spec.significant:
            return None
        match self.flags.auto_shutdown:
            case "any_significant":
                return Stop(Exit.SHUTDOWN)
            case "all_significant" if not any(
                other.spec.significant and (other.ref or other.restarting) for other in self.children.values()
            ):
                return Stop(Exit.SHUTDOWN)
            case _:
                return None

    async def _restart(self, child: Child) -> Directive | None:
        """Restart a child, with its siblings as the strategy says: now, or after the backoff; or give up."""
        if self._too_many_restarts():
            self._tell("gave_up", child, intensity=self.flags.intensity, period_s=self.flags.period_s)
            self._forget(child)
            return Stop(Exit.SHUTDOWN)
        child.streak += 1
        child.attempt += 1
        if self.flags.backoff is None:
            return await self._attempt(child)
        await self._stop_siblings(child)
        child.restarting = True
        self.send_after(self.flags.backoff.delay_s(child.streak, self.runtime.clock.rng), _Due(child, child.attempt))
        return None

    async def _attempt(self, child: Child) -> Directive | None:
        group = await self._stop_siblings(child)
        failed = await self._start_in_order(group)
        if failed is None:
            return None
        culprit = self.children[failed.id]
        culprit.restarting = True
        # By a message to itself, so that requests are answered while a child cannot start.
        self.ref.send(_TryAgain(culprit))
        return None

    async def _stop_siblings(self, child: Child) -> list[Child]:
        """Stop those that are restarted with this child; -> it and them, less the temporary ones, in order."""
        group = self._group(child)
        await self._stop_in_reverse([member for member in group if member is not child])
        return [member for member in group if member.key in self.children]

    def _group(self, child: Child) -> list[Child]:
        """Who is restarted when this child is, in the order of starting."""
        children = list(self.children.values())
        match self.flags.strategy:
            case "one_for_one":
                return [child]
            case "rest_for_one":
                return children[children.index(child) :]
            case "one_for_all":
                return children

    def _too_many_restarts(self) -> bool:
        """Count a restart. One whose age is just the period still counts."""
        now = self.runtime.clock.monotonic()
        while self._restarts and self._restarts[0] < now - self.flags.period_s:
            self._restarts.popleft()
        self._restarts.append(now)
        return len(self._restarts) > self.flags.intensity

    # Starting and stopping

    async def _start_in_order(self, children: list[Child]) -> ChildFailed | None:
        for child in children:
            error = await self._start(child)
            if error is not None:
                return ChildFailed(child.key, error.reason if type(error) is StartFailed else error)
            if child.ref is None:
                self._forget(child)
        return None

    async def _start(self, child: Child) -> RaptorError | None:
        spec = child.spec
        child.restarting = False
        try:
            child.ref = await self.runtime.spawn(
                spec.start,
                (*spec.args, *child.args),
                {**spec.kwargs, **child.kwargs},
                name=spec.name,
                parent=self.ref,
                timeout_s=spec.start_timeout_s,
            )
        except RaptorError as caught:
            error = caught if type(caught) is not NameTaken else NameTaken(caught.name, caught.ref, child.key)
            self._tell("start_failed", child, error=shown(error))
            return error
        child.previous = None
        if child.ref is not None:
            child.starts += 1
            self._by_ref[child.ref] = child
            self._tell("child_started", child)
            if spec.stall_s is not None:
                self._look_within(spec.stall_s)
        return None

    async def _stop_in_reverse(self, children: list[Child]) -> None:
        for child in reversed(children):
            await self._stop([child])

    async def _stop(self, children: list[Child]) -> None:
        """Ask these (all of one kind) to end, wait, then kill those left."""
        refs = [child.ref for child in children if child.ref is not None]
        for ref in refs:
            self._by_ref.pop(ref, None)  # its end is no news
        if refs:
            await shut_down(refs, children[0].spec.shutdown)
        for child in children:
            if child.ref is not None:
                self._tell_stopped(child, child.ref)
            self._forget(child)

    def _forget(self, child: Child) -> None:
        """It does not run: a temporary child is gone, the spec of any other stays."""
        child.ref = child.previous = None
        child.restarting = False
        if child.spec.restart == "temporary":
            self.children.pop(child.key, None)

    async def terminate(self, reason: Reason) -> None:
        await self._stop_in_reverse(list(self.children.values()))

    # Watching

    def _look_within(self, stall_s: float) -> None:
        look_s = stall_s / 4
        if look_s < self._look_s:
            if self._look is not None:
                self._look.cancel()
            self._look_s = look_s
            self._look = self.send_after(look_s, _LOOK)

    def _look_for_stalls(self) -> None:
        """Kill whoever has been busy with one message for too long. Idle children are not touched."""
        self._look_s = math.inf
        now = self.runtime.clock.monotonic()
        for child in self.children.values():
            limit_s = child.spec.stall_s
            if child.ref is None or limit_s is None:
                continue
            since = child.ref.busy_since
            if since is not None and now - since >= limit_s and not child.ref.killed:
                self._tell("stalled", child, busy_s=now - since, limit_s=limit_s)
                child.ref.kill()
            self._look_within(limit_s)

    def _tell(self, event: str, child: Child, **facts: object) -> None:
        if self.runtime.events.heard(event):
            self.runtime.events.emit(event, supervisor=repr(self.ref), child=child.key, actor=repr(child.ref), **facts)

    def _tell_stopped(self, child: Child, ref: Ref) -> None:
        reason = ref.reason
        assert reason is not None
        expected = Exit.KILLED if child.spec.shutdown == BRUTAL_KILL else Exit.SHUTDOWN
        fine = reason == expected or (child.spec.restart != "permanent" and is_clean(reason))
        self._tell("child_ended" if fine else "shutdown_error", child, reason=reason)


async def start_child(sup: Ref, /, *args: Any, **kwargs: Any) -> Ref | None:
    """Add a child by its ChildSpec and start it; under a DynamicSupervisor, start one more with these arguments.

    None: it chose not to start.
    """
    result: Ref | None = await _ask(sup, "start_child", *args, **kwargs)
    return result


async def terminate_child(sup: Ref, child: Hashable) -> None:
    """Stop a child and leave it stopped; by its id, or by its ref under a DynamicSupervisor."""
    await _ask(sup, "terminate_child", child)


async def restart_child(sup: Ref, id: Hashable) -> Ref | None:
    """Start a child that was stopped."""
    result: Ref | None = await _ask(sup, "restart_child", id)
    return result


async def delete_child(sup: Ref, id: Hashable) -> None:
    """Forget a stopped child."""
    await _ask(sup, "delete_child", id)


async def get_childspec(sup: Ref, child: Hashable) -> ChildSpec:
    result: ChildSpec = await _ask(sup, "get_childspec", child)
    return result


async def which_children(sup: Ref) -> list[ChildInfo]:
    """All children, newest first."""
    result: list[ChildInfo] = await _ask(sup, "which_children")
    return result


async def count_children(sup: Ref) -> Counts:
    result: Counts = await _ask(sup, "count_children")
    return result


async def reconfigure(sup: Ref, children: Iterable[ChildSpec], **flags: Any) -> None:
    """Change specs and flags without stopping anything; a wrong one changes nothing."""
    await _ask(sup, "reconfigure", tuple(children), flags)


async def _ask(sup: Ref, name: str, /, *args: Any, **kwargs: Any) -> Any:
    answer = await sup.call(_Request(name, args, kwargs), timeout_s=None)
    if isinstance(answer, RaptorError):
        raise answer
    return answer
