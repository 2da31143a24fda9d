"""APScheduler doing the same periodic work, in a process of its own: its own threads, and a store in SQLite or memory.

What it does about runs that are late decides how many it runs. "grace" drops those later than an interval and runs all
others, which is what the target was set by; "coalesce" makes one run of them, however late, which is what Raptor does.
A module by itself, since its SQLite store finds the function of a job by its import path.
"""

import importlib.util
import json
import logging
import os
import sys
import threading
from datetime import UTC, datetime
from time import process_time, sleep, time
from typing import Any

from benchmarks.services import home

NO_SQLALCHEMY = None if importlib.util.find_spec("sqlalchemy") else "run make bench"


class Count:
    """Runs, told by any thread."""

    runs = 0
    lock = threading.Lock()


def job() -> None:
    with Count.lock:
        Count.runs += 1


def scheduler(store: str, folder: str) -> Any:
    from apscheduler.jobstores.memory import MemoryJobStore  # type: ignore[import-untyped]
    from apscheduler.schedulers.background import BackgroundScheduler  # type: ignore[import-untyped]

    if store == "sqlite":
        from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore  # type: ignore[import-untyped]

        jobs = SQLAlchemyJobStore(url=f"sqlite:///{folder}/jobs.sqlite")
    else:
        jobs = MemoryJobStore()
    return BackgroundScheduler(jobstores={"default": jobs}, timezone="UTC")


def work(store: str, late: str, count: int, every_s: float, seconds: float, folder: str) -> dict[str, float]:
    """Jobs whose turns are spread over the interval; -> what ran in so many seconds, after one interval to warm up."""
    jobs = scheduler(store, folder)
    jobs.start(paused=True)
    grace_s = None if late == "coalesce" else max(1, int(every_s))
    policy: dict[str, Any] = {"misfire_grace_time": grace_s, "coalesce": late == "coalesce"}
    # From a moment on by which all of them are added: what is late from the start would never recover.
    first = time() + 1 + count / (2000 if store == "memory" else 300)
    for number in range(count):
        start = datetime.fromtimestamp(first + every_s * number / count, UTC)
        jobs.add_job(job, "interval", seconds=every_s, start_date=start, **policy)
    sleep(max(0.0, first - time()))
    jobs.resume()
    sleep(every_s)
    before, cpu, started = Count.runs, process_time(), time()
    sleep(seconds)
    took = time() - started
    return {"runs": Count.runs - before, "seconds": took, "cpu_s": process_time() - cpu}


def main(store: str, late: str, count: str, every_s: str, seconds: str) -> None:
    logging.disable(logging.CRITICAL)
    with home() as folder:
        print(json.dumps(work(store, late, int(count), float(every_s), float(seconds), str(folder))), flush=True)
    os._exit(0)  # it is behind with its work, and would finish that first


if __name__ == "__main__":
    from benchmarks import jobs  # not __main__: the store names the function by its module

    jobs.main(*sys.argv[1:])
