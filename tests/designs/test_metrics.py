"""Metrics of a node: exact in virtual time, and over a real socket."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from raptor import Node, service
from raptor.client import Refused
from raptor.clock import Clock, VirtualClock
from raptor.commands import exit_code
from raptor.config import Config
from raptor.errors import BadInput
from raptor.scrape import LARGEST, MOST

CYCLE = "raptor_queue_job_processor_cycle_duration_seconds"


@service(queue="mail", max_attempts=3)
async def send(to: str, takes: float = 0.0) -> None:
    await asyncio.sleep(takes)
    if to == "nobody":
        raise ValueError("no such address")


@service(queue="batch", batch=10)
async def store_rows(rows: list[int]) -> None:
    await asyncio.sleep(1)


@service(every="1h")
async def report() -> None:
    raise ValueError("no paper")


class Seen:
    """A registry, as a scraper sees it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def root() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture
def seen() -> Seen:
    return Seen()


def settings(**environ: str) -> Config:
    return Config.load({}, environ=environ, cwd=Path("/nowhere"), user_file=Path("/nowhere"))


@pytest.mark.spec("003-44", "003-45", "003-46", "003-47", "003-48", "R3-03", "001-57", "001-58", "001-59", "001-60")
async def test_a_node_with_a_registry_counts_what_its_queues_do(clock: VirtualClock, seen: Seen) -> None:
    async with Node(store="memory:", services=[send], clock=clock, config=settings(), metrics=seen.registry) as node:
        await node.put(send, {"to": "a", "takes": 2.0})
        await node.put(send, {"to": "b", "takes": 2.0}, in_="10s")
        await clock.sleep(1)
        assert seen("raptor_queue_tasks_in_progress", queue="mail") == 1
        assert seen("raptor_queue_running_job_processors") == 1
        assert seen("raptor_queue_running_workers") == 1
        await clock.sleep(14)
        assert seen("raptor_queue_tasks_in_progress", queue="mail") == 0
        assert seen(f"{CYCLE}_count", queue="mail") == 2
        assert seen(f"{CYCLE}_sum", queue="mail") == pytest.approx(4.0, abs=1e-6)
        assert seen("raptor_tasks_processed_total", queue="mail") == 2
        assert seen("raptor_task_lateness_seconds_sum", queue="mail") == pytest.approx(0.0, abs=1e-6)
        failing = await node.put(send, {"to": "nobody"}, max_attempts=2)
        with pytest.raises(Exception, match="no such address"):
            await failing.result()
        await asyncio.sleep(0)
        assert seen("raptor_tasks_processed_total", queue="mail") == 4
        assert seen("raptor_tasks_errors_total", queue="mail") == 2
        assert seen("raptor_handler_errors_total", queue="mail") == 2
        assert seen("raptor_tasks_retried_total", queue="mail") == 1
        assert seen("raptor_tasks_dead_total", queue="mail", reason="failed") == 1


@pytest.mark.spec("003-33", "003-44")
async def test_a_turn_of_more_than_ten_seconds_is_above_the_last_bucket(clock: VirtualClock, seen: Seen) -> None:
    async with Node(store="memory:", services=[send], clock=clock, config=settings(), metrics=seen.registry) as node:
        await (await node.put(send, {"to": "a", "takes": 11.0})).result()
        await asyncio.sleep(0)
        assert seen(f"{CYCLE}_bucket", queue="mail", le="10.0") == 0
        assert seen(f"{CYCLE}_bucket", queue="mail", le="+Inf") == 1


@pytest.mark.spec("003-44", "003-47")
async def test_a_batch_is_one_turn_of_one_processor(clock: VirtualClock, seen: Seen) -> None:
    services = [store_rows]
    async with Node(store="memory:", services=services, clock=clock, config=settings(), metrics=seen.registry) as node:
        await node.put_many(store_rows, [1, 2, 3])
        await clock.sleep(0.5)
        assert seen("raptor_queue_tasks_in_progress", queue="batch") == 3
        assert seen("raptor_queue_running_job_processors") == 1
        await clock.sleep(1)
        assert seen("raptor_tasks_processed_total", queue="batch") == 3
        assert seen(f"{CYCLE}_count", queue="batch") == 1


async def test_schedulers_and_restarts_are_counted(clock: VirtualClock, seen: Seen) -> None:
    async with Node(store="memory:", services=[report], clock=clock, config=settings(), metrics=seen.registry) as node:
        await node.schedule("main", ["report"])
        await node.start("main")
        await clock.sleep(1.5)
        failed = seen("raptor_service_runs_total", scheduler="main", outcome="failed")
        assert failed is not None
        assert failed >= 1
        scheduler = node.scheduler("main")
        assert scheduler is not None
        scheduler.kill()
        await clock.sleep(60)
        assert seen("raptor_child_restarts_total", child="main") == 1
        worker = node.runtime.whereis("worker")
        assert worker is not None
        worker.kill()
        await clock.sleep(1)
        assert seen("raptor_child_restarts_total", child="worker") == 1


@pytest.mark.spec("003-48")
async def test_without_a_registry_nothing_is_heard(clock: VirtualClock) -> None:
    async with Node(store="memory:", services=[send], clock=clock, config=settings()) as node:
        for event in ("task_started", "task_ended", "turn_ended", "child_started"):
            assert not node.events.heard(event)


@pytest.mark.spec("003-48")
def test_a_node_without_metrics_does_not_import_the_package() -> None:
    script = """
import asyncio, sys, raptor
async def main():
    async with raptor.Node(store="memory:"):
        assert "prometheus_client" not in sys.modules and "raptor.metrics" not in sys.modules
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd="/")


async def test_a_node_leaves_the_registry_when_it_ends(clock: VirtualClock, seen: Seen) -> None:
    for _ in range(2):
        async with Node(store="memory:", clock=clock, config=settings(), metrics=seen.registry):
            assert seen("raptor_queue_running_workers") == 1
        assert list(seen.registry.collect()) == []


# The door


@asynccontextmanager
async def serving(clock: Clock, **environ: str) -> AsyncGenerator[tuple[Node, int]]:
    config = settings(RAPTOR_METRICS_LISTEN="127.0.0.1:0", **environ)
    async with Node(store="memory:", services=[send], clock=clock, config=config) as node:
        assert node._scraped is not None
        yield node, node._scraped.getsockname()[1]


async def ask(port: int, request: bytes) -> tuple[str, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with suppress(ConnectionError):  # closed before it had read all
        writer.write(request)
        async with asyncio.timeout(20):
            answer = await reader.read()
    await hang_up(writer)
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return first, dict(line.split(": ", 1) for line in lines), body


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.spec("001-57", "001-60", "003-44", "003-46")
async def test_a_scrape_over_a_socket_can_be_parsed(system_clock: Clock) -> None:
    async with serving(system_clock) as (node, port):
        await (await node.put(send, {"to": "a"})).result(20)
        await node.put(send, {"to": "b"}, in_="1h")
        first, headers, body = await ask(port, GET)
    assert first == "HTTP/1.1 200 OK"
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert int(headers["Content-Length"]) == len(body)
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    held = {sample.labels["state"]: sample.value for sample in families["raptor_queue_tasks"].samples}
    assert held == {"ready": 0, "delayed": 1, "taken": 0, "dead": 0}
    assert families["raptor_tasks_processed"].samples[0].value == 1
    assert "process_open_fds" in families


async def test_head_gives_the_length_and_no_body(system_clock: Clock) -> None:
    async with serving(system_clock) as (_, port):
        first, headers, body = await ask(port, GET.replace(b"GET", b"HEAD"))
        assert (first, body) == ("HTTP/1.1 200 OK", b"")
        assert int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /metrics/../secret HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405 Method Not Allowed"),
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", "200 OK"),
        (b"hello\r\n\r\n", "400 Bad Request"),
        (b"GET /m\xff HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * LARGEST * 3, "431 Request Header Fields Too Large"),
    ],
)
async def test_only_metrics_are_given(system_clock: Clock, request_: bytes, answer: str) -> None:
    async with serving(system_clock) as (_, port):
        first, headers, _ = await ask(port, request_)
        assert first == f"HTTP/1.1 {answer}"
        assert headers["Connection"] == "close"
        assert (await ask(port, GET))[0] == "HTTP/1.1 200 OK"


async def test_who_says_nothing_is_cut_off(system_clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raptor.scrape.WAIT_S", 0.05)
    async with serving(system_clock) as (_, port):
        assert (await ask(port, b"GET /metrics HTTP/1.1\r\n"))[0] == ""


async def test_no_more_connections_than_it_can_bear(system_clock: Clock) -> None:
    async with serving(system_clock) as (_, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST)]
        for _, writer in idle:
            writer.write(b"GET")
            await writer.drain()
        assert (await ask(port, b"x"))[0] == ""
        for _, writer in idle:
            await hang_up(writer)


async def test_the_door_comes_back_on_its_port(system_clock: Clock) -> None:
    async with serving(system_clock) as (node, port):
        came_back = asyncio.Event()
        node.events.subscribe(lambda event: event.facts["child"] == "metrics" and came_back.set(), "child_started")
        door = node.runtime.whereis("metrics")
        assert door is not None
        door.kill()
        async with asyncio.timeout(20):
            await came_back.wait()
        assert (await ask(port, GET))[0] == "HTTP/1.1 200 OK"


async def test_a_port_in_use_is_refused_before_anything_starts(system_clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = settings(RAPTOR_METRICS_LISTEN=f"127.0.0.1:{port}")
        with pytest.raises(Refused, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use") as caught:
            async with Node(store="memory:", clock=system_clock, config=config):
                pass
    assert caught.value.code == 6
    async with Node(store="memory:", clock=system_clock, config=config):  # nothing of the first try is left
        assert (await ask(port, GET))[0] == "HTTP/1.1 200 OK"


async def test_an_address_that_is_not_ours_is_refused(system_clock: Clock) -> None:
    config = settings(RAPTOR_METRICS_LISTEN="192.0.2.1:9464")
    with pytest.raises(Refused, match="cannot listen on 192"):
        async with Node(store="memory:", clock=system_clock, config=config):
            pass


def test_settings_name_the_door_and_the_namespace(tmp_path: Path) -> None:
    (tmp_path / "raptor.toml").write_text('[metrics]\nlisten = "127.0.0.1:9464"\nnamespace = "shop"\n')
    config = Config.load(environ={}, cwd=tmp_path, user_file=tmp_path / "none")
    assert (str(config.metrics.listen), config.metrics.namespace) == ("127.0.0.1:9464", "shop")
    assert next(one for one in config.settings if one.name == "metrics.listen").text == "127.0.0.1:9464"
    for wrong in ('listen = "9464"', 'namespace = "a-b"'):
        (tmp_path / "raptor.toml").write_text(f"[metrics]\n{wrong}\n")
        with pytest.raises(BadInput, match=rf"raptor\.toml: metrics\.{wrong.split()[0]}: ") as caught:
            Config.load(environ={}, cwd=tmp_path, user_file=tmp_path / "none")
        assert exit_code(caught.value) == 2


async def test_a_namespace_is_the_beginning_of_every_name(system_clock: Clock) -> None:
    async with serving(system_clock, RAPTOR_METRICS_NAMESPACE="shop") as (_, port):
        text = (await ask(port, GET))[2].decode()
    assert "shop_queue_running_workers 1.0" in text
    assert "raptor_" not in text


@pytest.mark.spec("001-67")
async def test_the_page_names_every_metric_and_no_other(clock: VirtualClock, seen: Seen, root: Path) -> None:
    page = (root / "docs/metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(raptor_\w+)`", page, re.M))
    async with Node(store="memory:", clock=clock, config=settings(), metrics=seen.registry) as node:
        assert node._metrics is not None
        known = {
            f"{family.name}_total" if family.type == "counter" else family.name for family in node._metrics.describe()
        }
    assert named == known
    rules = page.partition("## Alerts")[2]
    alerted = {re.sub(r"_bucket$", "", name) for name in re.findall(r"raptor_\w+", rules)}
    assert alerted <= named
    assert len(yaml.safe_load(rules.partition("```yaml")[2].partition("```")[0])["groups"][0]["rules"]) == 7
