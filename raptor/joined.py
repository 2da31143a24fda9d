"""The client of a node that runs in another process, with the methods of a node, for a synchronous program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from raptor.connect import Connection
from raptor.current import Known
from raptor.desk import Named, name_of, output_of
from raptor.orders import Order
from raptor.state.postgres.address import schema_of
from raptor.timing import show_seconds


class Joined(Connection):
    """What `running(join=True)` gives where a node runs already. Leaving it leaves the node as it is."""

    def start(self, name: str, interval: str | timedelta | None = None) -> dict[str, Any]:
        given = show_seconds(interval.total_seconds()) if isinstance(interval, timedelta) else interval
        return self.call("start", name=name, interval=given)

    def schedule(self, name: str, services: Sequence[str]) -> dict[str, Any]:
        return self.call("schedule", name=name, services=list(services))

    def status(self, name: str | None = None) -> dict[str, Any]:
        return self.call("status", name=name)

    def stop(self, name: str) -> dict[str, Any]:
        return self.call("stop", name=name)

    def pause(self, name: str, note: str = "") -> dict[str, Any]:
        return self.call("pause", name=name, note=note)

    def resume(self, name: str) -> dict[str, Any]:
        return self.call("resume", name=name)

    def run(self, service: str) -> dict[str, Any]:
        return self.call("run", service=service)

    def put(self, service: Named, data: Any = None, *, replace: bool = False, **order: Unpack[Order]) -> Put:
        """Put a task; it is durable when this returns."""
        answer = self.call("put", service=name_of(service), data=data, replace=replace, **_plain(order))
        return Put(self, answer["id"], answer["new"])

    def put_many(self, service: Named, many: Iterable[Any], **order: Unpack[Order]) -> list[int]:
        ids: list[int] = self.call("put", service=name_of(service), many=list(many), **_plain(order))["ids"]
        return ids

    def put_from(self, service: Named, data: Any, **order: Any) -> Put:
        return self.put(service, data, **order)

    def known(self) -> Known:
        """As this program has it: the node's own list is not asked for."""
        lines = {line.name: line for line in self._config.queues}
        return Known(self._config.catalogue(self._given), lines, schema_of(self._config.store))


class Put:
    """A task that was put."""

    def __init__(self, node: Joined, id: int, new: bool) -> None:
        self.id = id
        self.new = new
        self._node = node

    def result(self, timeout_s: float | None = None) -> Any:
        """What the service returned, when it has ended; TaskFailed if it is dead or cancelled."""
        return output_of(self._node.call("wait", id=self.id, timeout_s=timeout_s))


def _plain(order: Order) -> dict[str, Any]:
    """Options as the socket carries them."""
    return {option: _value(value) for option, value in order.items() if value is not None}


def _value(value: object) -> object:
    match value:
        case timedelta():
            return value.total_seconds()
        case datetime() if value.tzinfo is not None:
            return value.timestamp()
        case _:
            return value
