"""What an http service calls and what a publish service sends: the records, how they are written, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import SplitResult, urlsplit

import msgspec

from raptor.address import Allowed, read_url
from raptor.errors import BadInput, did_you_mean

BODILESS: Final = ("GET", "HEAD", "DELETE")
METHODS: Final = ("POST", "PUT", "PATCH", *BODILESS)
HEADERS: Final = 64
HEADER: Final = 8192  # characters of a header's value
OURS: Final = ("idempotency-key", "x-raptor-attempt")
# Those that frame the message or say whom it is for.
FRAMING: Final = (
    "connection", "content-length", "expect", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te",
    "trailer", "transfer-encoding", "upgrade",
)  # fmt: skip

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?|")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request. Without a body of its own it carries the task's data."""

    url: str | None = None  # None: the task's data names it
    method: str = "POST"
    headers: Mapping[str, str] = {}
    body: Any = msgspec.UNSET  # text as it is, anything else as JSON
    allowed: Allowed = Allowed()

    def __repr__(self) -> str:
        """Without the headers and the query, which may hold secrets."""
        try:
            return f"Call({self.method} {None if self.url is None else read_url(self.url)})"
        except BadInput:
            return f"Call({self.method})"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message goes. The task's data is its body."""

    url: str  # amqp:// or amqps://, with the user and the password
    exchange: str = ""  # the default one, whose routing keys are the names of queues
    routing_key: str = ""

    def __repr__(self) -> str:
        return f"Message({self.broker}, exchange={self.exchange!r}, routing_key={self.routing_key!r})"

    @property
    def broker(self) -> str:
        """The server and the virtual host, without the user and the password."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_call(table: Mapping[str, Any], expand: Callable[[str], str] = str) -> Call:
    """A table such as {"url": ..., "method": "POST", "headers": {...}, "body": ...}."""
    known = ("url", "method", "headers", "body")
    refuse_unknown(table, known)
    read = {key: _expanded(value, expand) for key, value in table.items()}
    call = Call(**read)
    if call.url is None:
        raise BadInput("url: a URL (https://...) is expected")
    check_call(call)
    return call


def read_message(table: Mapping[str, Any], expand: Callable[[str], str] = str) -> Message:
    """A table such as {"url": "amqp://...", "exchange": "", "routing_key": "orders"}."""
    refuse_unknown(table, ("url", "exchange", "routing_key"))
    if "url" not in table:
        raise BadInput("url: a URL (amqp://...) is expected")
    message = Message(**{key: _expanded(value, expand) for key, value in table.items()})
    check_message(message)
    return message


def check_call(call: Call) -> None:
    """Refuse a request that could never be sent. Whether it may go there is the allow-list's business."""
    if call.url is not None:
        _at("url", read_url, call.url)
    if not isinstance(call.method, str) or call.method not in METHODS:
        raise BadInput(f"method: {', '.join(METHODS)} are known, not {call.method!r}")
    if call.method in BODILESS and call.body is not msgspec.UNSET:
        raise BadInput(f"body: {call.method} goes without one")
    _at("headers", check_headers, call.headers)
    if call.body is not msgspec.UNSET:
        _at("body", encoded, call.body)


def check_headers(headers: object) -> None:
    """Refuse what would break the message up, or pass for somebody else. No value is shown: it may be a secret."""
    given = cast("Mapping[object, object]", headers)
    if not isinstance(headers, Mapping) or len(given) > HEADERS:
        raise BadInput(f"names and values in text are expected, {HEADERS} at most")
    for name, value in given.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadInput(f"{str(name)[:100]!r} is no name of a header")
        if name.lower() in (*FRAMING, *OURS):
            raise BadInput(f"{name}: Raptor sets this one itself")
        if not isinstance(value, str) or len(value) > HEADER or not _VALUE.fullmatch(value):
            raise BadInput(f"{name}: printable ASCII in one line is expected, without space around it")


def check_message(message: Message) -> None:
    """Refuse a message that could never be sent, without showing its URL: it may hold a password."""
    if not isinstance(message.url, str):
        raise BadInput("url: a URL (amqp://...) is expected")
    if not re.fullmatch("[!-~]+", message.url):
        raise BadInput("url: a space, a control or a non-ASCII character: percent-encode it")
    parts = _split(message.url)
    if parts is None or parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise BadInput("url: amqp://user:password@host:port/vhost is expected, or amqps://...")
    for option, text in (("exchange", message.exchange), ("routing_key", message.routing_key)):
        if not isinstance(text, str) or len(text.encode(errors="replace")) > 255 or not text.isprintable():
            raise BadInput(f"{option}: a text of 255 bytes at most is expected, not {text!r:.100}")
    if not message.exchange and not message.routing_key:
        raise BadInput("routing_key: the default exchange needs the name of a queue")


def encoded(body: object) -> tuple[bytes, str]:
    """A body, and its content type."""
    if isinstance(body, str):
        return body.encode(errors="replace"), "text/plain; charset=utf-8"
    return as_json(body), "application/json"


def as_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"a JSON value is expected: {error}") from None


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _at(option: str, check: Callable[[Any], object], value: object) -> None:
    try:
        check(value)
    except BadInput as error:
        raise BadInput(f"{option}: {error}") from None


def refuse_unknown(table: object, known: tuple[str, ...]) -> None:
    if not isinstance(table, Mapping):
        raise BadInput(f"a table with {', '.join(known)} is expected")
    for key in map(str, cast("Mapping[object, object]", table)):
        if key not in known:
            advice = did_you_mean(key, known) or f"there are {', '.join(known)}"
            raise BadInput(f"{key[:100]!r}: no such key: {advice}")


def _expanded(value: object, expand: Callable[[str], str]) -> Any:
    """Every text in it, as far down as it goes."""
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, dict):
        return {key: _expanded(inner, expand) for key, inner in cast("dict[str, object]", value).items()}
    return [_expanded(inner, expand) for inner in cast("list[object]", value)] if isinstance(value, list) else value
