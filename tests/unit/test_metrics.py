"""What is counted of which event, the collector in its registry, and how an endpoint is written."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge

from raptor.clock import Clock, SystemClock
from raptor.endpoint import Endpoint, read_endpoint
from raptor.errors import BadInput, NotWritten
from raptor.events import Events
from raptor.exits import Exit
from raptor.metrics import FRESH_S, Metrics
from raptor.settlement import move
from raptor.state.base import Counts
from raptor.task import Again, Dead, Done, Outcome, Result, Retry, Run, Slot, Task, Verdict

OK, FAILED = Result(outcome=Outcome.OK), Result(outcome=Outcome.FAILED, info="no")
STOPPED = Result(outcome=Outcome.INTERRUPTED)


class Bench:
    """Metrics of a node that is played by the test."""

    def __init__(self, clock: Clock, registry: CollectorRegistry | None = None, namespace: str = "raptor") -> None:
        self.clock = clock
        self.events = Events(clock)
        self.registry = registry or CollectorRegistry()
        self.counts = [Counts(queue="mail", ready=2, delayed=3, dead=4, oldest=clock.now() - 5)]
        self.asked = 0
        self.error: Exception | None = None
        self.metrics = Metrics(
            self.registry, self.events, clock, counts=self.stat, workers=lambda: 1, namespace=namespace
        )

    async def stat(self) -> list[Counts]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.counts

    async def told(self, name: str, **facts: Any) -> None:
        self.events.emit(name, **facts)
        await asyncio.sleep(0)

    async def started(self, task: Task) -> None:
        await self.told("task_started", id=task.id, task=task, run=f"{task.id}.{task.fence}")

    async def ended(self, task: Task, result: Result, verdict: Verdict) -> None:
        change = move(task, verdict, result, self.clock.now())
        facts = {"id": task.id, "state": change.state, "result": result, "verdict": verdict, "move": change}
        await self.told("task_ended", task=task, **facts)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"raptor_{name}", labels)


@pytest.fixture
def task(clock: Clock) -> Task:
    return Task(id=7, queue="mail", service="send", due=clock.now() - 2.0, started=clock.now(), fence=1)


@pytest.mark.spec("003-45", "003-47", "001-58")
async def test_a_task_is_in_progress_from_its_start_to_its_end(clock: Clock, task: Task) -> None:
    bench = Bench(clock)
    await bench.started(task)
    assert bench.value("queue_tasks_in_progress", queue="mail") == 1
    assert bench.value("queue_running_job_processors") == 1
    assert bench.value("task_lateness_seconds_sum", queue="mail") == 2.0
    await bench.ended(task, OK, Done())
    assert bench.value("queue_tasks_in_progress", queue="mail") == 0
    assert bench.value("queue_running_job_processors") == 0


@pytest.mark.spec("003-47")
async def test_a_batch_is_many_tasks_in_one_lane(clock: Clock, task: Task) -> None:
    bench = Bench(clock)
    for id in range(3):
        one = Task(id=id, queue="mail", service="send", due=clock.now(), fence=1)
        await bench.told("task_started", id=id, task=one, run="0.1")
    assert bench.value("queue_tasks_in_progress", queue="mail") == 3
    assert bench.value("queue_running_job_processors") == 1


@pytest.mark.spec("R3-03", "001-59")
@pytest.mark.parametrize(
    ("result", "verdict", "processed", "errors", "retried"),
    [
        (OK, Done(), 1, 0, 0),
        (OK, Retry(1.0), 1, 0, 1),
        (FAILED, Retry(1.0), 1, 1, 1),
        (FAILED, Dead("failed"), 1, 1, 0),
        (Result(outcome=Outcome.TIMED_OUT), Retry(1.0), 1, 1, 1),
        (STOPPED, Again(1.0), None, None, None),
    ],
)
async def test_ends_are_counted_by_what_they_were(
    clock: Clock, task: Task, result: Result, verdict: Verdict, processed: int, errors: int, retried: int
) -> None:
    bench = Bench(clock)
    await bench.ended(task, result, verdict)
    assert bench.value("tasks_processed_total", queue="mail") == processed
    assert bench.value("tasks_errors_total", queue="mail") == errors
    assert bench.value("tasks_retried_total", queue="mail") == (retried or None)


@pytest.mark.parametrize(
    ("reason", "label"),
    [("failed", "failed"), ("bad payload: no", "bad payload"), ("as the customer wished", "other")],
)
async def test_a_reason_of_a_service_makes_no_time_series(clock: Clock, task: Task, reason: str, label: str) -> None:
    bench = Bench(clock)
    await bench.ended(task, OK, Dead(reason))
    assert bench.value("tasks_dead_total", queue="mail", reason=label) == 1


@pytest.mark.spec("003-44", "003-33", "R3-03")
async def test_a_turn_is_timed_and_its_failure_is_one_of_the_handler(clock: Clock) -> None:
    bench = Bench(clock)
    for result, took_s in ((OK, 0.004), (FAILED, 11.0)):
        await bench.told("turn_ended", queue="mail", tasks=3, result=result, took_s=took_s)
    name = "queue_job_processor_cycle_duration_seconds"
    assert bench.value(f"{name}_bucket", queue="mail", le="0.005") == 1
    assert bench.value(f"{name}_bucket", queue="mail", le="10.0") == 1
    assert bench.value(f"{name}_bucket", queue="mail", le="+Inf") == 2
    assert bench.value(f"{name}_sum", queue="mail") == 11.004
    assert bench.value("handler_errors_total", queue="mail") == 1


async def test_a_refused_result_ends_the_run_and_is_counted(clock: Clock, task: Task) -> None:
    bench = Bench(clock)
    await bench.started(task)
    await bench.told("result_refused", task=task, result=OK)
    assert bench.value("results_refused_total", queue="mail") == 1
    assert bench.value("queue_tasks_in_progress", queue="mail") == 0


async def test_services_of_schedulers_are_counted_by_outcome_and_lateness(clock: Clock) -> None:
    bench = Bench(clock)
    run = Run(id="r", service="s", scheduler="main", planned=100.0, attempt=1, start=103.0, outcome=Outcome.FAILED)
    await bench.told("service_started", scheduler="main", run=run)
    await bench.told("service_ended", scheduler="main", run=run, verdict="retry")
    slot = Slot(service="s", planned=1.0, last=9.0, count=9, verdict="missed", recorded=9.0)
    await bench.told("slot_closed", slot=slot)
    assert bench.value("service_lateness_seconds_sum", scheduler="main") == 3.0
    assert bench.value("service_runs_total", scheduler="main", outcome="failed") == 1
    assert bench.value("service_slots_total", verdict="missed") == 9


@pytest.mark.parametrize(
    ("reason", "child", "label", "counted"),
    [
        (ValueError("x"), "worker", "worker", 1),
        (Exit.KILLED, "worker", "worker", 1),
        (Exit.SHUTDOWN, "worker", "worker", None),
        (Exit.NORMAL, "worker", "worker", None),
        (ValueError("x"), 17, "dynamic", 1),
    ],
)
async def test_a_start_after_a_crash_is_a_restart(
    clock: Clock, reason: Any, child: Any, label: str, counted: int | None
) -> None:
    bench = Bench(clock)
    facts = {"supervisor": "s", "child": child}
    await bench.told("child_started", **facts)
    await bench.told("child_ended", reason=reason, **facts)
    await bench.told("child_started", **facts)
    assert bench.value("child_restarts_total", child=label) == counted


@pytest.mark.spec("001-57", "001-60")
async def test_the_backlog_is_asked_for_when_somebody_looks_and_not_too_often(clock: Clock) -> None:
    bench = Bench(clock)
    assert bench.asked == 0
    text = (await bench.metrics.scrape()).decode()
    assert 'raptor_queue_tasks{queue="mail",state="ready"} 2.0' in text
    assert 'raptor_queue_tasks{queue="mail",state="delayed"} 3.0' in text
    assert 'raptor_queue_tasks{queue="mail",state="dead"} 4.0' in text
    assert 'raptor_queue_oldest_seconds{queue="mail"} 5.0' in text
    await asyncio.gather(*(bench.metrics.scrape() for _ in range(10)))
    assert bench.asked == 1
    await clock.sleep(FRESH_S)
    await bench.metrics.scrape()
    assert bench.asked == 2


async def test_a_store_that_cannot_count_leaves_its_numbers_out(clock: Clock) -> None:
    bench = Bench(clock)
    await bench.metrics.scrape()
    await clock.sleep(FRESH_S)
    bench.error = NotWritten("busy", "a file", "it is locked")
    text = (await bench.metrics.scrape()).decode()
    assert "raptor_queue_running_workers 1.0" in text
    assert "raptor_queue_tasks{" not in text


async def test_another_thread_sees_fresh_counts(system_clock: SystemClock) -> None:
    bench = Bench(system_clock)
    assert bench.value("queue_tasks", queue="mail", state="ready") is None  # the loop cannot wait for itself
    found = await system_clock.offload(bench.value, "queue_tasks", queue="mail", state="ready")
    assert found == 2


@pytest.mark.spec("R3-03")
async def test_two_nodes_share_a_registry_by_namespace(clock: Clock) -> None:
    bench = Bench(clock)
    with pytest.raises(BadInput, match=r"already: set metrics\.namespace"):
        Bench(clock, bench.registry)
    Bench(clock, bench.registry, namespace="other")
    assert bench.registry.get_sample_value("other_queue_running_workers") == 1
    assert bench.registry.get_sample_value("raptor_queue_running_workers") == 1


async def test_a_closed_one_hears_nothing_and_leaves_the_registry_to_others(clock: Clock) -> None:
    registry = CollectorRegistry()
    Gauge("mine", "of the program", registry=registry).set(3)
    bench = Bench(clock, registry)
    assert bench.events.heard("task_ended")
    bench.metrics.close()
    assert not bench.events.heard("task_ended")
    assert [family.name for family in registry.collect()] == ["mine"]


async def test_events_that_were_lost_are_told(clock: Clock, task: Task) -> None:
    bench = Bench(clock)
    for _ in range(100_002):
        bench.events.emit("slot_closed", slot=Slot(service="s", planned=1.0, last=1.0, verdict="done", recorded=1.0))
    await asyncio.sleep(0)
    assert bench.value("events_lost") == 2
    assert bench.value("service_slots_total", verdict="done") == 100_000


async def test_without_the_package_the_message_says_what_to_install(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(BadInput, match=r'pip install "raptor-scheduler\[metrics\]"'):
        Bench(clock, registry)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:9464", Endpoint("127.0.0.1", 9464)),
        ("[::1]:0", Endpoint("::1", 0)),
        ("localhost:65535", Endpoint("localhost", 65535)),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, endpoint: Endpoint) -> None:
    assert read_endpoint(text) == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["", ":9464", "9464", "localhost", "localhost:65536", "::1:80", "a b:1", "h:-1", 9464])
def test_what_is_no_endpoint_is_refused(text: object) -> None:
    with pytest.raises(BadInput, match=r"a host and a port such as 127\.0\.0\.1:9464"):
        read_endpoint(text)
