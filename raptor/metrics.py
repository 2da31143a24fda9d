"""What a node counts for Prometheus: it hears the node's events, and asks the store how long the queues are.

prometheus-client is imported when a node is asked for metrics, and nothing is heard before.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from raptor.errors import BadInput, RaptorError
from raptor.exits import Reason, is_clean
from raptor.task import Outcome, Result, Retry, Run, Slot, State, Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric

    from raptor.clock import Clock
    from raptor.events import Event, Events, Subscription
    from raptor.state.base import Counts

NAMESPACE = "raptor"
FRESH_S = 1.0  # for so long the counts of the store are good: a scraper in a hurry does not make it count
PATIENCE_S = 2.0  # how long a scrape waits for them
CYCLE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LATE_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 3600.0)
WAITING = ("ready", "delayed", "taken", "dead")
REASONS = ("failed", "lapsed", "expired", "poison", "unknown service", "bad payload")
RAN = (Outcome.OK, Outcome.FAILED, Outcome.TIMED_OUT)


class Metrics:
    """The metrics of one node, as a collector of a registry. It belongs to the event loop that it is made on."""

    def __init__(
        self,
        registry: CollectorRegistry,
        events: Events,
        clock: Clock,
        *,
        counts: Callable[[], Awaitable[list[Counts]]],  # asked when somebody looks
        workers: Callable[[], int],
        namespace: str = NAMESPACE,
    ) -> None:
        self._client = client()
        self._registry = registry
        self._ask = counts
        self._workers = workers
        self._clock = clock
        self._namespace = namespace
        self._own = self._client.CollectorRegistry()
        self._running: dict[tuple[int, int], tuple[str, str]] = {}  # id and fence -> queue and run
        self._fallen: set[tuple[object, object]] = set()  # children that may be restarted
        self._counts: list[Counts] = []
        self._counted_at: float | None = None
        self._counting = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._queues: set[str] = set()  # whose tasks have run
        self._make()
        try:
            registry.register(cast("Any", self))
        except ValueError:
            problem = f"this registry has metrics of {namespace!r} already"
            raise BadInput(f"{problem}: set metrics.namespace, or give each node a registry of its own") from None
        self._subscription: Subscription = events.subscribe(self._hear, *self._heard, limit=100_000)

    def close(self) -> None:
        """Hear no more, and leave the registry."""
        self._subscription.close()
        self._registry.unregister(cast("Any", self))

    async def scrape(self) -> bytes:
        """The whole registry, in the text format."""
        await self._count()
        text: bytes = self._client.generate_latest(self._registry)
        return text

    # Collector

    def describe(self) -> Iterable[Metric]:
        return [*self._own.collect(), *self._backlog(), *self._standing(0, 0)]

    def collect(self) -> Iterable[Metric]:
        """From any thread. On the event loop itself nothing can be waited for: there the last counts are given."""
        if threading.get_ident() != self._thread and self._loop.is_running():
            try:
                asyncio.run_coroutine_threadsafe(self._count(), self._loop).result(PATIENCE_S)
            except TimeoutError:
                pass  # the loop is busy: what is known will do
        yield from self._own.collect()
        yield from self._backlog()
        yield from self._standing(self._workers(), self._subscription.dropped)

    async def _count(self) -> None:
        """Ask the store, unless it was asked just now."""
        async with self._counting:
            now = self._clock.monotonic()
            if self._counted_at is not None and now - self._counted_at < FRESH_S:
                return
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self._counts = await self._ask()
            except (RaptorError, TimeoutError):
                self._counts = []  # no numbers rather than old ones
            self._counted_at = now

    def _backlog(self) -> Generator[Metric]:
        held = self._gauge("queue_tasks", "Tasks of a queue, by state", "queue", "state")
        late = self._gauge("queue_oldest_seconds", "How long the first ready task is due", "queue")
        for counts in self._counts:
            for state in WAITING:
                held.add_metric((counts.queue, state), getattr(counts, state))
            waited_s = 0.0 if counts.oldest is None else max(0.0, self._clock.now() - counts.oldest)
            late.add_metric((counts.queue,), waited_s)
        yield held
        yield late

    def _standing(self, workers: int, lost: int) -> Generator[Metric]:
        running = list(self._running.values())
        tasks = Counter(queue for queue, _ in running)
        in_progress = self._gauge("queue_tasks_in_progress", "Tasks that run", "queue")
        for queue in sorted(self._queues):
            in_progress.add_metric((queue,), tasks[queue])
        yield in_progress
        for name, text, value in (
            ("queue_running_workers", "Workers that run", workers),
            ("queue_running_job_processors", "Lanes of the workers that are at work", len({run for _, run in running})),
            ("events_lost", "Events that came faster than they were counted", lost),
        ):
            gauge = self._gauge(name, text)
            gauge.add_metric((), value)
            yield gauge

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        family: type[GaugeMetricFamily] = self._client.core.GaugeMetricFamily
        return family(f"{self._namespace}_{name}", text, labels=labels)

    # Events

    def _make(self) -> None:
        counter, histogram = self._maker(self._client.Counter), self._maker(self._client.Histogram)
        self._cycle = histogram(
            "queue_job_processor_cycle_duration_seconds", "One turn: taken, run, recorded", "queue", buckets=CYCLE_S
        )
        self._processed = counter("tasks_processed", "Tasks whose run came to an end", "queue")
        self._errors = counter("tasks_errors", "Tasks whose run failed or timed out", "queue")
        self._handler_errors = counter("handler_errors", "Runs, of a task or a batch, that failed", "queue")
        self._retries = counter("tasks_retried", "Tasks that wait for another try", "queue")
        self._dead = counter("tasks_dead", "Tasks that were given up", "queue", "reason")
        self._refused = counter("results_refused", "Results that came too late: the task was another's", "queue")
        self._late = histogram("task_lateness_seconds", "Start of a task after its due time", "queue", buckets=LATE_S)
        self._restarts = counter("child_restarts", "Restarts of supervised children after a crash", "child")
        self._runs = counter("service_runs", "Runs by schedulers", "scheduler", "outcome")
        self._slots = counter("service_slots", "Planned moments of services, by what became of them", "verdict")
        self._service_late = histogram(
            "service_lateness_seconds", "Start of a service after its planned time", "scheduler", buckets=LATE_S
        )
        self._heard: Mapping[str, Callable[[Any, Mapping[str, Any]], None]] = {
            "task_started": self._task_started,
            "task_ended": self._task_ended,
            "result_refused": self._result_refused,
            "turn_ended": self._turn_ended,
            "service_started": self._service_started,
            "service_ended": self._service_ended,
            "slot_closed": self._slot_closed,
            "child_ended": self._child_ended,
            "child_started": self._child_started,
        }

    def _maker(self, kind: type[MetricWrapperBase]) -> Callable[..., Any]:
        def make(name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(name, text, labels, namespace=self._namespace, registry=self._own, **options)

        return make

    def _hear(self, event: Event) -> None:
        self._heard[event.name](event, event.facts)

    def _task_started(self, event: Event, facts: Mapping[str, Any]) -> None:
        task: Task = facts["task"]
        self._queues.add(task.queue)
        self._running[task.id, task.fence] = task.queue, facts["run"]
        self._late.labels(task.queue).observe(max(0.0, event.at - task.due))

    def _task_ended(self, event: Event, facts: Mapping[str, Any]) -> None:
        task, result = cast("Task", facts["task"]), cast("Result", facts["result"])
        self._running.pop((task.id, task.fence), None)
        if result.outcome in RAN:
            self._processed.labels(task.queue).inc()
            self._errors.labels(task.queue).inc(result.outcome is not Outcome.OK)
        if isinstance(facts["verdict"], Retry):
            self._retries.labels(task.queue).inc()
        if facts["state"] is State.DEAD:
            # Whatever a service gives as its reason would be a time series of its own.
            why = facts["move"].reason
            self._dead.labels(task.queue, next((known for known in REASONS if why.startswith(known)), "other")).inc()

    def _result_refused(self, event: Event, facts: Mapping[str, Any]) -> None:
        task: Task = facts["task"]
        self._running.pop((task.id, task.fence), None)
        self._refused.labels(task.queue).inc()

    def _turn_ended(self, event: Event, facts: Mapping[str, Any]) -> None:
        result: Result = facts["result"]
        self._cycle.labels(facts["queue"]).observe(facts["took_s"])
        self._handler_errors.labels(facts["queue"]).inc(result.outcome in (Outcome.FAILED, Outcome.TIMED_OUT))

    def _service_started(self, event: Event, facts: Mapping[str, Any]) -> None:
        run: Run = facts["run"]
        if run.attempt == 1:
            self._service_late.labels(facts["scheduler"]).observe(max(0.0, run.start - run.planned))

    def _service_ended(self, event: Event, facts: Mapping[str, Any]) -> None:
        run: Run = facts["run"]
        self._runs.labels(facts["scheduler"], str(run.outcome or "unknown")).inc()

    def _slot_closed(self, event: Event, facts: Mapping[str, Any]) -> None:
        slot: Slot = facts["slot"]
        self._slots.labels(slot.verdict).inc(slot.count)

    def _child_ended(self, event: Event, facts: Mapping[str, Any]) -> None:
        reason: Reason = facts["reason"]
        if not is_clean(reason):
            self._fallen.add((facts["supervisor"], facts["child"]))

    def _child_started(self, event: Event, facts: Mapping[str, Any]) -> None:
        child = facts["supervisor"], facts["child"]
        if child in self._fallen:
            self._fallen.discard(child)
            # Those of a dynamic supervisor have a number, which never comes again.
            self._restarts.labels(child[1] if isinstance(child[1], str) else "dynamic").inc()


def client() -> ModuleType:
    """prometheus_client, or what to do about it."""
    try:
        import_module("prometheus_client.core")
        return import_module("prometheus_client")
    except ImportError:
        raise BadInput('metrics: need prometheus-client: pip install "raptor-scheduler[metrics]"') from None


def new_registry() -> CollectorRegistry:
    """A registry of its own, with what Python knows of the process."""
    registry: CollectorRegistry = client().CollectorRegistry()
    client().ProcessCollector(registry=registry)
    return registry
