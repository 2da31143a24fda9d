"""A proxy between a store and its server that does what networks do: hang, cut, lose answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

SYNC = b"S\x00\x00\x00\x04"  # the message that commits what was sent before it
READY = b"Z\x00\x00\x00\x05I"  # what the server says when it has


class Proxy:
    """`cut` is done to the connection of the next commit: "before" the server hears of it, or "after" it answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.serving: set[asyncio.Task[None]] = set()
        self.cut: str | None = None
        self.cuts = 0
        self.refuses = False
        self.refused = 0
        self.port = 0

    def hang(self) -> None:
        """Half-open: nothing arrives, and nobody is told."""
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def reset(self) -> None:
        """End every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self.serving.add(serving)
        try:
            await self._serve(reader, writer)
        finally:
            self.serving.discard(serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            self.refused += 1
            writer.transport.abort()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, outer}
        fate: list[str] = []
        tasks = [
            asyncio.create_task(self._ask(reader, outer, fate)),
            asyncio.create_task(self._answer(inner, writer, fate)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for one in (writer, outer):
                one.transport.abort()
                self._writers.discard(one)

    async def _ask(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, fate: list[str]) -> None:
        while data := await reader.read(1 << 16):
            await self._flows.wait()
            if self.cut is not None and data.endswith(SYNC):
                fate.append(self.cut)
                self.cut = None
                self.cuts += 1
                if fate == ["before"]:
                    server.write(data.removesuffix(SYNC))
                    await server.drain()
                    return
            server.write(data)
            await server.drain()

    async def _answer(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, fate: list[str]) -> None:
        while data := await reader.read(1 << 16):
            await self._flows.wait()
            if fate:  # a long answer comes in parts, the first of them before the commit
                if data.endswith(READY):
                    return
                continue
            client.write(data)
            await client.drain()


@asynccontextmanager
async def proxied(port: int) -> AsyncGenerator[Proxy]:
    """A proxy before the server on that port."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.go_on()
        proxy.reset()
        await asyncio.gather(*proxy.serving)
