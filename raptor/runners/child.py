"""The other side of process.py: a fresh interpreter that runs one function and tells how it went.

Started by its file name, with the request on its stdin and the answer's pipe as its first argument. Until the request
has said where modules are found, it imports nothing but the standard library.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1
LONGEST = 10_000  # characters of a value that has no plain form

Tell = Callable[[dict[str, Any]], None]


def main(answers: int, parent: int) -> None:
    die_with(parent)
    faulthandler.enable()  # a segmentation fault leaves a traceback in the output
    request = read_request()
    sys.path[:] = request["path"]
    tell = telling(answers)
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


def telling(answers: int) -> Tell:
    os.set_inheritable(answers, False)
    lock = threading.Lock()

    def tell(message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with lock:
            while data:
                data = data[os.write(answers, data) :]

    return tell


def attempt(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run the function; whatever it raises is an answer."""
    from raptor.runners.text import raised, returned

    value, decision = None, None
    try:
        value = work(request, tell)
        info, error = returned(value), None
        value, decision = told(value)
    except BaseException as caught:
        info, error = raised(caught)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the function may have closed or replaced them
            pass
    return {"type": "answer", "info": info, "error": error, "value": value, "decision": decision}


def told(value: Any) -> tuple[Any, Any]:
    """What it returned as plain values: a value, or a decision about its task."""
    import msgspec

    from raptor.task import Verdict

    if isinstance(value, Verdict):
        return None, msgspec.to_builtins(value)
    try:
        plain = msgspec.to_builtins(value)
        json.dumps(plain)
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:LONGEST], None
    return plain, None


def work(request: dict[str, Any], tell: Tell) -> Any:
    import logging

    from raptor.runners import Context, Progress
    from raptor.runners.functions import Name, find, shape
    from raptor.runners.text import logger, one_line
    from raptor.task import Task

    for stream in (sys.stdout, sys.stderr):
        # By lines: what was printed before a crash is kept.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    function = find(Name(**request["name"]))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")

    def progress(step: Progress) -> None:
        tell({"type": "progress", "done": step.done, "total": step.total, "text": one_line(step.text)})

    how = shape(function, batch=request["batch"])
    facts = request["context"]
    if facts["task"] is not None:
        facts["task"] = Task(**facts["task"])
        facts["data"] = how.form.revive(facts["data"])
    context = Context(**facts, log=logger(facts["service"], sys.stderr), on_progress=progress)
    result = how.call(function, context)
    if not how.is_async:
        return result

    import asyncio

    async def finish() -> Any:
        return await result

    return asyncio.run(finish())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
