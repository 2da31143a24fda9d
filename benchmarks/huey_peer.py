"""Huey on SQLite with fsync, in a process of its own: tasks put one by one, and drained by its one thread of a worker.

A module by itself, since Huey names a task by the module of its function.
"""

import threading
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.peers import serve
from benchmarks.raw import is_young
from benchmarks.services import PAYLOAD, home

DEADLINE_S = 600.0


class Bench:
    """A queue of tasks that do nothing but count."""

    def __init__(self, folder: Path) -> None:
        from huey import SqliteHuey  # type: ignore[import-untyped]

        self._path = folder / "huey.sqlite"
        self._huey: Any = SqliteHuey("bench", filename=str(self._path), fsync=True)
        self._task: Any = self._huey.task()(self._run)
        self._left = 0
        self._empty = threading.Event()

    def _run(self, data: str) -> None:
        self._left -= 1  # by its one thread
        if not self._left:
            self._empty.set()

    def put(self, count: int) -> float:
        """-> the seconds for a put. They are forgotten afterwards."""
        while is_young(self._path):
            self._fill(100)
        took_s = self._fill(count)
        self._huey.flush()
        return took_s

    def drain(self, count: int) -> float:
        self._fill(count)
        self._left = count
        self._empty.clear()
        consumer = self._huey.create_consumer(workers=1, worker_type="thread")
        started = perf_counter()
        consumer.start()
        ended = self._empty.wait(DEADLINE_S)
        took_s = perf_counter() - started
        consumer.stop(graceful=True)
        assert ended, "Huey did not end in time"
        return took_s / count

    def _fill(self, count: int) -> float:
        started = perf_counter()
        for _ in range(count):
            self._task(PAYLOAD)
        return (perf_counter() - started) / count


def main() -> None:
    with home() as folder:
        bench = Bench(folder)
        serve({"put": bench.put, "drain": bench.drain})


if __name__ == "__main__":
    main()
