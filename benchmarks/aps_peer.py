"""APScheduler on SQLite draining one-off jobs that are due, in a process of its own.

A module by itself, since its store finds the function of a job by its import path.
"""

import threading
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, time

from benchmarks.jobs import scheduler
from benchmarks.peers import serve
from benchmarks.services import PAYLOAD, home

DEADLINE_S = 600.0


class Count:
    """Jobs that have not run yet, told by any thread."""

    left = 0
    lock = threading.Lock()
    empty = threading.Event()


def job(data: str) -> None:
    with Count.lock:
        Count.left -= 1
        if not Count.left:
            Count.empty.set()


def drain(folder: Path, count: int) -> float:
    """-> the seconds for a job."""
    jobs = scheduler("sqlite", str(folder))
    jobs.start(paused=True)
    due = datetime.fromtimestamp(time() - 1, UTC)
    for _ in range(count):
        jobs.add_job(job, "date", run_date=due, args=(PAYLOAD,), misfire_grace_time=None)
    Count.left = count
    Count.empty.clear()
    started = perf_counter()
    jobs.resume()
    ended = Count.empty.wait(DEADLINE_S)
    took_s = perf_counter() - started
    jobs.shutdown()
    assert ended, "APScheduler did not end in time"
    return took_s / count


def main() -> None:
    with home() as folder:
        serve({"drain": lambda count: drain(folder, count)})


if __name__ == "__main__":
    from benchmarks import aps_peer  # not __main__: the store names the function by its module

    aps_peer.main()
