"""Putting tasks from a process of one's own: through the control socket of the node that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raptor.client import ask
from raptor.service import service_of
from raptor.state.base import Receipt
from raptor.wall import WallClock


class DoorDesk:
    """A desk at the other end of a socket. It blocks, or is awaited where an event loop runs."""

    def __init__(self, home: Path) -> None:
        self.home: Path | None = home
        self.now: Callable[[], float] = WallClock().now

    def put_from(self, service: str | Callable[..., Any], data: Any, **order: Any) -> Any:
        found = None if isinstance(service, str) else service_of(service)
        name = service if found is None else found.name
        given = {key: value for key, value in order.items() if value is not None}
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._put(name, data, given)
        return asyncio.to_thread(self._put, name, data, given)

    def _put(self, service: Any, data: Any, order: dict[str, Any]) -> Receipt:
        assert self.home is not None
        answer = ask(self.home, "put", {"service": service, "data": data, **order})
        return Receipt(answer["id"], answer["new"])
