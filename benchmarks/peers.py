"""Peers in processes of their own, which measure themselves on request: a line asks, a line answers."""

import asyncio
import importlib.util
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_HUEY = None if importlib.util.find_spec("huey") else "run make bench"


class Peer:
    """A module of this package that calls `serve`."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def turn(self, what: str, count: int) -> float:
        """-> the seconds for one of so many. The event loop stays free meanwhile: a node on it is watched."""
        return await asyncio.to_thread(self._ask, what, count)

    def _ask(self, what: str, count: int) -> float:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(f"{what} {count}\n")
        asked.flush()
        line = answers.readline()
        assert line, f"the peer has ended while it was to {what}"
        return float(json.loads(line))

    def close(self) -> None:
        self._process.communicate()  # the end of its questions is its end


@contextmanager
def peer(module: str) -> Generator[Peer]:
    one = Peer(module)
    try:
        yield one
    finally:
        one.close()


def serve(turns: Mapping[str, Callable[[int], float]]) -> None:
    """In the peer: do what is asked, until nothing more is."""
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        what, count = line.split()
        print(json.dumps(turns[what](int(count))), flush=True)
