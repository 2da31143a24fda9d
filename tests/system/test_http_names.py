"""HTTP calls by name: what the name leads to is looked at once, and TLS holds the server to its name."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from raptor.address import read_allowed
from raptor.builtin import http_service, with_allowed
from raptor.clock import Clock
from raptor.service import Service
from raptor.task import Outcome
from tests.unit.runs import run
from tests.unit.web import serving, status

NAME = "api.example"


def calling(url: str, networks: list[str], **options: Any) -> Service:
    return with_allowed(http_service("notify", url, **options), read_allowed([url], networks))


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Make names lead to these addresses, one answer after another; -> the names that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        addresses = answers[min(len(asked), len(answers)) - 1]
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [(families[":" in one], socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.spec("001-64")
async def test_the_address_that_was_looked_at_is_the_one_that_is_called(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(status("200 OK")) as server:
        # A second look would find an address at which nobody answers.
        asked = resolve(monkeypatch, ["127.0.0.1"], ["127.0.0.99"])
        result = await run(system_clock, calling(f"http://{NAME}:{server.port}", ["127.0.0.1/32"]))
    assert (result.outcome, result.info.split(" in ")[0]) == (Outcome.OK, "200 OK")
    assert asked == [NAME]
    assert server.requests[0].headers["host"] == f"{NAME}:{server.port}"


@pytest.mark.spec("001-64")
@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["::ffff:7f00:1"], ["169.254.169.254"], ["8.8.8.8", "127.0.0.1"], ["64:ff9b::7f00:1"]],
)
async def test_a_name_that_leads_inside_is_not_called(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    async with serving(status("200 OK")) as server:
        resolve(monkeypatch, addresses)
        result = await run(system_clock, calling(f"http://{NAME}:{server.port}", []))
        assert server.requests == []
    assert result.outcome is Outcome.FAILED
    assert f"{NAME} leads to {addresses[-1]}, which is not a public address" in (result.error or "")


async def test_a_name_is_looked_up_again_for_each_redirect(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(status("302 Found", "", "Location: /again")) as server:
        asked = resolve(monkeypatch, ["127.0.0.1"], ["10.0.0.1"])
        result = await run(system_clock, calling(f"http://{NAME}:{server.port}", ["127.0.0.1/32"], method="GET"))
        assert (len(server.requests), asked) == (1, [NAME, NAME])
    assert f"{NAME} leads to 10.0.0.1" in result.info


async def test_the_next_address_is_tried_when_one_does_not_answer(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(status("200 OK")) as server:
        resolve(monkeypatch, ["127.0.0.99", "127.0.0.1"])
        result = await run(system_clock, calling(f"http://{NAME}:{server.port}", ["127.0.0.0/8"]))
    assert result.outcome is Outcome.OK


@pytest.mark.parametrize("url", ["http://nowhere.invalid/", "http://localhost:1/"])
async def test_a_name_that_is_not_found_or_not_there_is_a_failure(system_clock: Clock, url: str) -> None:
    result = await run(system_clock, with_allowed(http_service("a", url), read_allowed([url], [])))
    assert result.outcome is Outcome.FAILED
    assert "nowhere.invalid was not found: " in result.info or "port 1: " in result.info


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own making for the name, with its key in the same file."""
    openssl = shutil.which("openssl")
    assert openssl, "there is no openssl: run `make servers`"
    folder = tmp_path_factory.mktemp("tls")
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={NAME} -addext subjectAltName=DNS:{NAME}".split()
    subprocess.run(
        [openssl, *words, "-keyout", folder / "key", "-out", folder / "crt"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    both = folder / "both.pem"
    both.write_text((folder / "key").read_text() + (folder / "crt").read_text())
    return both


def context(certificate: Path, names: list[str | None]) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    made.sni_callback = lambda _, name, __: names.append(name)
    return made


async def test_tls_asks_for_the_name_and_believes_its_certificate(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch, certificate: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names: list[str | None] = []
    async with serving(status("200 OK", "safe"), context(certificate, names)) as server:
        resolve(monkeypatch, ["127.0.0.1"])
        result = await run(system_clock, calling(f"https://{NAME}:{server.port}", ["127.0.0.0/8"]), data={"a": 1})
    assert (result.outcome, result.tail.splitlines()[-1]) == (Outcome.OK, "safe")
    assert names == [NAME]
    assert server.requests[0].body == b'{"a":1}'


@pytest.mark.parametrize(("host", "trusted"), [("other.example", True), (NAME, False), ("127.0.0.1", True)])
async def test_a_certificate_of_another_name_or_of_nobody_known_is_refused(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch, certificate: Path, host: str, trusted: bool
) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with serving(status("200 OK"), context(certificate, [])) as server:
        resolve(monkeypatch, ["127.0.0.1"])
        result = await run(system_clock, calling(f"https://{host}:{server.port}", ["127.0.0.0/8"]))
        assert server.requests == []
    assert result.outcome is Outcome.FAILED
    assert result.info.startswith(f"the certificate of {host} was refused: ")


async def test_plain_text_where_tls_is_expected_is_a_failure(
    system_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(status("200 OK")) as server:
        resolve(monkeypatch, ["127.0.0.1"])
        result = await run(system_clock, calling(f"https://{NAME}:{server.port}", ["127.0.0.0/8"], timeout="5s"))
    assert result.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    assert server.requests == []
