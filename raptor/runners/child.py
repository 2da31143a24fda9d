"""The other side of process.py: a fresh interpreter that runs one function and tells how it went.

Started by its file name, with the request on its stdin and the answer's pipe as its first argument. Until the request
has said where modules are found, it imports nothing but the standard library. One that takes many runs is kept.py.
"""

from __future__ import annotations

import faulthandler
import functools
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raptor.runners.functions import Function, Shape

PR_SET_PDEATHSIG = 1
LONGEST = 10_000  # characters of a value that has no plain form, or too long a one
LARGEST = 1024 * 1024  # characters of a value in JSON


class Tell:
    """Sends messages to the node, from any thread, until it is closed: nobody hears of a run that is over."""

    def __init__(self, answers: int) -> None:
        os.set_inheritable(answers, False)
        self.closed = False
        self._answers = answers
        self._lock = threading.Lock()

    def __call__(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with self._lock:
            while data and not self.closed:
                data = data[os.write(self._answers, data) :]

    def close(self) -> None:
        with self._lock:
            self.closed = True
            os.close(self._answers)


class Log:
    """What `ctx.log` writes to: the error stream, until the run is over."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def write(self, text: str) -> None:
        if not self._tell.closed:
            sys.stderr.write(text)

    def flush(self) -> None:
        if not self._tell.closed:
            sys.stderr.flush()


def main(answers: int, parent: int) -> None:
    die_with(parent)
    faulthandler.enable()  # a segmentation fault leaves a traceback in the output
    request = read_request()
    sys.path[:] = request["path"]
    tell = Tell(answers)
    myself = os.getpid()
    answer = attempt(request, tell)
    if os.getpid() != myself:
        os._exit(0)  # a fork that the function let come back: the run is its parent's
    tell(answer)


def die_with(parent: int) -> None:
    """Have the kernel end this process when the node's thread that started it ends, where there is such a thing."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it has ended already


def read_request() -> dict[str, Any]:
    with open(0, "rb", closefd=False) as stdin:
        request: dict[str, Any] = json.load(stdin)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return request


def attempt(request: dict[str, Any], tell: Tell, prepare: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run the function; whatever it raises is an answer. What is no error of the work leaves its process in doubt."""
    from raptor.runners.text import raised, returned

    value, decision, keep = None, None, True
    try:
        if prepare is not None:
            prepare()
        value = work(request, tell)
        info, error = returned(value), None
        value, decision = told(value)
    except BaseException as caught:
        info, error = raised(caught)
        keep = isinstance(caught, Exception) and not isinstance(caught, MemoryError)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the function may have closed or replaced them
            pass
    answer = {"type": "answer", "info": info, "error": error, "value": value, "decision": decision}
    return {**answer, "token": request["token"], "keep": keep}


def told(value: Any) -> tuple[Any, Any]:
    """What it returned as plain values: a value, or a decision about its task."""
    import msgspec

    from raptor.task import Verdict

    if isinstance(value, Verdict):
        return None, msgspec.to_builtins(value)
    try:
        plain = msgspec.to_builtins(value)
        text = json.dumps(plain)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:LONGEST], None
    return (plain if len(text) <= LARGEST else f"{text[:LONGEST]}..."), None


def work(request: dict[str, Any], tell: Tell) -> Any:
    import logging
    from pathlib import Path

    from raptor.runners import Context, Progress
    from raptor.runners.door import DoorDesk
    from raptor.runners.text import logger, one_line
    from raptor.task import Task

    for stream in (sys.stdout, sys.stderr):
        # By lines: what was printed before a crash is kept.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    function, how = found(batch=request["batch"], **request["name"])
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

    def progress(step: Progress) -> None:
        tell({"type": "progress", "done": step.done, "total": step.total, "text": one_line(step.text)})

    facts = request["context"]
    if facts["task"] is not None:
        facts["task"] = Task(**facts["task"])
        facts["data"] = how.form.revive(facts["data"])
    if facts["desk"] is not None:
        facts["desk"] = DoorDesk(Path(facts["desk"]))
    context = Context(**facts, log=logger(facts["service"], Log(tell)), on_progress=progress)
    result = how.caller(function)(context)
    if not how.is_async:
        return result

    import asyncio

    async def finish() -> Any:
        return await result

    return asyncio.run(finish())


@functools.cache
def found(batch: bool, **name: Any) -> tuple[Function, Shape]:
    """The function and how it is called. Once: the program itself would be loaded anew for each run."""
    from raptor.runners.functions import Name, find, shape

    function = find(Name(**name))
    return function, shape(function, batch=batch)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
