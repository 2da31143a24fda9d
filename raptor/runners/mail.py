"""What goes between the node and a process that runs a function: the request, and the mail that comes back.

The request is a file; the mail comes through a private pipe, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from raptor.runners import Context, Progress
from raptor.runners.functions import Function, name_of
from raptor.runners.text import one_line
from raptor.task import Verdict

LONGEST = 2 * 1024 * 1024  # bytes in a line of the private pipe
LINES_AT_ONCE = 100  # of those that come together; the last ones count
FACTS = ("run_id", "service", "scheduler", "attempt", "planned", "key", "data")
OF_A_TASK = (
    "id", "queue", "service", "priority", "due", "created", "attempts", "max_attempts", "key", "parent", "started",
    "previous",
)  # fmt: skip


class Begun(msgspec.Struct, tag_field="type", tag="begun"):
    """The request was read: from here on the function may have been called."""


class Answer(msgspec.Struct, tag_field="type", tag="answer"):
    """How the function ended."""

    info: str
    error: str | None
    value: Any = None
    decision: Verdict | None = None
    token: str = ""  # the request's, which the function was not given
    keep: bool = False  # the process may take another run


class Step(msgspec.Struct, tag_field="type", tag="progress"):
    """How far it has come."""

    done: float
    total: float | None
    text: str


_MESSAGE: msgspec.json.Decoder[Begun | Answer | Step] = msgspec.json.Decoder(Begun | Answer | Step)


class Mail:
    """The mail of one run. A hostile function may write there too, anything."""

    def __init__(self, on_progress: Callable[[Progress], None], on_answer: Callable[[], None], token: str = "") -> None:
        self.begun = False
        self.answer: Answer | None = None
        self.spoilt = False  # somebody else than our own code has written
        self._on_progress = on_progress
        self._on_answer = on_answer
        self._token = token
        self._rest = b""

    def take(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        self.spoilt |= len(rest) > LONGEST
        self._rest = rest if len(rest) <= LONGEST else b""
        step: Step | None = None
        for line in whole[-LINES_AT_ONCE:]:
            match _read(line):
                case Step() as latest:
                    step = latest
                case Begun():
                    self.begun = True
                case Answer() as answer if self.answer is None and answer.token == self._token:
                    self.answer = answer
                    self._on_answer()
                case _:
                    self.spoilt = True
        if step is not None:
            self._on_progress(Progress(step.done, step.total, one_line(step.text)))


def _read(line: bytes) -> Begun | Answer | Step | None:
    try:
        return _MESSAGE.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None


def write_request(function: Function, context: Context, batch: bool, **more: str | Mapping[str, str]) -> bytes:
    """The request, or a ValueError that says why there can be none."""
    name = name_of(function)
    if isinstance(name, str):
        raise ValueError(f"its function cannot be run in a process of its own: {name}")
    try:
        facts = {fact: msgspec.to_builtins(getattr(context, fact)) for fact in FACTS}
        home = None if context.desk is None else context.desk.home
        facts["desk"] = None if home is None else str(home)
        facts["task"] = context.task and {fact: getattr(context.task, fact) for fact in OF_A_TASK}
        request = {"name": name._asdict(), "path": sys.path, "batch": batch, "context": facts, **more}
        return json.dumps(request).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its data cannot be sent to another process: {error}") from None


@contextmanager
def as_file(data: bytes) -> Generator[IO[bytes]]:
    """A file and no pipe: a child that never reads its request cannot block the loop."""
    in_memory = sys.platform == "linux"
    with open(os.memfd_create("raptor-request"), "w+b") if in_memory else tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file
