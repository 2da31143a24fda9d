"""The node that a program is inside of, for `function.put(...)`: set by `async with Node` and `with running`."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from raptor.errors import NotRunning

if TYPE_CHECKING:
    from raptor.catalogue import Catalogue
    from raptor.rows import Line


class Known(NamedTuple):
    """What a task is made by."""

    catalogue: Catalogue
    lines: Mapping[str, Line]  # queues, as they were set
    schema: str = "raptor"  # of a store on PostgreSQL


class Putting(Protocol):
    """Takes tasks: to be awaited where it is asked on its event loop, at once elsewhere."""

    def put_from(self, service: Any, data: Any, **order: Any) -> Any: ...

    def known(self) -> Known: ...


CURRENT: ContextVar[Putting | None] = ContextVar("raptor.current", default=None)


class Putter:
    """`send_email.put(to=...)`: a task for the service, into the node that the program is inside of."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, **data: Any) -> Any:
        node = CURRENT.get()
        if node is None:
            raise NotRunning(
                f"no node here to put {self._service} into: call it inside `async with raptor.Node(...)` or"
                " `with raptor.running(...)`, or use `raptor put`"
            )
        return node.put_from(self._service, data or None)
