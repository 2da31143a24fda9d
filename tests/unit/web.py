"""A real HTTP server for a test: it keeps what it was sent, and answers as it is told, byte for byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

DEADLINE_S = 30.0


@dataclass(frozen=True)
class Sent:
    """A request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[["Server", Sent, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    answer: Answer
    port: int = 0
    requests: list[Sent] = field(default_factory=list[Sent])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)  # set by each request
    handlers: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    left: asyncio.Event = field(default_factory=asyncio.Event)  # set by each client that closed

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.append(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in rest)}
            sent = Sent(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))
            self.requests.append(sent)
            self.arrived.set()
            await self.answer(self, sent, writer)
            await writer.drain()
            if not writer.is_closing():
                await asyncio.wait_for(reader.read(), DEADLINE_S)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.left.set()
            writer.transport.abort()

    async def when(self, event: asyncio.Event) -> None:
        await asyncio.wait_for(event.wait(), DEADLINE_S)


def says(text: str | bytes) -> Answer:
    """Answer with these bytes, and close."""

    async def answer(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode() if isinstance(text, str) else text)
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()  # TLS

    return answer


def status(line: str, body: str = "", *headers: str) -> str:
    return "\r\n".join((f"HTTP/1.1 {line}", f"Content-Length: {len(body.encode())}", *headers, "", body))


@asynccontextmanager
async def serving(answer: Answer | str | bytes, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    server = Server(answer if callable(answer) else says(answer))
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()
        if server.handlers:
            await asyncio.wait(server.handlers, timeout=DEADLINE_S)
