"""Services of raptor.toml that need no code, the [http] section, and the built-in http."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raptor.builtin import HTTP, http_service
from raptor.clock import Clock
from raptor.config import Config
from raptor.errors import BadInput
from raptor.node import Node
from raptor.runners import RUNNERS, check
from raptor.service import Service

NOTIFY = """[services.notify]
timeout = "5s"
http.url = "https://${HOST}/x"
http.method = "PUT"
http.headers = {Authorization = "Bearer ${TOKEN}"}
http.body = {a = ["${HOST}"]}
"""
ALLOW = '[http]\nallow = ["https://a.example", "http://127.0.0.1:8080"]\nnetworks = ["10.0.0.0/8"]\n'
ENVIRON = {"HOST": "a.example", "TOKEN": "t0k"}


def load(folder: Path, text: str, **environ: str) -> Config:
    (folder / "raptor.toml").write_text(text)
    return Config.load(environ={**ENVIRON, **environ}, cwd=folder, user_file=folder / "none", user_state=folder)


def test_a_call_is_read_with_the_environment_in_it(tmp_path: Path) -> None:
    service = load(tmp_path, NOTIFY + ALLOW).catalogue().find("notify")
    assert (service.kind, service.timeout_s) == ("http", 5.0)
    assert service.http is not None
    assert (service.http.url, service.http.method, service.http.body) == (
        "https://a.example/x",
        "PUT",
        {"a": ["a.example"]},
    )
    assert service.http.headers == {"Authorization": "Bearer t0k"}
    check(service)


def test_a_url_alone_is_a_call(tmp_path: Path) -> None:
    service = load(tmp_path, '[services.a]\nhttp = "https://a.example/x"\n').catalogue().find("a")
    assert service.http is not None
    assert (service.http.url, service.http.method) == ("https://a.example/x", "POST")


def test_a_message_is_read_with_the_environment_in_it(tmp_path: Path) -> None:
    text = '[services.events]\npublish = {url = "${AMQP}", exchange = "x", routing_key = "orders"}\n'
    service = load(tmp_path, text, AMQP="amqp://u:p@h:5672/v").catalogue().find("events")
    assert (service.kind, repr(service.publish)) == (
        "publish",
        "Message(amqp://h:5672/v, exchange='x', routing_key='orders')",
    )
    check(service)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http = 5", "services.a.http: a table with url, method, headers, body is expected"),
        ("http = {}", "services.a.http: url: a URL (https://...) is expected"),
        ('http = {url = "ftp://x"}', "services.a.http: url: a URL that begins with http:// or https://"),
        ('http = {url = "https://u:s3cret@x"}', "services.a.http: url: a URL with a user or a password in it"),
        ('http = {url = "https://x", metod = "GET"}', "services.a.http: 'metod': no such key: did you mean 'method'?"),
        ('http = {url = "https://x", method = "get"}', "services.a.http: method: POST, PUT, PATCH, GET, HEAD, DELETE"),
        ('http = {url = "https://x", method = "GET", body = 1}', "services.a.http: body: GET goes without one"),
        ('http = {url = "https://x", headers = {A = 1}}', "services.a.http: headers: A: printable ASCII"),
        ('http = {url = "https://x", headers = {Host = "y"}}', "services.a.http: headers: Host: Raptor sets"),
        (
            'http = {url = "https://x", headers = {Idempotency-Key = "y"}}',
            "services.a.http: headers: Idempotency-Key",
        ),
        ('http = {url = "https://x/${NOT_SET}"}', "services.a.http: 'https://x/${NOT_SET}': the variable NOT_SET"),
        ('http = {url = "https://x"}\npython = "m:f"', "services.a: one of command = "),
        ('http = {url = "https://x"}\nenv = {A = "b"}', "services.a.env: goes with a command"),
        ("publish = {}", "services.a.publish: url: a URL (amqp://...) is expected"),
        ('publish = {url = "amqp://h", queue = "q"}', "services.a.publish: 'queue': no such key"),
        ('publish = {url = "amqp://u:s3cret@h"}', "services.a.publish: routing_key: the default exchange needs"),
        ('publish = "amqp://u:s3cret@h"', "services.a.publish: a table with url, exchange, routing_key is expected"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, f"[services.a]\n{text}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'raptor.toml'}: {problem}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('allow = ["example.com"]', "http.allow: an origin such as"),
        ("allow = [5]", "http.allow: a list of texts is expected"),
        ('networks = ["10.0.0.1/8"]', "http.networks: a network such as"),
        ("alow = []", "http.alow: no such key: did you mean 'allow'?"),
    ],
)
def test_a_wrong_allow_list_is_refused_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, f"[http]\n{text}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'raptor.toml'}: {problem}")


def test_the_allow_list_comes_from_the_environment_too(tmp_path: Path) -> None:
    config = load(tmp_path, ALLOW, RAPTOR_HTTP_ALLOW="https://b.example, https://*.c.example")
    assert [str(origin) for origin in config.http.origins] == ["https://b.example", "https://*.c.example"]
    assert [str(network) for network in config.http.networks] == ["10.0.0.0/8"]


@pytest.mark.spec("001-64")
@pytest.mark.parametrize("given", [True, False])
async def test_a_node_refuses_a_url_that_is_not_allowed_with_the_line_to_add(
    system_clock: Clock, tmp_path: Path, given: bool
) -> None:
    services: list[Any] = [http_service("notify", "https://b.example/x")] if given else []
    text = ALLOW + ("" if given else '[services.notify]\nhttp = "https://b.example/x"\n')
    with pytest.raises(BadInput) as caught:
        async with Node(services=services, config=load(tmp_path, text), clock=system_clock, listen=False):
            raise AssertionError("it started")
    line = 'allow = ["https://a.example", "http://127.0.0.1:8080", "https://b.example"]'
    assert str(caught.value) == (
        "service 'notify': http: https://b.example is not allowed: write into raptor.toml, under [http], " + line
    )
    listed = load(tmp_path, text.replace(ALLOW.splitlines()[1], line))
    async with Node(services=services, config=listed, clock=system_clock, listen=False) as node:
        assert node.site.catalogue["notify"].http is not None


def test_the_built_in_service_is_found_and_not_listed(tmp_path: Path) -> None:
    catalogue = load(tmp_path, ALLOW + '[services.a]\ncommand = ["true"]\n').catalogue()
    built_in = catalogue.find(HTTP)
    assert HTTP in catalogue
    assert (built_in.kind, catalogue.where(HTTP)) == ("http", "built in")
    assert built_in.http is not None
    assert len(built_in.http.allowed.origins) == 2
    assert ([*catalogue], len(catalogue)) == (["a"], 1)
    check(built_in)


def test_a_service_of_that_name_replaces_the_built_in_one(tmp_path: Path) -> None:
    catalogue = load(tmp_path, '[services.http]\ncommand = ["true"]\n').catalogue()
    assert (catalogue.find("http").kind, [*catalogue]) == ("command", ["http"])


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "http"}, "http: goes with kind http, which needs it"),
        ({"kind": "publish"}, "publish: goes with kind publish, which needs it"),
        ({"kind": "python", "http": http_service("b", "https://x").http}, "http: goes with kind http"),
        ({"kind": "http", "http": {"url": "https://x"}}, "http: a Call"),
        (
            {"kind": "http", "http": http_service("b", "https://x").http, "isolate": True},
            "isolate: goes with a function",
        ),
    ],
)
def test_a_service_has_the_work_of_its_kind(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, "").catalogue([Service(name="a", **fields)])
    assert str(caught.value).startswith(f"service 'a': {problem}")


def test_every_kind_has_a_runner(clock: Clock) -> None:
    assert [*RUNNERS] == ["python", "command", "http", "publish"]
    assert all(make(clock) for make in RUNNERS.values())
