"""The subjects on PostgreSQL, each imported when it is asked for: all that they need is optional."""

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.report import Result

NAMES = ("puts", "drain", "due", "backlog", "churn")


def measure(name: str, quick: bool, **options: Any) -> Result:
    """What it found; or why nothing, where there is no server or no client of one."""
    if not importlib.util.find_spec("psycopg"):
        return Result(absent={f"pg-{name}": "there is no psycopg: run `make bench`"})
    server = importlib.import_module("benchmarks.postgres.server")
    try:
        found: Result = importlib.import_module(f"benchmarks.postgres.{name}").measure(quick, **options)
    except server.Missing as reason:
        return Result(absent={f"pg-{name}": str(reason)})
    return found


SUBJECTS: dict[str, Callable[..., Result]] = {f"pg-{name}": partial(measure, name) for name in NAMES}
