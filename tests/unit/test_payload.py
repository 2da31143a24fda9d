"""What a task carries: checked against the service before it is stored, and the same when it is read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.errors import BadInput
from raptor.payload import Codec, Form, form_of
from raptor.runners import Context


class Order(msgspec.Struct):
    id: int
    items: list[str] = []


def nothing() -> None: ...
def with_context(ctx: Context) -> None: ...
def fields(a: int, b: str = "x") -> None: ...
def fields_and_context(ctx: Context, a: int) -> None: ...
def whole(data: Order) -> None: ...
def loose(a, b=None):  # type: ignore[no-untyped-def]
    ...


def many(orders: list[Order]) -> None: ...
def unknown_type(a: threading.Lock) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def binary(
    n: int, big: int, text: str, flag: bool, raw: bytes, numbers: list[int], at: datetime | None = None
) -> None: ...


def round_trip(form: Form, data: Any, codec: Codec = "json") -> Any:
    return form.arguments(form.decode(form.encode(data, codec)))


def test_parameters_are_fields_and_defaults_are_kept() -> None:
    assert round_trip(form_of(fields), {"a": 1}) == {"a": 1, "b": "x"}
    assert round_trip(form_of(fields_and_context), {"a": 1}) == {"a": 1}
    assert form_of(fields).required == ("a",)


def test_one_that_is_called_data_gets_all_of_it() -> None:
    assert round_trip(form_of(whole), {"id": 1}) == {"data": Order(1)}


def test_what_has_no_types_takes_anything() -> None:
    anything: list[Any] = [loose, unknown_type]
    for function in anything:
        assert round_trip(form_of(function), {"a": [1, {"c": None}]})["a"] == [1, {"c": None}]


def test_a_function_of_the_context_alone_has_its_data_there() -> None:
    form = form_of(with_context)
    assert form.decode(form.encode([1, 2])) == [1, 2]
    assert form.arguments([1, 2]) == {}


def test_a_task_of_a_batch_is_one_of_the_list() -> None:
    form = form_of(many, batch=True)
    assert form.decode(form.encode({"id": 1})) == Order(1)
    with pytest.raises(BadInput):
        form.encode([{"id": 1}])


@pytest.mark.spec("003-02", "R3-06")
@pytest.mark.parametrize(
    ("function", "data", "where"),
    [
        (fields, {"a": "1"}, r"\$\.a"),
        (fields, {"b": "x"}, "`a`"),
        (fields, {"a": 1, "c": 2}, "`c`"),
        (fields, [1], "object"),
        (fields, None, "`a`"),
        (whole, {"id": 1, "items": [1]}, r"\$\.items\[0\]"),
        (nothing, {"a": 1}, "no data"),
        (with_context, {1, 2, object()}, "object"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(function: Any, data: Any, where: str) -> None:
    with pytest.raises(BadInput, match=where):
        form_of(function).encode(data)


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(BadInput, match="limit"):
        form_of(with_context).encode("x" * 100, limit=50)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "\ud800", 2**70], ids=str)
def test_what_json_cannot_hold_is_refused_or_kept_whole(bad: Any) -> None:
    form = form_of(with_context)
    try:
        stored = form.encode({"v": bad})
    except BadInput:
        return
    form.decode(stored)


def test_a_value_that_nests_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadInput):
        form_of(with_context).encode(endless)


@pytest.mark.parametrize("stored", ["{", "", "[1,", b"\xc1", b"", '{"a": "no number"}', "null", "5"], ids=repr)
def test_what_cannot_be_read_is_refused_not_raised(stored: str | bytes) -> None:
    with pytest.raises(BadInput, match="bad payload"):
        form_of(fields).decode(stored)


@pytest.mark.spec("003-41", "003-43")
@pytest.mark.parametrize("codec", ["json", "msgpack"])
@given(
    st.fixed_dictionaries(
        {
            "n": st.integers(-(2**31), 2**31 - 1),
            "big": st.integers(-(2**63), 2**63 - 1),
            "text": st.text(),
            "flag": st.booleans(),
            "raw": st.binary(),
            "numbers": st.lists(st.integers(-(2**63), 2**63 - 1)),
        }
    )
)
def test_the_types_of_a_contract_come_back_as_they_were(codec: Codec, data: dict[str, Any]) -> None:
    form = form_of(binary)
    assert form.arguments(form.decode(form.encode(data, codec))) == {**data, "at": None}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_value_comes_back_as_it_was(data: Any) -> None:
    form = form_of(with_context)
    assert form.decode(form.encode(data)) == data
    assert form.decode(form.encode(data, "msgpack")) == data


def test_a_service_without_a_function_takes_anything() -> None:
    assert form_of(None).decode(form_of(None).encode({"url": "x"})) == {"url": "x"}
