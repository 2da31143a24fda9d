"""What a service returned, raised or printed, as short and harmless text; whatever it is, nothing in here raises."""

from __future__ import annotations

import json
import logging
import os
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

LINE = 200  # characters
TRACEBACK = 8 * 1024  # bytes

_OURS = (os.path.dirname(__file__) + os.sep, os.path.join(os.path.dirname(os.__file__), "asyncio") + os.sep)


class Stream(Protocol):
    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


def harmless(text: str, keep: str = "") -> str:
    """Show what a terminal would obey, or JSON could not carry, as a backslash escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )


def one_line(text: str, limit: int = LINE) -> str:
    """A single line of at most `limit` characters."""
    line = harmless(text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 3] + "..."


def lines(text: str, limit: int) -> str:
    """The end of a text of several lines, in at most `limit` bytes of UTF-8."""
    text = harmless(text.replace("\r\n", "\n").replace("\r", "\n"), keep="\n\t")
    return text.encode()[-limit:].decode(errors="ignore")


def amount(count: int) -> str:
    """A number of bytes for people: 512 B, 1.5 KB, 5.0 GB."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def stamp(when: float) -> str:
    """A time in RFC 3339, UTC."""
    return datetime.fromtimestamp(when, UTC).isoformat().replace("+00:00", "Z")


def returned(value: Any) -> str:
    """A return value as one line: text as it is, the rest as JSON, what is not JSON by its type."""
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value[: LINE + 1])
    try:
        text = ""
        # Chunk by chunk: of a value with a million items only the beginning is wanted.
        for chunk in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            text += chunk[: LINE + 1]
            if len(text) > LINE:
                break
        return one_line(text)
    except BaseException:
        return one_line(f"(a {type(value).__name__}, which is not JSON)")


def raised(error: BaseException) -> tuple[str, str]:
    """An exception as one line, and with its traceback. Its own methods may fail, in any way."""
    name = one_line(type.__getattribute__(type(error), "__name__"))
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be shown)"
    line = one_line(f"{name}: {message}" if message else name)
    try:
        whole = "".join(traceback.format_exception(type(error), error, _theirs(error.__traceback__)))
    except BaseException:
        whole = line
    return line, lines(whole.rstrip("\n"), TRACEBACK)


def logger(service: str, stream: Stream) -> logging.Logger:
    """A logger that belongs to one run: it is known to nobody else, and ends with it."""
    log = logging.Logger(f"raptor.service.{service}", logging.INFO)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    log.addHandler(handler)
    return log


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the service's own code on."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace
