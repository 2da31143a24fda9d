"""HTTP services: what is sent, what counts as success, and how replies that are wrong, slow or endless end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from raptor.address import read_allowed
from raptor.builtin import builtin_services, http_service, with_allowed
from raptor.clock import Clock
from raptor.runners import time_limit
from raptor.service import Service
from raptor.task import Outcome, Result
from tests.unit.runs import Trial, run
from tests.unit.web import DEADLINE_S, Answer, Sent, Server, serving, status


def calling(server: Server, path: str = "/hook", **options: Any) -> Service:
    url = f"http://127.0.0.1:{server.port}"
    return with_allowed(http_service("notify", url + path, **options), read_allowed([url], []))


def builtin(server: Server) -> Service:
    (service,) = builtin_services(read_allowed([f"http://127.0.0.1:{server.port}"], []))
    return service


async def reply_to(clock: Clock, answer: Answer | str | bytes, data: Any = None, **options: Any) -> Result:
    async with serving(answer) as server:
        return await run(clock, calling(server, **options), data=data)


@pytest.mark.spec("000-35", "001-46", "001-47", "R0-04")
async def test_a_call_brings_the_tasks_data_to_the_url(system_clock: Clock) -> None:
    async with serving(status("200 OK", "thanks")) as server:
        result = await run(system_clock, calling(server, "/hook?a=1"), data={"order": 7}, key="notify@17", attempt=3)
        (sent,) = server.requests
    assert result.outcome is Outcome.OK
    assert result.info.startswith("200 OK in ")
    assert result.tail.endswith("\nthanks")
    assert sent.line == "POST /hook?a=1 HTTP/1.1"
    assert json.loads(sent.body) == {"order": 7}
    assert sent.headers["host"] == f"127.0.0.1:{server.port}"
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["connection"] == "close"
    assert (sent.headers["idempotency-key"], sent.headers["x-raptor-attempt"]) == ("notify@17", "3")


@pytest.mark.parametrize(
    ("options", "body", "kind"),
    [
        ({"body": {"a": [1]}}, b'{"a":[1]}', "application/json"),
        ({"body": "plain"}, b"plain", "text/plain; charset=utf-8"),
        ({"body": "a,b", "headers": {"content-type": "text/csv"}}, b"a,b", "text/csv"),
        ({"body": None, "method": "PUT"}, b"null", "application/json"),
        ({"method": "GET"}, b"", None),
        ({"method": "DELETE"}, b"", None),
        ({}, b'"data"', "application/json"),
    ],
)
async def test_a_body_of_its_own_goes_before_the_data(
    system_clock: Clock, options: dict[str, Any], body: bytes, kind: str | None
) -> None:
    async with serving(status("204 No Content")) as server:
        result = await run(system_clock, calling(server, **options), data="data")
        (sent,) = server.requests
    assert result.outcome is Outcome.OK
    assert (sent.body, sent.headers.get("content-type")) == (body, kind)
    assert ("content-length" in sent.headers) == (options.get("method") not in ("GET", "DELETE"))


async def test_a_run_without_data_has_an_empty_body(system_clock: Clock) -> None:
    async with serving(status("200 OK")) as server:
        await run(system_clock, calling(server, headers={"Authorization": "Bearer abc"}))
        (sent,) = server.requests
    assert (sent.body, sent.headers["content-length"], sent.headers["authorization"]) == (b"", "0", "Bearer abc")


@pytest.mark.spec("R0-04", "001-46")
async def test_the_built_in_service_calls_what_its_task_names(system_clock: Clock) -> None:
    async with serving(status("200 OK")) as server:
        url = f"http://127.0.0.1:{server.port}/cb"
        plain = await run(system_clock, builtin(server), data={"url": url, "data": "late"})
        other = {"url": url, "method": "PUT", "headers": {"X-A": "b"}, "body": "text"}
        assert plain.outcome is (await run(system_clock, builtin(server), data=other)).outcome is Outcome.OK
        first, second = server.requests
    assert (first.line, first.body) == ("POST /cb HTTP/1.1", b'"late"')
    assert (second.line, second.body, second.headers["x-a"]) == ("PUT /cb HTTP/1.1", b"text", "b")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "the task's data says what to call"),
        ([], "the task's data says what to call"),
        ({}, "url: a URL"),
        ({"url": 5}, "url: a URL (https://...) is expected, not int"),
        ({"url": "http://h/", "uri": 1}, "'uri': no such key"),
        ({"url": "http://h/", "data": 1, "body": 2}, "data goes without body"),
        ({"url": "http://h/", "method": "GET", "data": 1}, "body: GET goes without one"),
        ({"url": "http://h/", "method": "TRACE"}, "method: POST,"),
        ({"url": "http://h/", "headers": {"Host": "other"}}, "headers: Host: Raptor sets this one itself"),
        ({"url": "http://h/", "headers": {"A": "b\r\nC: d"}}, "headers: A: printable ASCII in one line"),
        ({"url": "http://h/", "headers": {"A\r\nC": "d"}}, "headers: 'A\\r\\nC' is no name of a header"),
        ({"url": "http://h/", "headers": ["A"]}, "headers: names and values"),
        ({"url": "http://h/\r\nX: y"}, "url: a URL with a space"),
        ({"url": "http://elsewhere/"}, "http://elsewhere is not allowed"),
    ],
)
async def test_a_task_that_names_no_call_is_refused(system_clock: Clock, data: Any, problem: str) -> None:
    async with serving(status("200 OK")) as server:
        result = await run(system_clock, builtin(server), data=data)
        assert server.requests == []
    assert result.outcome is Outcome.FAILED
    assert problem in (result.error or "")


@pytest.mark.parametrize("line", ["199 Odd", "304 Not Modified", "404 Not Found", "500 Oh No", "599"])
async def test_any_status_but_2xx_is_a_failure_with_its_line(system_clock: Clock, line: str) -> None:
    first = "HTTP/1.1 100 Continue\r\n\r\n" if line == "199 Odd" else ""
    answer = f"{first}{status('200 OK' if first else line, 'why it failed')}"
    result = await reply_to(system_clock, answer)
    if first:  # an interim reply is none
        assert result.outcome is Outcome.OK
        return
    assert result.outcome is Outcome.FAILED
    assert result.info == line
    assert ("why it failed" in result.tail) == ("why it failed" in (result.error or "")) == (line[0] != "3")


async def test_a_server_that_asks_for_patience_is_quoted(system_clock: Clock) -> None:
    result = await reply_to(system_clock, status("503 Service Unavailable", "", "Retry-After: 120"))
    assert result.info == "503 Service Unavailable, Retry-After: 120"


async def test_a_status_without_a_phrase_gets_its_usual_one(system_clock: Clock) -> None:
    assert (await reply_to(system_clock, "HTTP/1.1 418\r\nContent-Length: 0\r\n\r\n")).info == "418 I'm a Teapot"


@pytest.mark.parametrize(
    "body",
    [
        "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: 1\r\n\r\n",
        "Content-Length: 11\r\n\r\nhello world",
        "\r\nhello world",
    ],
)
async def test_a_body_ends_as_its_headers_say(system_clock: Clock, body: str) -> None:
    result = await reply_to(system_clock, f"HTTP/1.1 200 OK\r\n{body}")
    assert result.outcome is Outcome.OK
    assert result.tail.endswith("\nhello world")


async def test_the_reply_to_head_has_no_body(system_clock: Clock) -> None:
    answer = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    assert (await reply_to(system_clock, answer, method="HEAD")).outcome is Outcome.OK


@pytest.mark.parametrize("length", ["Content-Length: 1000000000\r\n", "Transfer-Encoding: chunked\r\n", ""])
async def test_a_body_without_end_is_left_after_its_beginning(system_clock: Clock, length: str) -> None:
    written = 0

    async def flood(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        while not server.left.is_set():
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n" if "chunked" in length else b"x" * 65536)
            await writer.drain()
            written += 65536

    result = await reply_to(system_clock, flood)
    assert result.outcome is Outcome.OK
    assert len(result.tail) < 4096
    assert written < 64 * 1024 * 1024  # what fits into the kernel's buffers


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "closed before the whole reply had come"),
        ("HTTP/1.1 200 OK\r\nContent-", "closed before the whole reply had come"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "closed before the whole reply had come"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "closed before the whole reply had come"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-4\r\nhalf\r\n", "a chunk whose length cannot be read"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhalf\r\n", "a chunk that is longer than it said"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "in the coding gzip"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "of the length -1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "two lengths"),
        ("HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n", "a header that cannot be read"),
        ("HTTP/2 200 OK\r\n\r\n", "not an HTTP reply: HTTP/2 200 OK"),
        ("HTTP/1.1 2x0 OK\r\n\r\n", "not an HTTP reply"),
        ("SSH-2.0-\x1b[31m\r\n\r\n", "not an HTTP reply: SSH-2.0-\\x1b[31m"),
        ("HTTP/1.1 101 Switching\r\n\r\n", "in another protocol"),
        ("HTTP/1.1 100 Continue\r\n\r\n" * 50, "interim replies without end"),
        ("HTTP/1.1 200 OK\r\nA: " + "b" * 100_000 + "\r\n\r\n", "longer than 32768 bytes"),
    ],
)
async def test_a_reply_that_cannot_be_understood_is_a_failure(system_clock: Clock, answer: str, problem: str) -> None:
    result = await reply_to(system_clock, answer)
    assert result.outcome is Outcome.FAILED
    assert problem in result.info


async def test_nobody_at_the_port_is_a_failure_that_names_it(system_clock: Clock) -> None:
    async with serving(status("200 OK")) as server:
        service = calling(server)
    result = await run(system_clock, service)
    assert result.outcome is Outcome.FAILED
    assert f"no connection to 127.0.0.1 port {server.port}: " in result.info


@pytest.mark.spec("001-49")
async def test_an_attempt_after_a_lost_reply_bears_the_same_key(system_clock: Clock) -> None:
    done: list[str] = []

    async def drop_the_first(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        if sent.headers["idempotency-key"] not in done:
            done.append(sent.headers["idempotency-key"])
            writer.transport.abort()  # the work is done, and nobody hears of it
        else:
            writer.write(status("200 OK", "done before").encode())

    async with serving(drop_the_first) as server:
        service = calling(server)
        first = await run(system_clock, service, key="pay@9", attempt=1)
        second = await run(system_clock, service, key="pay@9", attempt=2)
        attempts = [sent.headers["x-raptor-attempt"] for sent in server.requests]
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.OK)
    assert (done, attempts) == (["pay@9"], ["1", "2"])


async def test_a_key_that_no_header_can_hold_is_written_in_escapes(system_clock: Clock) -> None:
    async with serving(status("200 OK")) as server:
        assert (await run(system_clock, calling(server), key="é\r\nX: y")).outcome is Outcome.OK
    assert server.requests[0].headers["idempotency-key"] == "%C3%A9%0D%0AX:%20y"


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_reply_that_drips_ends_with_the_timeout(system_clock: Clock, part: str) -> None:
    async def drip(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + (b"" if part == "head" else b"Content-Length: 1000000\r\n\r\n"))
        while not server.left.is_set() and not writer.is_closing():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.01)

    result = await reply_to(system_clock, drip, timeout="300ms")
    assert result.outcome is Outcome.TIMED_OUT
    assert result.info == "timed out after 0.3 s"


async def silent(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the client is gone."""


async def test_a_cancellation_closes_the_connection(system_clock: Clock) -> None:
    async with serving(silent) as server:
        trial = Trial(system_clock, calling(server))
        running = trial.start()
        await server.when(server.arrived)
        assert not server.left.is_set()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.when(server.left)


def test_a_call_may_take_half_a_minute_unless_it_says_otherwise() -> None:
    assert time_limit(http_service("a", "https://a.example")) == 30.0
    assert time_limit(http_service("a", "https://a.example", timeout="2m")) == 120.0
    assert time_limit(http_service("a", "https://a.example", timeout=0)) is None


@pytest.mark.spec("001-62")
async def test_callbacks_wait_side_by_side(system_clock: Clock) -> None:
    together = 30
    everybody = asyncio.Event()

    async def when_all_are_there(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) == together:
            everybody.set()
        await server.when(everybody)
        writer.write(status("200 OK").encode())

    async with serving(when_all_are_there) as server, asyncio.timeout(DEADLINE_S):
        results = await asyncio.gather(*(run(system_clock, calling(server)) for _ in range(together)))
    assert {result.outcome for result in results} == {Outcome.OK}


# Redirects


def at(path: str, answers: dict[str, str]) -> Answer:
    async def answer(server: Server, sent: Sent, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.get(sent.line.split()[1], status("404 Not Found")).encode())

    return answer


@pytest.mark.parametrize(("line", "method"), [("302 Found", "GET"), ("301 Moved", "HEAD"), ("308 There", "POST")])
async def test_a_redirect_within_the_origin_is_followed(system_clock: Clock, line: str, method: str) -> None:
    answers = {"/hook": status(line, "", "Location: /new?b=2"), "/new?b=2": status("200 OK")}
    async with serving(at("/hook", answers)) as server:
        result = await run(system_clock, calling(server, method=method), data={"a": 1})
        first, second = server.requests
    assert result.outcome is Outcome.OK
    assert (second.line, second.body) == (f"{method} /new?b=2 HTTP/1.1", first.body)
    assert second.headers["idempotency-key"] == first.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("location", "method", "problem"),
    [
        ("http://169.254.169.254/latest", "GET", "a redirect to http://169.254.169.254/latest, which is another place"),
        ("http://127.0.0.1:1/", "GET", "a redirect to http://127.0.0.1:1/, which is another place"),
        ("//evil.example/", "GET", "a redirect to http://evil.example/, which is another place"),
        ("https://evil.example/?secret=1", "GET", "a redirect to https://evil.example/, which is another place"),
        ("/new", "POST", "which would turn POST into GET"),
        ("file:///etc/passwd", "GET", "a redirect that cannot be read: a URL that begins with http"),
        ("http://u:p@h/", "GET", "a redirect that cannot be read: a URL with a user or a password"),
        ("http://[/", "GET", "a redirect that cannot be read"),
        ("\x01", "GET", "a redirect that cannot be read"),
    ],
)
async def test_a_redirect_elsewhere_is_a_failure_that_names_it(
    system_clock: Clock, location: str, method: str, problem: str
) -> None:
    async with serving(status("302 Found", "", f"Location: {location}")) as server:
        result = await run(system_clock, calling(server, method=method))
        assert len(server.requests) == 1
    assert result.outcome is Outcome.FAILED
    assert problem in (result.error or "")


async def test_redirects_in_a_circle_end(system_clock: Clock) -> None:
    async with serving(status("302 Found", "", "Location: /hook")) as server:
        result = await run(system_clock, calling(server, method="GET"))
        assert len(server.requests) == 6
    assert result.info.startswith("more than 5 redirects")


def test_a_service_is_shown_without_its_secrets() -> None:
    service = http_service("a", "https://a.example/x?token=abc", headers={"Authorization": "Bearer abc"})
    assert "abc" not in repr(service)
    assert repr(service.http) == "Call(POST https://a.example/x)"
    assert msgspec.structs.replace(service) == service
