"""Python functions in a process of their own: a fresh interpreter that is told which function by name.

Nothing it does reaches the node: not a crash, not `os._exit`, not a loop that never ends. What it prints is captured.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from raptor.clock import Clock
from raptor.runners import Context, Progress, time_limit
from raptor.runners.functions import Function, name_of
from raptor.runners.group import Ended, Group, environment, how_it_ended, how_it_timed_out
from raptor.runners.output import Capture, Recording, RunLog
from raptor.runners.text import TRACEBACK, lines, one_line
from raptor.service import Service
from raptor.task import Outcome, Result, Verdict

CHILD = str(Path(__file__).with_name("child.py"))
LONGEST = 128 * 1024  # bytes in a line of the private pipe
LINES_AT_ONCE = 100  # of those that come together; the last ones count
FACTS = ("run_id", "service", "scheduler", "attempt", "planned", "key", "data")
OF_A_TASK = (
    "id", "queue", "service", "priority", "due", "created", "attempts", "max_attempts", "key", "parent", "started",
    "previous",
)  # fmt: skip


class Answer(msgspec.Struct, tag_field="type", tag="answer"):
    """How the function ended."""

    info: str
    error: str | None
    value: Any = None
    decision: Verdict | None = None


class Step(msgspec.Struct, tag_field="type", tag="progress"):
    """How far it has come."""

    done: float
    total: float | None
    text: str


_MESSAGE: msgspec.json.Decoder[Answer | Step] = msgspec.json.Decoder(Answer | Step)


class ProcessRunner:
    """Runs functions that a fresh interpreter can import by name, sync or async."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        assert service.function is not None
        async with Recording(log, context, self._clock):
            try:
                request = _request(service.function, context, service.batch is not None)
            except ValueError as error:
                return _refused(str(error))
            return await self._ask(request, service, context, log)

    async def _ask(self, request: bytes, service: Service, context: Context, log: RunLog) -> Result:
        try:
            read, write = os.pipe()
        except OSError as error:
            return _refused(f"its process could not be started: {error}")
        try:
            with _as_file(request) as stdin:
                group = Group(
                    self._clock,
                    [sys.executable, "-P", CHILD, str(write), str(os.getpid()), service.name, context.run_id],
                    log=log,
                    env=environment(context, service.env),
                    cwd=service.cwd,
                    stdin=stdin,
                    pass_fds=(write,),
                )
        except (OSError, ValueError) as error:
            os.close(read)
            return _refused(f"its process could not be started: {error}")
        finally:
            os.close(write)
        mail = _Mail(context.on_progress, group.done)
        pipe = Capture(read, mail.take)
        limit_s = time_limit(service)
        try:
            ended = await group.live(limit_s)
        finally:
            pipe.drain()
            pipe.close()
        return _result(ended, mail.answer, limit_s, log.tail())


class _Mail:
    """What comes through the private pipe, one JSON object a line. A hostile function may write there too, anything."""

    def __init__(self, on_progress: Callable[[Progress], None], on_answer: Callable[[], None]) -> None:
        self.answer: Answer | None = None
        self._on_progress = on_progress
        self._on_answer = on_answer
        self._rest = b""

    def take(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= LONGEST else b""
        step: Step | None = None
        for line in whole[-LINES_AT_ONCE:]:
            match _read(line):
                case Step() as latest:
                    step = latest
                case Answer() as answer if self.answer is None:
                    self.answer = answer
                    self._on_answer()
                case _:
                    pass
        if step is not None:
            self._on_progress(Progress(step.done, step.total, one_line(step.text)))


def _read(line: bytes) -> Answer | Step | None:
    try:
        return _MESSAGE.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _request(function: Function, context: Context, batch: bool) -> bytes:
    name = name_of(function)
    if isinstance(name, str):
        raise ValueError(f"its function cannot be run in a process of its own: {name}")
    try:
        facts = {fact: msgspec.to_builtins(getattr(context, fact)) for fact in FACTS}
        facts["task"] = context.task and {fact: getattr(context.task, fact) for fact in OF_A_TASK}
        return json.dumps({"name": name._asdict(), "path": sys.path, "batch": batch, "context": facts}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"its data cannot be sent to another process: {error}") from None


@contextmanager
def _as_file(data: bytes) -> Generator[IO[bytes]]:
    """A file and no pipe: a child that never reads its request cannot block the loop."""
    in_memory = sys.platform == "linux"
    with open(os.memfd_create("raptor-request"), "w+b") if in_memory else tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def _refused(why: str) -> Result:
    return Result(outcome=Outcome.FAILED, info=one_line(why), error=why)


def _result(ended: Ended, answer: Answer | None, limit_s: float | None, tail: str) -> Result:
    if ended.timed_out:
        why = how_it_timed_out(limit_s, ended)
        return Result(outcome=Outcome.TIMED_OUT, info=why, error=why, tail=tail)
    if answer is None:
        why = how_it_ended(ended)
        if ended.status is not None and ended.status >= 0:
            why = f"its process ended before the function did: {why}"
        return Result(outcome=Outcome.FAILED, info=why, error=why, tail=tail, died=True)
    info = one_line(answer.info)
    if answer.error is None:
        return Result(outcome=Outcome.OK, info=info, tail=tail, value=answer.value, decision=answer.decision)
    return Result(outcome=Outcome.FAILED, info=info, error=lines(answer.error, TRACEBACK), tail=tail)
