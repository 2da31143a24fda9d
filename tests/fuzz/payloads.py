"""Target: what a task carries, as JSON and as msgpack, for functions of several forms."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec

from raptor.errors import BadInput
from raptor.payload import Form
from tests.fuzz.draw import Draw
from tests.fuzz.target import Target, must


class Address(msgspec.Struct):
    street: str
    number: int = 1


def greet(name: str, times: int = 1) -> None: ...


def order(id: UUID, at: datetime, price: Decimal, to: Address, kind: Literal["a", "b"] = "a") -> None: ...


def whole(data: dict[str, list[Address]]) -> None: ...


def loose(data: Any) -> None: ...


def many(rows: list[tuple[int, str | None, timedelta, bytes]]) -> None: ...


FORMS = (Form(None), Form(greet), Form(order), Form(whole), Form(loose), Form(many, batch=True), Form(lambda: None))


def payload(data: bytes) -> None:
    draw = Draw(data)
    form, codec = draw.pick(FORMS), draw.below(3)
    if codec == 2:
        _round(form, draw.plain())
        return
    body = draw.rest()
    try:
        value = form.decode(body.decode("utf-8", "surrogateescape") if codec else body)
    except BadInput:
        return
    form.arguments(value)
    _round(form, msgspec.to_builtins(value) if form._fields else value)


def _round(form: Form, value: Any) -> None:
    """What is accepted is read back, by either codec."""
    for codec in ("json", "msgpack"):
        try:
            stored = form.encode(value, codec)
        except BadInput:
            continue
        must(isinstance(stored, str) == (codec == "json"), "stored as another kind")
        form.arguments(form.decode(stored))


TARGETS = (
    Target(
        "payload",
        payload,
        (
            b'\x00\x01{"a":[1,2.5,null,true,"x"]}', b'\x01\x01{"name":"ann","times":3}', b"\x01\x00\x81\xa4name\xa3ann",
            b'\x02\x01{"id":"12345678123456781234567812345678","at":"2026-01-02T03:04:05Z","price":"1.50","to":{"street":"x"}}',
            b'\x03\x01{"x":[{"street":"s","number":2}]}', b'\x05\x01[1,null,"P1D","AAE="]', b"\x00\x00\x93\x01\xc3\xc0",
            b"\x00\x00\xd6\xff\x00\x00\x00\x01", b"\x04\x02\x07\x03\x01\x02\x03\x04\x05\x06",
        ),
        (b"null", b"1e309", b"-1", b"9" * 25, b'"name"', b"\xc1", b"\xdf\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff",
         b"[" * 50, b"\x91" * 50),
    ),
)  # fmt: skip
