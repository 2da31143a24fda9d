"""Messages to RabbitMQ: confirmed by the broker, persistent, and failed where no queue takes them.

One connection for each URL, made when it is needed and made anew when it has broken; aio-pika is imported then.
"""

from __future__ import annotations

import asyncio
import hashlib
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import raptor
from raptor.calls import Message, as_json
from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.runners import Context, time_limit
from raptor.runners.output import Recording, RunLog
from raptor.runners.text import lines, one_line
from raptor.service import Service
from raptor.task import Outcome, Result

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

MISSING = "RabbitMQ needs another package: pip install raptor-scheduler[rabbitmq]"
STOP_S = 1.0
CLOSE_S = 3.0
LONGEST_ID = 255  # bytes
ERROR = 4096  # bytes


class PublishRunner:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._links: dict[str, Link] = {}

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        async with Recording(log, context, self._clock):
            message, limit_s = service.publish, time_limit(service)
            if message is None or not _installed():
                return _failed("a URL is expected" if message is None else MISSING, log)
            # In a task of its own: a connection that breaks cancels whoever waits for it.
            link = self._links.setdefault(message.url, Link(message.url))
            work = asyncio.ensure_future(self._send(message, context, link))
            try:
                await asyncio.wait({work}, timeout=limit_s)
            except asyncio.CancelledError:
                await self._stop(work)
                raise
            if not work.done():
                await self._stop(work)
                await self._drop(link)  # it may wait for a peer that is gone
                why = f"timed out after {limit_s:g} s: {message.broker} did not confirm it"
                return Result(outcome=Outcome.TIMED_OUT, info=one_line(why), error=why, tail=log.tail())
            return _result(work, message, log)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(self._drop(link) for link in [*self._links.values()]))

    async def _send(self, message: Message, context: Context, link: Link) -> None:
        from aio_pika import DeliveryMode
        from aio_pika import Message as Envelope

        envelope = Envelope(
            as_json(context.data),
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
            message_id=_message_id(context.key),
            timestamp=self._clock.now(),
            app_id="raptor",
            headers={"x-raptor-service": context.service, "x-raptor-attempt": context.attempt},
        )
        exchange = await link.exchange(message.exchange)
        await exchange.publish(envelope, message.routing_key, mandatory=True)

    async def _stop(self, work: asyncio.Task[None]) -> None:
        work.cancel()
        await asyncio.wait({work}, timeout=STOP_S)

    async def _drop(self, link: Link) -> None:
        if self._links.get(link.url) is link:  # another run may have put a new one there
            del self._links[link.url]
        await link.close()


class Link:
    """A connection to a broker, with a channel for each exchange: an exchange that is missing closes its own only."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = asyncio.Lock()
        self._connection: AbstractConnection | None = None
        self._channels: dict[str, AbstractChannel] = {}

    async def exchange(self, exchange: str) -> AbstractExchange:
        """The exchange, over a connection that is up as far as anybody knows."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed:
                from aio_pika import connect

                name = f"raptor {raptor.__version__}"
                self._connection = await connect(self.url, client_properties={"connection_name": name})
                self._connection.close_callbacks.add(self._lost)  # is_closed tells only of an end that was asked for
                self._channels = {}
            channel = self._channels.get(exchange)
            if channel is None or channel.is_closed:
                channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
                self._channels[exchange] = channel
            return await channel.get_exchange(exchange, ensure=False) if exchange else channel.default_exchange

    def _lost(self, connection: object, error: object) -> None:
        if connection is self._connection:
            self._connection = None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            closing = asyncio.ensure_future(connection.close())
            await asyncio.wait({closing}, timeout=CLOSE_S)
            if not closing.cancel() and not closing.cancelled():
                closing.exception()  # looked at: what was broken before needs no more words


def check(service: Service) -> None:
    """Refuse a message that could never be sent, for want of a package too."""
    if service.publish is None:
        raise BadInput(f"service {service.name!r}: publish: a URL is expected")
    if not _installed():
        raise BadInput(f"service {service.name!r}: publish: {MISSING}")


def _installed() -> bool:
    return find_spec("aio_pika") is not None


def _message_id(key: str) -> str:
    data = key.encode(errors="replace")
    return key if len(data) <= LONGEST_ID else hashlib.sha256(data).hexdigest()


def _result(work: asyncio.Task[None], message: Message, log: RunLog) -> Result:
    if work.cancelled():
        return _failed(f"{message.broker} closed the connection before it had confirmed the message", log)
    error = work.exception()
    if error is not None:
        return _failed(_why(error, message), log)
    where = message.exchange or "the default exchange"
    return Result(outcome=Outcome.OK, info=one_line(f"confirmed by {where}, {message.routing_key}"), tail=log.tail())


def _why(error: BaseException, message: Message) -> str:
    from aio_pika.exceptions import PublishError

    if isinstance(error, PublishError):
        return f"no queue takes {message.routing_key!r} from {message.exchange or 'the default exchange'!r}"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{message.broker}: {_without_secrets(text, message.url)}"


def _without_secrets(text: str, url: str) -> str:
    parts = urlsplit(url)
    for secret in (url, parts.netloc.rpartition("@")[0], parts.password or "", unquote(parts.password or "")):
        if secret:
            text = text.replace(secret, "***")
    return text


def _failed(why: str, log: RunLog) -> Result:
    return Result(outcome=Outcome.FAILED, info=one_line(why), error=lines(why, ERROR), tail=log.tail())
