"""Measure what was asked for and print it: `make bench`, `make bench ARGS="--quick --only call"`.

A missed target is said, never an exit code: timing depends on the machine.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import (
    backlog,
    call,
    cast,
    churn,
    cycle,
    drain,
    due,
    functions,
    lateness,
    machine,
    memory,
    periodic,
    puts,
    restart,
    startup,
    stop,
    tick,
    wheel,
)
from benchmarks.postgres import subjects as postgres
from benchmarks.report import Report, Result

SUBJECTS: dict[str, Callable[..., Result]] = {
    "call": call.measure,
    "cast": cast.measure,
    "memory": memory.measure,
    "restart": restart.measure,
    "stop": stop.measure,
    "cycle": cycle.measure,
    "periodic": periodic.measure,
    "tick": tick.measure,
    "lateness": lateness.measure,
    "startup": startup.measure,
    "wheel": wheel.measure,
    "puts": puts.measure,
    "drain": drain.measure,
    "due": due.measure,
    "backlog": backlog.measure,
    "functions": functions.measure,
    "churn": churn.measure,
    **postgres.SUBJECTS,
}

LASTING = ("churn", "pg-churn")


def read(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Raptor beside its floors and its peers.")
    parser.add_argument("--quick", action="store_true", help="a few seconds: enough to see that it works, not to quote")
    parser.add_argument("--only", action="append", choices=SUBJECTS, metavar="NAME", help=", ".join(SUBJECTS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.add_argument("--seconds", type=float, metavar="S", help=f"how long {' and '.join(LASTING)} last")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    asked = read(arguments)
    report = Report(machine=machine.describe(), quick=asked.quick)
    for name in asked.only or SUBJECTS:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        lasting = {"seconds": asked.seconds} if asked.seconds and name in LASTING else {}
        report.add(SUBJECTS[name](asked.quick, **lasting))
    report.machine["load, at the end"] = machine.load()
    if asked.json:
        asked.json.write_text(report.as_json(), encoding="utf-8")
    report.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
