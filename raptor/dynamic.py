"""Children of one kind, started at run time and stopped together: OTP's simple_one_for_one."""

from __future__ import annotations

import itertools
from typing import Any

from raptor.child import Child, ChildInfo, Counts
from raptor.childspec import ChildSpec, Flags
from raptor.errors import BadSpec, ChildError, RaptorError
from raptor.exits import Reason
from raptor.ref import Ref
from raptor.supervisor import Supervisor


class DynamicSupervisor(Supervisor):
    """Give it one ChildSpec as the template; `start_child(sup, *args)` adds a child with more arguments.

    Its children have no ids: they are named by their refs, restarted one by one and stopped in parallel.
    """

    def init(self, template: Any = None, /, **flags: Any) -> Any:
        self._set_up(_checked(Flags.from_mapping(flags), template))
        self.template = template
        self._keys = itertools.count()

    async def on_start_child(self, /, *args: Any, **kwargs: Any) -> Ref | RaptorError | None:
        child = Child(next(self._keys), self.template)
        child.args, child.kwargs = args, kwargs
        failed = await self._start(child)
        if failed is not None:
            return failed
        if child.ref is not None:
            self.children[child.key] = child
            if child.spec.restart == "temporary":
                child.args, child.kwargs = (), {}  # never needed again
        return child.ref

    async def on_terminate_child(self, key: object) -> RaptorError | None:
        if not isinstance(key, Ref):
            return ChildError("simple_one_for_one", key)
        child = self._find(key)
        if child is not None:
            await self._stop([child])
        return ChildError("not_found", key) if child is None and key.alive else None

    async def on_restart_child(self, key: object) -> RaptorError:
        return ChildError("simple_one_for_one", key)

    def on_delete_child(self, key: object) -> RaptorError:
        return ChildError("simple_one_for_one", key)

    def on_get_childspec(self, key: object) -> ChildSpec | RaptorError:
        known = key == self.template.id or self._find(key) is not None
        return self.template if known else ChildError("not_found", key)

    def on_which_children(self) -> list[ChildInfo]:
        return [ChildInfo(None, child.ref, child.restarting, child.spec.type) for child in self._newest_first()]

    def on_count_children(self) -> Counts:
        count = len(self.children)
        active = count - sum(child.restarting for child in self.children.values())
        supervises = self.template.type == "supervisor"
        return Counts(1, active, count if supervises else 0, 0 if supervises else count)

    def on_reconfigure(self, specs: tuple[ChildSpec, ...], flags: dict[str, Any]) -> RaptorError | None:
        """A new template: for new children, and for the others at their next restart."""
        try:
            if len(specs) != 1:
                raise BadSpec("template", f"expected exactly one ChildSpec, not {len(specs)}")
            changed = _checked(self.flags.changed(flags), specs[0])
        except BadSpec as wrong:
            return wrong
        self.flags, self.template = changed, specs[0]
        for child in self.children.values():
            child.spec = self.template
        return None

    def _find(self, key: object) -> Child | None:
        if not isinstance(key, Ref):
            return None
        return self._by_ref.get(key) or next(
            (child for child in self.children.values() if child.previous is key and child.restarting), None
        )

    def _forget(self, child: Child) -> None:
        super()._forget(child)
        self.children.pop(child.key, None)

    async def terminate(self, reason: Reason) -> None:
        await self._stop(list(self.children.values()))


def _checked(flags: Flags, template: object) -> Flags:
    if not isinstance(template, ChildSpec):
        raise BadSpec("template", f"expected exactly one ChildSpec, not {template!r}")
    if flags.strategy != "one_for_one":
        raise BadSpec("strategy", "a dynamic supervisor restarts its children one for one", template.id)
    if flags.auto_shutdown != "never":
        raise BadSpec("auto_shutdown", "not for a dynamic supervisor", template.id)
    flags.check_child(template)
    return flags
