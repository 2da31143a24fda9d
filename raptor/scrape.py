"""The metrics door: GET /metrics over HTTP/1.1, one answer a connection. It has no authentication."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from raptor.actor import Actor
from raptor.client import Refused
from raptor.endpoint import Endpoint
from raptor.errors import shown
from raptor.exits import Reason

PATH = "/metrics"
TYPE = "text/plain; version=0.0.4; charset=utf-8"
LARGEST = 8192  # bytes of a request, its headers included
LONGEST = 1 << 20  # bytes that are heard, and not read, of one that sends more
WAIT_S = 5.0  # for a request, and for whoever reads the answer
MOST = 16  # connections at a time


class Request(NamedTuple):
    method: str
    path: str


class Scrape(Actor):
    """Answers whoever asks for the metrics. `listener` stays open when this is restarted: the port is not lost."""

    async def init(self, listener: socket.socket, scrape: Callable[[], Awaitable[bytes]]) -> None:
        self._scrape = scrape
        self._serving: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._serve, sock=listener.dup(), limit=LARGEST)
        self.runtime.create_task(self._end_with_it())

    def handle_info(self, message: object) -> None:
        return None

    async def terminate(self, reason: Reason) -> None:
        self._close()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _end_with_it(self) -> None:
        """A kill ends the actor without `terminate`, and two must not answer on one port."""
        await self.ref.wait()
        self._close()

    def _close(self) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) <= MOST:
                writer.write(await self._answer(reader))
                async with asyncio.timeout(WAIT_S):
                    await writer.drain()
                    await _hear_out(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
            pass  # whoever asked has gone, or never asked, or this ends
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(WAIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _reply(431, "Request Header Fields Too Large")
        request = _read(head)
        if request is None:
            return _reply(400, "Bad Request")
        if request.path.partition("?")[0] != PATH:
            return _reply(404, "Not Found", f"only {PATH} is here\n".encode(), with_body=request.method != "HEAD")
        if request.method not in ("GET", "HEAD"):
            return _reply(405, "Method Not Allowed", more="Allow: GET, HEAD\r\n")
        try:
            text = await self._scrape()
        except Exception as error:
            self.runtime.events.emit("command_failed", command="metrics", error=shown(error))
            return _reply(500, "Internal Server Error")
        return _reply(200, "OK", text, type=TYPE, with_body=request.method == "GET")


def bind(endpoint: Endpoint) -> socket.socket:
    """Take the port, before anything is started; Refused if it cannot be had."""
    try:
        found = socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(found[0], socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[4])
            listener.listen(MOST)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        advice = "choose another port, or stop whoever listens there"
        raise Refused(f"metrics.listen: cannot listen on {endpoint}: {error.strerror or error}: {advice}", 6) from None
    return listener


async def _hear_out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Closing on what was not read would reset the connection, and the answer with it."""
    writer.write_eof()
    heard = 0
    while heard < LONGEST and (more := await reader.read(LARGEST)):
        heard += len(more)


def _read(head: bytes) -> Request | None:
    """The first line of a request; the rest is not needed."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1") or not words[1].startswith(b"/"):
        return None
    try:
        return Request(words[0].decode("ascii"), words[1].decode("ascii"))
    except UnicodeDecodeError:
        return None


def _reply(
    status: int,
    reason: str,
    body: bytes = b"",
    *,
    type: str = "text/plain; charset=utf-8",
    more: str = "",
    with_body: bool = True,
) -> bytes:
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{more}Connection: close\r\n\r\n".encode() + (body if with_body else b"")
