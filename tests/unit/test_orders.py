"""What is asked for, as a task: options read, defaults filled in, nonsense refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from raptor.catalogue import Catalogue
from raptor.errors import BadInput, NoSuchName
from raptor.orders import task_for
from raptor.rows import Line
from raptor.service import Service
from raptor.settlement import Repeat
from raptor.task import Task

NOW = 1_772_445_600.0  # 10:00 UTC on a Monday


def work(n: int = 0) -> None: ...


SERVICES = [
    Service(name="work", function=work),
    Service(name="set", function=work, queue="own", priority=1, max_attempts=9, active_s=60.0, codec="msgpack"),
    Service(name="endless", function=work, unlimited=True),
]


def order(service: str = "work", data: Any = None, lines: dict[str, Line] | None = None, **options: Any) -> Task:
    return task_for(service, data, Catalogue.of(SERVICES), lines or {}, NOW, **options)


def test_the_defaults() -> None:
    task = order()
    assert (task.queue, task.priority, task.due, task.max_attempts, task.data) == ("default", 5, NOW, 3, '{"n":0}')
    assert (task.key, task.timing, task.active_s, task.timeout_s, task.parent) == (None, None, None, None, None)


def test_the_service_says_the_rest_and_the_order_wins() -> None:
    task = order("set")
    assert (task.queue, task.priority, task.max_attempts, task.active_s) == ("own", 1, 9, 60.0)
    assert isinstance(task.data, bytes)
    task = order("set", queue="other", priority=0, max_attempts=2, active="5s", force=True)
    assert (task.queue, task.priority, task.max_attempts, task.active_s) == ("other", 0, 2, 5.0)


@pytest.mark.spec("003-12")
def test_attempts_of_the_order_the_service_the_queue_and_by_default() -> None:
    line = {"default": Line(name="default", max_attempts=7)}
    assert order(lines=line).max_attempts == 7
    assert order(lines={"default": Line(name="default", max_attempts=None)}).max_attempts is None
    assert order(lines=line, max_attempts=1).max_attempts == 1
    assert order(lines=line, max_attempts="unlimited").max_attempts is None
    assert order("endless", lines=line).max_attempts is None
    assert order("endless", lines=line, max_attempts=4).max_attempts == 4


@pytest.mark.spec("003-09", "003-13", "001-45", "001-46")
@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"in_": "30m"}, NOW + 1800),
        ({"in_": 1.5}, NOW + 1.5),
        ({"in_": timedelta(hours=2)}, NOW + 7200),
        ({"in_": 0}, NOW),
        ({"at": NOW + 5}, NOW + 5),
        ({"at": NOW - 5}, NOW - 5),
        ({"at": datetime(2026, 3, 2, 11, tzinfo=UTC)}, NOW + 3600),
        ({"at": "2026-03-02T11:00:00Z"}, NOW + 3600),
        ({"cron": "0 2 * * *", "timezone": "UTC"}, NOW + 16 * 3600),
        ({"every": "1h"}, NOW),
        ({"every": "1h", "in_": "5m"}, NOW + 300),
    ],
)
def test_when_it_is_due(options: dict[str, Any], due: float) -> None:
    assert order(**options).due == due


def test_the_example_of_the_design_57600_seconds_is_due_at_its_time() -> None:
    assert order(in_=57600).due == NOW + 57600


def test_how_it_repeats() -> None:
    def plan(**options: Any) -> Repeat:
        timing = order(**options).timing
        assert timing is not None
        return msgspec.json.decode(timing, type=Repeat)

    assert plan(every="1h", in_="5m") == Repeat(every_s=3600.0, origin=NOW + 300)
    assert plan(every="1h", anchor="end") == Repeat(every_s=3600.0, anchor="end", origin=NOW)
    assert plan(every="1h", anchor="slot") == Repeat(every_s=3600.0, anchor="grid", origin=NOW)
    assert plan(cron="0 2 * * *", timezone="UTC").cron == "0 2 * * *"


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"in_": "5s", "at": NOW}, "one of"),
        ({"in_": "5"}, "in: "),
        ({"in_": -1}, "in: "),
        ({"in_": True}, "in: "),
        ({"in_": float("nan")}, "in: "),
        ({"at": float("inf")}, "at: "),
        ({"at": True}, "at: "),
        ({"at": datetime(2026, 3, 2)}, "no zone"),
        ({"at": "yesterday noon or so"}, "yesterday"),
        ({"every": 0}, "every"),
        ({"every": "1h", "cron": "* * * * *"}, "one of"),
        ({"cron": "61 * * * *"}, "61"),
        ({"timezone": "UTC"}, "timezone"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "Mars"),
        ({"anchor": "end"}, "anchor"),
        ({"every": "1h", "anchor": "middle"}, "anchor"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"key": ""}, "key"),
        ({"key": "x" * 256}, "key"),
        ({"key": 5}, "key"),
        ({"key_for": "1h"}, "key_for"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": "many"}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"queue": "no spaces"}, "name"),
        ({"timeout": "x"}, "timeout"),
        ({"active": -5}, "active"),
        ({"parent": "me"}, "parent"),
        ({"parent": 2**63}, "parent"),
        ({"in_": 1e300}, "in: "),
        ({"max_attempts": 10**30}, "max_attempts"),
        ({"cron": "0 0 31 2 *"}, "31"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], about: str) -> None:
    with pytest.raises(BadInput, match=about):
        order(**options)


def test_an_unknown_service_is_refused_unless_that_is_meant() -> None:
    with pytest.raises(NoSuchName):
        order("wrok")
    task = order("elsewhere", {"any": "thing"}, force=True)
    assert (task.service, task.data) == ("elsewhere", '{"any":"thing"}')
    assert order("work", {"n": 1}, force=True).data == '{"n":1}'
    with pytest.raises(BadInput):
        order("no name", force=True)


def test_a_key_may_be_held_for_a_time() -> None:
    task = order(key="k", key_for="1h")
    assert (task.key, task.key_until) == ("k", NOW + 3600)


def test_a_queue_that_nobody_knows_is_refused_with_the_close_names() -> None:
    with pytest.raises(NoSuchName, match="no queue named 'onw': did you mean 'own'"):
        order(queue="onw")
    assert order(queue="own").queue == "own"  # another service's
    assert order(queue="onw", lines={"onw": Line(name="onw")}).queue == "onw"
    assert order(queue="onw", force=True).queue == "onw"
    with pytest.raises(BadInput):
        order(queue="o n w", force=True)
