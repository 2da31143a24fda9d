"""Services that need no code: an HTTP call, a message to RabbitMQ, and the built-in `http`, whose tasks bring a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

import msgspec

from raptor.address import Allowed
from raptor.calls import Call, Message
from raptor.service import Options, Service, make_service, read_options

HTTP: Final = "http"


def http_service(
    name: str,
    url: str,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
    body: Any = msgspec.UNSET,
    **options: Unpack[Options],
) -> Service:
    """A service that calls a URL, which the allow-list must hold. Without a body it sends the task's data."""
    at = f"service {name!r}: "
    call = Call(url=url, method=method, headers=dict(headers or {}), body=body)
    return make_service(name, {"kind": "http", "http": call, **read_options({**options}, at)}, at)


def publish_service(
    name: str, url: str, *, exchange: str = "", routing_key: str = "", **options: Unpack[Options]
) -> Service:
    """A service that sends the task's data to RabbitMQ."""
    at = f"service {name!r}: "
    message = Message(url=url, exchange=exchange, routing_key=routing_key)
    return make_service(name, {"kind": "publish", "publish": message, **read_options({**options}, at)}, at)


def builtin_services(allowed: Allowed) -> list[Service]:
    """What there is without a definition. It is found by its name, and stands in no list."""
    return [make_service(HTTP, {"kind": "http", "http": Call(allowed=allowed)})]


def with_allowed(service: Service, allowed: Allowed) -> Service:
    """An http service under an allow-list; any other as it is."""
    if not isinstance(service.http, Call):
        return service  # one that is wrong is the catalogue's to refuse
    return msgspec.structs.replace(service, http=msgspec.structs.replace(service.http, allowed=allowed))
