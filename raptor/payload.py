"""What a task carries: data that fits its service, as JSON or msgpack, checked before it is stored. Pure."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

import msgspec

from raptor.errors import BadInput

Codec: TypeAlias = Literal["json", "msgpack"]
Stored: TypeAlias = str | bytes
"""JSON as text, msgpack as bytes."""

LIMIT = 1024 * 1024
"""Bytes of data that a task may carry."""


class Form:
    """How the parameters of a function make a type: one field each, or all data for one that is called `data`."""

    def __init__(self, function: Callable[..., Any] | None, context: str | None = None, *, batch: bool = False) -> None:
        fields = [] if function is None else _parameters(function, context)
        if batch:  # its one parameter is a list; a task is one of that
            fields = [(parameter, _element(hint)) for parameter, hint in fields[:1]]
        names = [parameter.name for parameter, _ in fields]
        self.takes_whole = batch or names == ["data"]
        self.is_open = function is None or (context is not None and not names)  # whatever it is, ctx.data has it
        self.required = tuple(parameter.name for parameter, _ in fields if parameter.default is parameter.empty)
        self._whole = names[0] if self.takes_whole and names else ""
        self._type = fields[0][1] if self._whole else _type_of(fields) if names else Any
        self._json: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._type)
        self._msgpack: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._type)
        self._fields = () if self.is_open or self.takes_whole else tuple(names)

    def encode(self, data: Any, codec: Codec = "json", limit: int = LIMIT) -> Stored:
        """Data as they are stored; what does not fit the function is refused with the path of the field."""
        value: Any = {} if data is None and self._fields else data
        if not self.is_open and not self._fields and not self.takes_whole and data not in (None, {}):
            raise BadInput("the service takes no data: have its function take parameters, or `ctx`")
        try:
            if self._type is not Any:
                value = msgspec.convert(value, self._type)
            packed = msgspec.msgpack.encode(value) if codec == "msgpack" else msgspec.json.encode(value)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"data: {error}") from None
        if len(packed) > limit:
            raise BadInput(f"data: {len(packed):,} bytes are more than the limit of {limit:,}: store them elsewhere")
        return packed if codec == "msgpack" else packed.decode()

    def decode(self, stored: Stored) -> Any:
        """What was stored; BadInput if it cannot be read, or fits no more."""
        try:
            return self._json.decode(stored) if isinstance(stored, str) else self._msgpack.decode(stored)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise BadInput(f"bad payload: {error}") from None

    def revive(self, value: Any) -> Any:
        """What decode gave, from the plain values of it."""
        return value if self._type is Any else msgspec.convert(value, self._type)

    def arguments(self, value: Any) -> dict[str, Any]:
        """A decoded value as the function's own arguments."""
        if self._whole:
            return {self._whole: value}
        return {name: getattr(value, name) for name in self._fields} if self._fields else {}


@lru_cache(maxsize=1024)
def form_of(function: Callable[..., Any] | None, batch: bool = False) -> Form:
    """The form of a function; of a command or a built-in, which has none, anything fits."""
    return Form(function, None if function is None else context_of(function), batch=batch)


def context_of(function: Callable[..., Any]) -> str | None:
    """The parameter that gets the run's context: `ctx`, or one annotated Context."""
    return next((parameter.name for parameter in parameters_of(function) if takes_context(parameter)), None)


def takes_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    # Not evaluated: what it names may be imported for type checkers only.
    name = annotation.strip("'\"") if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name == "ctx" or name.rpartition(".")[2] == "Context"


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Those that can be given one by one."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return []
    return [parameter for parameter in every if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]


def _parameters(function: Callable[..., Any], context: str | None) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    except Exception:  # a name that is there for type checkers only
        hints = {}
    given = (parameter for parameter in parameters_of(function) if parameter.name != context)
    return [(parameter, hints.get(parameter.name, Any)) for parameter in given]


def _element(hint: Any) -> Any:
    inner = typing.get_args(hint)
    return inner[0] if len(inner) == 1 else Any


def _type_of(fields: list[tuple[inspect.Parameter, Any]]) -> Any:
    shape = [
        (parameter.name, hint)
        if parameter.default is parameter.empty
        else (parameter.name, hint, msgspec.field(default_factory=partial(_same, parameter.default)))
        for parameter, hint in fields
    ]
    try:
        return msgspec.defstruct("Data", shape, kw_only=True, forbid_unknown_fields=True)
    except TypeError:  # a type that msgspec does not know: any value will do
        loose = [(entry[0], Any, *entry[2:]) for entry in shape]
        return msgspec.defstruct("Data", typing.cast("Any", loose), kw_only=True, forbid_unknown_fields=True)


def _same(value: Any) -> Any:
    return value
