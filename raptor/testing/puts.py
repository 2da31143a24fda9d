"""What was put, and the question whether something was, with an answer that shows what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from raptor.desk import name_of
from raptor.orders import Span
from raptor.task import Task
from raptor.timing import seconds, show_seconds

ANY: Any = object()
"""Whatever it was."""

_SAME_S = 0.001  # a due time is rounded to microseconds, and seconds are written with less


@dataclass(frozen=True, kw_only=True)
class Put:
    """A task, as it was asked for."""

    id: int
    service: str
    data: Any  # as plain values, with the defaults of the function
    in_s: float  # from when it was put to when it is due
    queue: str
    key: str | None

    def __str__(self) -> str:
        when = f" in_={show_seconds(self.in_s)!r}" if self.in_s > 0 else ""
        key = "" if self.key is None else f" key={self.key!r}"
        return f"{self.service} {self.data!r}{when}{key} queue={self.queue!r}"


class Puts(list[Put]):
    """All that was put, the oldest first."""

    def note(self, id: int, task: Task, now: float) -> Put:
        plain = msgspec.msgpack.decode(task.data) if isinstance(task.data, bytes) else msgspec.json.decode(task.data)
        put = Put(
            id=id,
            service=task.service,
            data=plain,
            in_s=round(max(0.0, task.due - now), 6),
            queue=task.queue,
            key=task.key,
        )
        self.append(put)
        return put

    def check(
        self,
        service: str | Callable[..., Any],
        data: Any = ANY,
        *,
        in_: Span | None = None,
        key: str | None = None,
        queue: str | None = None,
        times: int | None = None,
    ) -> None:
        """AssertionError unless such a task was put; `times` wants it so often, 0 never."""
        name = name_of(service)
        found = [
            put
            for put in self
            if put.service == name
            and (data is ANY or _fits(put.data, msgspec.to_builtins(data)))
            and (in_ is None or abs(put.in_s - length_s(in_)) < _SAME_S)
            and (key is None or put.key == key)
            and (queue is None or put.queue == queue)
        ]
        if len(found) == times or (times is None and found):
            return
        options = {"in_": in_, "key": key, "queue": queue}
        asked = "".join(f" {option}={value!r}" for option, value in options.items() if value is not None)
        wanted = f"{name}{'' if data is ANY else f' {data!r}'}{asked}"
        often = "was not put" if times is None else f"was put {len(found)} times, not {times}"
        raise AssertionError(f"{wanted} {often}; what was put:{_listed(self)}")


def _fits(put: Any, wanted: Any) -> bool:
    """Of named data those that are wanted count: the others have their defaults, or do not matter."""
    if isinstance(put, dict) and isinstance(wanted, dict):
        there, asked = cast("dict[str, Any]", put), cast("dict[str, Any]", wanted)
        return all(name in there and there[name] == value for name, value in asked.items())
    return bool(put == wanted)


def _listed(puts: Iterable[Put]) -> str:
    return "".join(f"\n  {put}" for put in puts) or " nothing"


def length_s(span: Span) -> float:
    """A duration as it is written, in seconds."""
    return float(span) if isinstance(span, int | float) else seconds(span)
