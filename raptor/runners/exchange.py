"""One HTTP/1.1 request and its reply, over a connection of their own to an address that was looked at first.

It follows nothing, keeps nothing open and leaves the time limit to its caller; a cancellation closes the socket.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

from raptor.address import Address, Url, as_address
from raptor.errors import BadInput, RaptorError
from raptor.runners.text import one_line

HEAD = 32 * 1024  # bytes of a status line with its headers
BODY = 64 * 1024  # bytes of a body that are read; the rest is not waited for
INTERIM = 8  # replies of the kind "100 Continue" before the real one

Admit: TypeAlias = Callable[[Address], None]
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NoReply(RaptorError):
    """There was no reply that could be understood. The work may have been done all the same."""


class Request(NamedTuple):
    method: str
    url: Url
    headers: Mapping[str, str]
    body: bytes | None = None

    def encoded(self) -> bytes:
        headers = {"Host": self.url.origin.authority, **self.headers, "Connection": "close"}
        if self.body is not None:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"{self.method} {self.url.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise BadInput("a request with a control or non-ASCII character in its URL or headers")
        return "\r\n".join((*lines, "", "")).encode() + (self.body or b"")


class Reply(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""  # its beginning

    @property
    def line(self) -> str:
        return one_line(f"{self.status} {self.reason}".rstrip())


async def exchange(request: Request, admit: Admit, tls: ssl.SSLContext | None) -> Reply:
    """Send a request and read the reply. `admit` refuses, as BadInput, the addresses that must not be called."""
    data = request.encoded()
    addresses = await _resolve(request.url)
    for address in addresses:  # one bad apple spoils the name: which of them would be taken is chance
        admit(address)
    async with _connected(request.url, addresses, tls if request.url.origin.scheme == "https" else None) as streams:
        reader, writer = streams
        try:
            writer.write(data)
            await writer.drain()
            return await _reply(reader, request.method)
        except (OSError, ssl.SSLError) as error:
            raise NoReply(f"the connection broke: {_why(error)}") from None
        except asyncio.IncompleteReadError:
            raise NoReply("the connection was closed before the whole reply had come") from None
        except asyncio.LimitOverrunError:
            raise NoReply(f"a reply whose headers are longer than {HEAD} bytes") from None


async def _resolve(url: Url) -> list[Address]:
    literal = as_address(url.origin.host)
    if literal is not None:
        return [literal]
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(url.origin.host, url.origin.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoReply(f"{url.origin.host} was not found: {_why(error)}") from None
    addresses = (as_address(str(sockaddr[0])) for *_, sockaddr in found)
    return [*dict.fromkeys(address for address in addresses if address is not None)]


@asynccontextmanager
async def _connected(url: Url, addresses: list[Address], tls: ssl.SSLContext | None) -> AsyncGenerator[Streams]:
    reader, writer = await _connect(url, addresses, tls)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except (OSError, ssl.SSLError):
            pass  # it was broken before


async def _connect(url: Url, addresses: list[Address], tls: ssl.SSLContext | None) -> Streams:
    """To the first of the addresses that answers; never to a name, which might lead elsewhere by now."""
    origin, problem = url.origin, f"{url.origin.host} has no address"
    for address in addresses:
        try:
            return await asyncio.open_connection(
                str(address),
                origin.port,
                limit=HEAD,
                ssl=tls,
                server_hostname=None if tls is None else origin.host,
                flags=socket.AI_NUMERICHOST,
            )
        except ssl.SSLCertVerificationError as error:
            raise NoReply(f"the certificate of {origin.host} was refused: {error.verify_message}") from None
        except OSError as error:
            problem = f"no connection to {address} port {origin.port}: {_why(error)}"
    raise NoReply(problem)


async def _reply(reader: asyncio.StreamReader, method: str) -> Reply:
    for _ in range(INTERIM):
        reply = _head(await reader.readuntil(b"\r\n\r\n"))
        if reply.status == 101:
            raise NoReply("a reply in another protocol than was asked for")
        if reply.status >= 200:
            empty = method == "HEAD" or reply.status in (204, 304)
            return reply if empty else reply._replace(body=await _body(reader, reply.headers))
    raise NoReply("interim replies without end")


def _head(data: bytes) -> Reply:
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code, _, reason = rest.partition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or len(code) != 3 or not (code.isascii() and code.isdigit()):
        raise NoReply(one_line(f"not an HTTP reply: {first}"))
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise NoReply(one_line(f"a header that cannot be read: {line}"))
        name, value = name.lower(), value.strip(" \t")
        if name == "content-length" and headers.get(name, value) != value:
            raise NoReply("a reply with two lengths")
        headers[name] = value
    return Reply(int(code), reason.strip(), headers)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """The beginning of a body: as long as it may be, it is read no further than needed."""
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if coding.lower() != "chunked":
            raise NoReply(one_line(f"a reply in the coding {coding}, which nobody asked for"))
        return await _chunks(reader)
    length = headers.get("content-length")
    if length is None:
        return await _until_closed(reader)
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise NoReply(one_line(f"a reply of the length {length}"))
    return await reader.readexactly(min(int(length), BODY))


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < BODY and (more := await reader.read(BODY - len(body))):
        body += more
    return body


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < BODY:
        line = await reader.readuntil(b"\r\n")
        digits = line.partition(b";")[0].strip()
        if not 0 < len(digits) <= 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise NoReply("a chunk whose length cannot be read")
        size = int(digits, 16)
        if not size:
            break  # what may follow are trailers
        body += await reader.readexactly(min(size, BODY - len(body)))
        if len(body) < BODY and await reader.readexactly(2) != b"\r\n":
            raise NoReply("a chunk that is longer than it said")
    return body


def _why(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(str(text))
