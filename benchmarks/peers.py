"""Peers in processes of their own, which measure themselves on request: a line asks, a line answers."""

import asyncio
import importlib.util
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NO_HUEY = None if importlib.util.find_spec("huey") else "run make bench"


class Peer:
    """A module of this package that calls `serve`, or any program that answers as it does."""

    def __init__(self, *words: str | Path, **env: str) -> None:
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=os.environ | env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def turn(self, what: str, count: int) -> float:
        """-> the seconds for one of so many. The event loop stays free meanwhile: a node on it is watched."""
        return float(await asyncio.to_thread(self.ask, what, count))

    def ask(self, what: str, count: int = 0) -> Any:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(f"{what} {count}\n")
        asked.flush()
        line = answers.readline()
        assert line, f"the peer has ended while it was to {what}"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()  # the end of its questions is its end


@contextmanager
def peer(module: str, *given: str) -> Generator[Peer]:
    with program(sys.executable, "-m", module, *given) as one:
        yield one


@contextmanager
def program(*words: str | Path, **env: str) -> Generator[Peer]:
    one = Peer(*words, **env)
    try:
        yield one
    finally:
        one.close()


def serve(turns: Mapping[str, Callable[[int], Any]]) -> None:
    """In the peer: do what is asked, until nothing more is."""
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        what, count = line.split()
        print(json.dumps(turns[what](int(count))), flush=True)
