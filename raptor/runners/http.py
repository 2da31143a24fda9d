"""HTTP calls: to where the allow-list says and nowhere else, with the same Idempotency-Key on every attempt."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote, urljoin

import msgspec

import raptor
from raptor.address import Url, read_url
from raptor.calls import BODILESS, Call, as_json, check_call, encoded, refuse_unknown
from raptor.clock import Clock
from raptor.errors import BadInput, RaptorError
from raptor.runners import Context, time_limit
from raptor.runners.exchange import NoReply, Reply, Request, exchange
from raptor.runners.output import Recording, RunLog
from raptor.runners.text import lines, one_line
from raptor.service import Service
from raptor.task import Dead, Outcome, Result

REDIRECTS = 5
SHOWN = 3 * 1024  # bytes of a body that go into the output
REPEATABLE = ("GET", "HEAD")
SAME_METHOD = (307, 308)
REDIRECTING = (301, 302, 303, *SAME_METHOD)


class HttpRunner:
    """A status of 2xx is success. Nothing is kept between calls but what TLS trusts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tls: ssl.SSLContext | None = None

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        async with Recording(log, context, self._clock):
            began, limit_s = self._clock.monotonic(), time_limit(service)
            try:
                call = _called(service, context)
                request = _request(call, context)
                async with asyncio.timeout(limit_s):
                    reply = await self._ask(call, request)
            except TimeoutError:
                why = f"timed out after {limit_s:g} s"
                return Result(outcome=Outcome.TIMED_OUT, info=why, error=why, tail=log.tail())
            except RaptorError as error:
                # What is not allowed today will not be in a moment: a task of it is not tried again.
                never = Dead("refused") if isinstance(error, BadInput) else None
                info = one_line(str(error))
                return Result(outcome=Outcome.FAILED, info=info, error=str(error), tail=log.tail(), decision=never)
            return _result(request, reply, self._clock.monotonic() - began, log)

    async def _ask(self, call: Call, request: Request) -> Reply:
        """The reply of whoever answers at last, within one origin."""
        for _ in range(REDIRECTS + 1):
            call.allowed.check(request.url)
            origin = request.url.origin
            tls = await self._trust() if origin.scheme == "https" else None
            reply = await exchange(request, partial(call.allowed.check_address, origin), tls)
            if reply.status not in REDIRECTING:
                return reply
            request = request._replace(url=_redirected(request, reply))
        raise NoReply(f"more than {REDIRECTS} redirects, the last to {request.url}")

    async def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await self._clock.offload(ssl.create_default_context)  # reads some hundred certificates
        return self._tls


def check(service: Service) -> None:
    """Refuse a URL that is not on the allow-list."""
    if service.http is None:
        raise BadInput(f"service {service.name!r}: http: a URL is expected")
    if service.http.url is not None:
        try:
            service.http.allowed.check(read_url(service.http.url))
        except BadInput as error:
            raise BadInput(f"service {service.name!r}: http: {error}") from None


def check_data(service: Service, data: Any) -> None:
    """Refuse a task whose call is not allowed, before it is stored."""
    if service.http is not None and service.http.url is None:
        call = _named(service.http, data)
        call.allowed.check(read_url(call.url or ""))


def _called(service: Service, context: Context) -> Call:
    call = service.http
    if call is None:
        raise BadInput(f"service {service.name!r}: http: a URL is expected")
    if call.url is None:
        return _named(call, context.data)
    if call.method in BODILESS or call.body is not msgspec.UNSET or context.data is None:
        return call
    return msgspec.structs.replace(call, body=msgspec.Raw(as_json(context.data)))


def _named(call: Call, data: Any) -> Call:
    """The call that a task of the built-in service asks for."""
    if not isinstance(data, Mapping):
        raise BadInput('the task\'s data says what to call: {"url": "https://...", "method": "POST", "data": ...}')
    given = dict(cast("Mapping[str, Any]", data))
    refuse_unknown(given, ("url", "method", "headers", "body", "data"))
    if "data" in given:
        if "body" in given:
            raise BadInput("data goes without body: give one of them")
        given["body"] = msgspec.Raw(as_json(given.pop("data")))  # text too goes as JSON
    if given.get("url") is None:
        raise BadInput("url: a URL (https://...) is expected")
    named = msgspec.structs.replace(call, **given)
    check_call(named)
    return named


def _request(call: Call, context: Context) -> Request:
    ours = {
        "User-Agent": f"raptor/{raptor.__version__}",
        "Accept": "*/*",
        "Idempotency-Key": quote(context.key, safe="!#$&'()*+,/:;=?@[]~"),
        "X-Raptor-Attempt": str(context.attempt),
    }
    body = None if call.method in BODILESS else b""
    if call.body is not msgspec.UNSET:
        body, ours["Content-Type"] = encoded(call.body)
    given = {name.lower() for name in call.headers}
    headers = {name: value for name, value in ours.items() if name.lower() not in given}
    return Request(call.method, read_url(call.url), headers | dict(call.headers), body)


def _redirected(request: Request, reply: Reply) -> Url:
    """Where a redirect leads, if it may be followed."""
    location = reply.headers.get("location", "")
    try:
        # urljoin drops what it does not like, and says nothing.
        if not location or " " in location or not location.isprintable():
            raise BadInput("a URL is expected")
        target = read_url(urljoin(f"{request.url.origin}{request.url.target}", location))
    except (BadInput, ValueError) as error:
        raise NoReply(f"{reply.line}, a redirect that cannot be read: {error}") from None
    if target.origin != request.url.origin:
        raise NoReply(f"{reply.line}, a redirect to {target}, which is another place: call that URL instead")
    if request.method not in REPEATABLE and reply.status not in SAME_METHOD:
        raise NoReply(f"{reply.line}, a redirect to {target}, which would turn {request.method} into GET")
    return target


def _result(request: Request, reply: Reply, took_s: float, log: RunLog) -> Result:
    line = reply.line if reply.reason else f"{reply.status} {_phrase(reply.status)}".rstrip()
    log.text(f"{request.method} {request.url}: {line} in {took_s:.1f} s\n")
    log.write(reply.body[:SHOWN])
    if 200 <= reply.status < 300:
        return Result(outcome=Outcome.OK, info=f"{line} in {took_s:.1f} s", tail=log.tail())
    later = reply.headers.get("retry-after") if reply.status in (429, 503) else None
    why = one_line(line if later is None else f"{line}, Retry-After: {later}")
    whole = f"{request.method} {request.url}: {why}\n{lines(reply.body[:SHOWN].decode(errors='replace'), SHOWN)}"
    return Result(outcome=Outcome.FAILED, info=why, error=whole.rstrip("\n"), tail=log.tail())


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
