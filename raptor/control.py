"""The control socket: JSON-RPC 2.0, one object a line, for the owner of the state directory alone."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec

from raptor.actor import Actor
from raptor.client import Refused, socket_path
from raptor.commands import exit_code, load_all
from raptor.errors import RaptorError, shown
from raptor.exits import Reason

LARGEST = 1 << 20  # bytes of one request
IDLE_S = 5.0  # a connection that says nothing for so long is closed
MOST = 64  # connections at a time

Perform = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class Request(msgspec.Struct, kw_only=True):
    jsonrpc: str = "2.0"
    id: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str | None = None  # more cannot be answered
    method: str
    params: dict[str, Any] = {}


class Control(Actor):
    """Listens, and performs what it is asked for. A connection is served by a task of its own."""

    _ended = False

    async def init(self, home: Path, perform: Perform) -> None:
        load_all()  # an upgrade may replace the files of a node that runs
        self._perform = perform
        self._path = socket_path(home)
        self._open = 0
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        _check_parent(self._path.parent)
        self._path.unlink(missing_ok=True)  # the directory lock says that nobody listens there
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(self._path))
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LARGEST)

    def handle_info(self, message: object) -> None:
        return None

    async def terminate(self, reason: Reason) -> None:
        self._ended = True
        self._server.close()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MOST and _is_ours(writer.get_extra_info("socket")):
                await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # whoever asked has gone, or never asked
        finally:
            self._open -= 1
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    line = await reader.readline()
            except ValueError:
                writer.write(_error(None, -32600, f"a request has at most {LARGEST} bytes", 2))
                await writer.drain()
                return
            if not line:
                return
            writer.write(await self._answer(line))
            async with asyncio.timeout(IDLE_S):
                await writer.drain()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return _error(None, -32700, f"not a request: {error}", 2)
        try:
            result = await self._perform(request.method, request.params)
            return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n"
        except RaptorError as error:
            self._check_open()
            return _error(request.id, -32000, str(error), exit_code(error))
        except Exception as error:
            self._check_open()
            self.runtime.events.emit("command_failed", command=request.method, error=shown(error))
            return _error(request.id, -32603, shown(error), 1)

    def _check_open(self) -> None:
        """What fails since the tree ends is no answer: whoever hears none knows that the node is stopping."""
        if self._ended:
            raise ConnectionAbortedError


def _error(id: int | str | None, code: int, message: str, exit_code: int) -> bytes:
    error = {"code": code, "message": message, "data": {"exit_code": exit_code}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error}) + b"\n"


def _check_parent(folder: Path) -> None:
    stat = folder.lstat()
    if stat.st_uid != os.getuid() or stat.st_mode & 0o077:
        raise Refused(f"{folder} belongs to others, or is open to them: chmod 700 it, or remove it", 6)


def _is_ours(connection: socket.socket) -> bool:
    """Whether the peer is this user, or root."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True  # no such thing here: the modes of directory and socket keep others out
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return uid in (os.getuid(), 0)
