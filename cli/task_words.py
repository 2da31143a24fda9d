"""What is typed about tasks, as values: data, counts, settings of a queue."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from raptor.errors import BadInput


def read_data(text: str | None, pairs: tuple[str, ...]) -> Any:
    """JSON, a file of it, standard input, or fields one by one."""
    if text is not None and pairs:
        raise BadInput("data and fields: give one of --data and NAME=VALUE")
    if pairs:
        return dict(map(_pair, pairs))
    if text is None:
        return None
    if text == "-":
        return _json("standard input", sys.stdin.buffer.read())
    if text.startswith("@"):
        return _json(text[1:], _file(text[1:]))
    return _json("--data", text.encode("utf-8", "surrogateescape"))


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"--data: {name}: {error.strerror}") from None


def _json(where: str, given: bytes) -> Any:
    try:
        return json.loads(given.decode(), parse_constant=_no_number)
    except json.JSONDecodeError as error:
        hint = "; a text stands in quotes" if where == "--data" and error.pos == 0 else ""
        raise BadInput(f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}{hint}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8: byte {error.start + 1}") from None
    except RecursionError:
        raise BadInput(f"{where}: nested too deep") from None
    except ValueError as error:
        raise BadInput(f"{where}: not JSON: {error}") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _pair(text: str) -> tuple[str, Any]:
    """A value is JSON where it can be, and text otherwise."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BadInput(f"{text!r}: data are given as NAME=VALUE, or with --data")
    try:
        return name, json.loads(value, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return name, value


def read_count(text: str) -> int | str:
    """A whole number, or a word that the settings know."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
