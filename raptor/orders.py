"""What is asked for, as a task: options read, data checked against the service, defaults filled in. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack, get_args

import msgspec

from raptor.catalogue import Catalogue
from raptor.due import rounded
from raptor.duration import LONGEST_S
from raptor.errors import BadInput, NoSuchName
from raptor.moment import read_moment
from raptor.payload import LIMIT, form_of
from raptor.rows import Line
from raptor.service import Anchor, Service
from raptor.settlement import Repeat
from raptor.task import Task
from raptor.timing import check_cron, check_name, check_zone, parse_cron, seconds

Span = str | float | timedelta
"""A duration: text such as "30m", seconds, or a timedelta."""

ATTEMPTS = 3
DEFAULT_QUEUE = "default"
ANCHORS = (None, *get_args(Anchor))
MOST_ATTEMPTS = 1_000_000
PLAIN = {"in_", "queue", "priority", "key", "key_for", "max_attempts", "active", "timeout", "parent", "force"}
"""Options of a task that is due once, now or after a time."""


class Order(TypedDict, total=False):
    """How a task is put. None means that an option is not given."""

    in_: Span | None  # from now
    at: str | float | datetime | None
    every: Span | None  # again and again
    cron: str | None
    timezone: str | None
    anchor: Anchor | None  # of `every`: the grid of the first due time, or the end of each run
    queue: str | None
    priority: int | None
    key: str | None  # one pending task of the service for each
    key_for: Span | None  # and none within that time, whatever became of the first
    max_attempts: int | Literal["unlimited"] | None
    active: Span | None
    timeout: Span | None
    parent: int | None
    force: bool  # also for a service that nobody here knows


def task_for(
    service: str,
    data: Any,
    catalogue: Catalogue,
    lines: Mapping[str, Line],
    now: float,
    limit: int = LIMIT,
    **order: Unpack[Order],
) -> Task:
    """The task that an order asks for; what does not fit is refused, and nothing is stored."""
    known = (
        Service(name=check_name(service))
        if order.get("force") and service not in catalogue
        else catalogue.find(service)
    )
    queue = order.get("queue") or known.queue
    if not isinstance(queue, str):
        raise BadInput(f"queue: a name, not {queue!r}")
    if queue != known.queue and queue != DEFAULT_QUEUE and queue not in lines and queue not in catalogue.queues:
        check_name(queue)
        if not order.get("force"):
            there = sorted({DEFAULT_QUEUE, *lines, *catalogue.queues})
            raise NoSuchName(
                "queue",
                queue,
                there,
                hint=f"set it up with `raptor queues {queue} --batch-size 10` or in raptor.toml, or force it",
            )
    due, repeat = _times(order, now)
    priority = _or(order.get("priority"), known.priority)
    if not (isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= 9):
        raise BadInput(f"priority: a whole number from 0 (first) to 9, not {priority!r}")
    key = order.get("key")
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= 255):
        raise BadInput("key: 1 to 255 characters")
    key_for = _span(order, "key_for")
    if key_for is not None and key is None:
        raise BadInput("key_for: goes with key, and there is none")
    form = form_of(known.function, known.batch is not None)
    return Task(
        queue=queue,
        service=service,
        data=form.encode(data, known.codec, limit),
        priority=priority,
        due=due,
        max_attempts=_attempts(order, known, lines.get(queue)),
        key=key,
        key_until=None if key_for is None else now + key_for,
        parent=_parent(order.get("parent")),
        active_s=_or(_span(order, "active"), known.active_s),
        timeout_s=_span(order, "timeout"),
        timing=None if repeat is None else msgspec.json.encode(repeat).decode(),
    )


def _times(order: Order, now: float) -> tuple[float, Repeat | None]:
    """When it is due first, and how it repeats."""
    if order.keys() <= PLAIN:
        return rounded(now + (_span(order, "in_") or 0.0)), None
    at, delay, cron, every = order.get("at"), _span(order, "in_"), order.get("cron"), _span(order, "every")
    if at is not None and delay is not None:
        raise BadInput("a time and a delay: give one of `at` and `in`")
    if cron is not None and every is not None:
        raise BadInput("a cron line and an interval: give one of `cron` and `every`")
    if order.get("timezone") is not None and cron is None:
        raise BadInput("timezone: goes with cron, and there is none")
    if order.get("anchor") is not None and every is None:
        raise BadInput("anchor: goes with every, and there is none")
    if order.get("anchor") not in ANCHORS:
        raise BadInput(f"anchor: {' or '.join(map(repr, ANCHORS[1:]))}, not {order.get('anchor')!r}")
    if every is not None and every <= 0:
        raise BadInput("every: a duration above zero")
    due = now if at is None else _moment(at, now)
    due = rounded(due + (delay or 0.0))
    if cron is not None:
        check_cron(cron)
        zone = order.get("timezone")
        if zone is not None:
            check_zone(zone)
        timing = parse_cron(cron, zone)
        due = rounded(timing.first(due))
        return due, Repeat(cron=cron, timezone=zone, origin=due)
    if every is None:
        return due, None
    # There is no slot of its own to count from: a task's due time moves with each retry.
    return due, Repeat(every_s=every, anchor="end" if order.get("anchor") == "end" else "grid", origin=due)


def _moment(at: str | float | datetime, now: float) -> float:
    match at:
        case str():
            return read_moment(at, now)
        case datetime():
            if at.tzinfo is None:
                raise BadInput(f"the time {at.isoformat()} has no zone; write one such as {at.isoformat()}+00:00")
            return at.timestamp()
        case bool():
            raise BadInput(f"at: a time is expected, not {at!r}")
        case int() | float() if math.isfinite(at) and 0 <= at < 1e11:
            return float(at)
        case _:
            raise BadInput(f"at: a time is expected, not {at!r}")


def _span(order: Order, name: str) -> float | None:
    value: Any = order.get(name)
    if value is None:
        return None
    try:
        return float(value) if _is_span(value) else 0.0 if value in ("0", "0s") else seconds(value)
    except BadInput as error:
        raise BadInput(f"{name.removesuffix('_')}: {error}") from None


def _is_span(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LONGEST_S


def _attempts(order: Order, service: Service, line: Line | None) -> int | None:
    asked = order.get("max_attempts")
    if asked == "unlimited" or (asked is None and service.unlimited):
        return None
    if asked is None:
        asked = _or(service.max_attempts, ATTEMPTS if line is None else line.max_attempts)
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= MOST_ATTEMPTS):
        raise BadInput(f'max_attempts: a whole number from 1 to {MOST_ATTEMPTS:,}, or "unlimited", not {asked!r}')
    return asked


def _parent(given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and 0 < given < 2**63):
        return given
    raise BadInput(f"parent: the number of a task, not {given!r}")


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
