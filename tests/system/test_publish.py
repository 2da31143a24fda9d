"""Messages to a real RabbitMQ: what arrives, what counts as delivered, and what becomes of broken connections."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from raptor.builtin import publish_service
from raptor.clock import Clock
from raptor.config import Config
from raptor.errors import BadInput
from raptor.node import Node
from raptor.runners import Context, check, close_runners, publish
from raptor.runners.output import RunLog
from raptor.runners.publish import PublishRunner
from raptor.service import Service
from raptor.task import Outcome, Result
from tests.system.rabbit import shared

DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a RabbitMQ; the processes of one test run share it."""
    base = tmp_path_factory.getbasetemp()
    with shared((base.parent if base.name.startswith("popen-") else base) / "rabbitmq") as url:
        yield url


class Inbox:
    """A queue of a new name, and what has arrived in it."""

    def __init__(self, channel: AbstractChannel, queue: AbstractQueue) -> None:
        self.channel = channel
        self.queue = queue
        self.name = queue.name
        self.messages: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()


@asynccontextmanager
async def listening(url: str) -> AsyncGenerator[Inbox]:
    connection = await aio_pika.connect(url)
    try:
        channel = await connection.channel()
        inbox = Inbox(channel, await channel.declare_queue(f"q{secrets.token_hex(4)}", exclusive=True))
        await inbox.queue.consume(inbox.messages.put, no_ack=True)
        yield inbox
    finally:
        await connection.close()


@asynccontextmanager
async def runner(clock: Clock) -> AsyncGenerator[PublishRunner]:
    made = PublishRunner(clock)
    try:
        yield made
    finally:
        await close_runners([made])


async def send(runner: PublishRunner, service: Service, data: Any = None, **facts: Any) -> Result:
    known = {"run_id": "r1", "planned": 1.0, "key": "events@1"} | facts
    async with asyncio.timeout(DEADLINE_S):
        return await runner.run(service, Context(service=service.name, data=data, **known), RunLog())


async def received(inbox: Inbox) -> AbstractIncomingMessage:
    return await asyncio.wait_for(inbox.messages.get(), DEADLINE_S)


def to(url: str, inbox: Inbox | AbstractQueue, **options: Any) -> Service:
    return publish_service("events", url, routing_key=inbox.name, **options)


@pytest.mark.spec("000-36", "001-47", "R0-04")
async def test_a_task_arrives_with_its_data_and_its_key(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, runner(system_clock) as publisher:
        result = await send(publisher, to(broker, inbox), {"order": 7}, key="order@7", attempt=2)
        message = await received(inbox)
    assert (result.outcome, result.info) == (Outcome.OK, f"confirmed by the default exchange, {inbox.name}")
    assert json.loads(message.body) == {"order": 7}
    assert (message.message_id, message.content_type, message.app_id) == ("order@7", "application/json", "raptor")
    assert message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    assert (message.headers["x-raptor-service"], message.headers["x-raptor-attempt"]) == ("events", 2)


async def test_an_exchange_routes_by_the_key(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, runner(system_clock) as publisher:
        exchange = await inbox.channel.declare_exchange(f"x{secrets.token_hex(4)}", "topic", auto_delete=True)
        await inbox.queue.bind(exchange, "orders.*")
        service = publish_service("events", broker, exchange=exchange.name, routing_key="orders.new")
        assert (await send(publisher, service, "text")).outcome is Outcome.OK
        assert (await received(inbox)).body == b'"text"'


async def test_a_key_too_long_for_an_id_is_hashed(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, runner(system_clock) as publisher:
        assert (await send(publisher, to(broker, inbox), key="k" * 300)).outcome is Outcome.OK
        first = await received(inbox)
        assert (await send(publisher, to(broker, inbox), key="k" * 300)).outcome is Outcome.OK
        second = await received(inbox)
    assert first.message_id == second.message_id
    assert len(first.message_id or "") == 64


async def test_a_message_that_no_queue_takes_is_a_failure(system_clock: Clock, broker: str) -> None:
    async with runner(system_clock) as publisher:
        result = await send(publisher, publish_service("events", broker, routing_key="nobody"))
    assert (result.outcome, result.info) == (Outcome.FAILED, "no queue takes 'nobody' from 'the default exchange'")


async def test_a_message_that_the_queue_rejects_is_a_failure(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, runner(system_clock) as publisher:
        limits = {"x-max-length": 0, "x-overflow": "reject-publish"}
        full = await inbox.channel.declare_queue(f"q{secrets.token_hex(4)}", auto_delete=True, arguments=limits)
        assert (await send(publisher, to(broker, full))).outcome is Outcome.FAILED


async def test_a_missing_exchange_fails_and_spoils_no_other(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, runner(system_clock) as publisher:
        wrong = publish_service("wrong", broker, exchange="no-such", routing_key="x")
        results = await asyncio.gather(
            *(send(publisher, service) for service in (to(broker, inbox), wrong, to(broker, inbox), wrong))
        )
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.FAILED]
    assert "no-such" in results[1].info


async def test_a_connection_is_kept_and_made_anew_when_it_breaks(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, Relay(broker) as relay, runner(system_clock) as publisher:
        service = to(relay.url, inbox)
        for _ in range(3):
            assert (await send(publisher, service)).outcome is Outcome.OK
        assert relay.connections == 1
        relay.cut()
        results = [(await send(publisher, service)).outcome for _ in range(3)]
        assert results[1:] == [Outcome.OK, Outcome.OK]
        assert relay.connections == 2


async def test_a_lost_confirmation_is_a_failure_and_the_next_attempt_has_the_same_id(
    system_clock: Clock, broker: str
) -> None:
    async with listening(broker) as inbox, Relay(broker) as relay, runner(system_clock) as publisher:
        assert (await send(publisher, to(relay.url, inbox))).outcome is Outcome.OK
        relay.deaf = True
        waiting = asyncio.ensure_future(send(publisher, to(relay.url, inbox), key="once"))
        await received(inbox)
        first = await received(inbox)  # it has arrived, and its confirmation never will
        relay.cut()
        assert (await waiting).outcome is Outcome.FAILED
        relay.deaf = False
        assert (await send(publisher, to(relay.url, inbox), key="once", attempt=2)).outcome is Outcome.OK
        assert first.message_id == (await received(inbox)).message_id == "once"


async def test_a_broker_that_says_nothing_is_a_timeout_and_is_called_anew(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, Relay(broker) as relay, runner(system_clock) as publisher:
        relay.deaf = True
        result = await send(publisher, to(relay.url, inbox, timeout="300ms"))
        assert result.outcome is Outcome.TIMED_OUT
        assert result.info.startswith("timed out after 0.3 s: amqp://127.0.0.1:")
        relay.deaf = False
        assert (await send(publisher, to(relay.url, inbox))).outcome is Outcome.OK


async def test_a_cancellation_passes_and_the_runner_works_on(system_clock: Clock, broker: str) -> None:
    async with listening(broker) as inbox, Relay(broker) as relay, runner(system_clock) as publisher:
        assert (await send(publisher, to(relay.url, inbox))).outcome is Outcome.OK
        relay.deaf = True
        waiting = asyncio.ensure_future(send(publisher, to(relay.url, inbox)))
        await received(inbox)
        await received(inbox)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        relay.deaf = False
        relay.cut()
        await relay.wait_cut()
        await send(publisher, to(relay.url, inbox))
        assert (await send(publisher, to(relay.url, inbox))).outcome is Outcome.OK


async def test_no_password_is_shown_by_any_failure(
    system_clock: Clock, broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    parts = urlsplit(broker)
    wrong = broker.replace(str(parts.password), "swordfish")
    nobody = "amqp://raptor:swordfish@127.0.0.1:1/"
    results: list[Result] = []
    async with runner(system_clock) as publisher:
        for url in (wrong, nobody):
            service = publish_service("events", url, routing_key="q")
            results.append(await send(publisher, service))
            assert "swordfish" not in repr(service)
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.FAILED]
    assert "amqp://127.0.0.1:1/" in results[1].info
    assert "swordfish" not in f"{results}{caplog.text}"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "http://h/"}, "url: amqp://user:password@host:port/vhost is expected"),
        ({"url": "amqp://u:swordfish@/"}, "url: amqp://user:password@host:port/vhost is expected"),
        ({"url": "amqp://u:swordfish@h:x/"}, "url: amqp://user:password@host:port/vhost is expected"),
        ({"url": "amqp://u:sword fish@h/"}, "url: a space"),
        ({"url": "amqp://h/"}, "routing_key: the default exchange needs the name of a queue"),
        ({"url": "amqp://h/", "routing_key": "k" * 256}, "routing_key: a text of 255 bytes at most"),
        ({"url": "amqp://h/", "routing_key": "k", "isolate": True}, "isolate: goes with a function"),
    ],
)
def test_what_could_never_be_sent_is_refused_without_its_password(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=r"^service 'events': ") as caught:
        publish_service("events", **options)
    assert problem in str(caught.value)
    assert "swordfish" not in str(caught.value)


async def test_without_aio_pika_the_error_says_how_to_get_it(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "find_spec", lambda name: None)
    service = publish_service("events", "amqp://h/", routing_key="q")
    with pytest.raises(BadInput, match=r"pip install raptor-scheduler\[rabbitmq\]"):
        check(service)
    result = await send(PublishRunner(system_clock), service)
    assert (result.outcome, result.info) == (Outcome.FAILED, publish.MISSING)


async def test_a_project_publishes_and_its_node_closes_the_connection(
    system_clock: Clock, broker: str, tmp_path: Path
) -> None:
    async with listening(broker) as inbox, Relay(broker) as relay:
        text = f'[services.events]\npublish = {{url = "${{AMQP_URL}}", routing_key = "{inbox.name}"}}\n'
        (tmp_path / "raptor.toml").write_text(text)
        config = Config.load(environ={"AMQP_URL": relay.url, "RAPTOR_HOME": str(tmp_path / "home")}, cwd=tmp_path)
        async with Node(config=config, clock=system_clock, listen=False) as node:
            await node.run("events")
            assert (await received(inbox)).body == b"null"
            assert not relay.idle.is_set()
        await asyncio.wait_for(relay.idle.wait(), DEADLINE_S)


class Relay:
    """Stands between a client and the broker: it counts connections, cuts them, and can keep the answers to itself."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connections = 0
        self.deaf = False
        self.idle = asyncio.Event()

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"amqp://{self._parts.username}:{self._parts.password}@127.0.0.1:{port}/"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DEADLINE_S)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def wait_cut(self) -> None:
        await asyncio.wait_for(self.idle.wait(), DEADLINE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.idle.clear()
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._parts.port)
        pair = {writer, to_broker}
        self._writers |= pair
        await asyncio.gather(self._carry(reader, to_broker), self._carry(from_broker, writer, answers=True))
        self._writers -= pair
        if not self._writers:
            self.idle.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool = False) -> None:
        try:
            while data := await reader.read(65536):
                if not (answers and self.deaf):
                    writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()
