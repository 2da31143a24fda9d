"""`raptor status` in a fresh process, with and without a node, beside the imports that any such command line needs.

All of them from bytecode, as an installed package is: under PYTHONDONTWRITEBYTECODE a checkout would compile Raptor
anew each time, and click never.
"""

import asyncio
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, Popen
from time import perf_counter

from benchmarks.report import IMPORTS, RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import Turn, interleave
from benchmarks.services import home
from raptor.config import Config
from raptor.embedded import running

ROOT = Path(__file__).resolve().parent.parent
STATUS = [sys.executable, "-m", "raptor", "status"]
FLOOR = [sys.executable, "-c", "import click, rich"]
MOST = 3.0
PROJECT = """
[services.backup]
command = ["true"]
every = "1h"

[services.report]
command = ["true"]
cron = "30 2 * * *"

[schedulers.main]
services = ["backup", "report"]
"""

Taken = tuple[float, float]
"""Milliseconds: of the processor, and by the clock."""


async def turn(words: Sequence[str], folder: Path, cache: Path) -> Taken:
    """A turn for one program, which has this one wait."""
    return spawn(words, folder, cache)


def spawn(words: Sequence[str], folder: Path, cache: Path) -> Taken:
    """Run a program to its end. Its first run fills the cache of bytecode, and is the round that warms up."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ = kept | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(cache)}
    started = perf_counter()
    process = Popen(words, cwd=folder, env=environ, stdout=DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return (used.ru_utime + used.ru_stime) * 1000, wall * 1000


def project(folder: Path) -> Config:
    folder.mkdir()
    (folder / "raptor.toml").write_text(PROJECT, encoding="utf-8")
    return Config.load(cwd=folder, environ={})


def measure(quick: bool) -> Result:
    with home() as folder, ExitStack() as stack:
        idle, busy = project(folder / "idle"), project(folder / "busy")
        for config in (idle, busy):
            with ExitStack() as one:
                node = one.enter_context(running(config=config))
                node.call("start", name="main")
                if config is busy:
                    stack.push(one.pop_all())
        turns: dict[str, Turn[Taken]] = {IMPORTS: partial(turn, FLOOR, folder, folder / "bytecode")}
        for what, where in (("without a node", "idle"), ("with a node", "busy")):
            turns[what] = partial(turn, STATUS, folder / where, folder / "bytecode")
        took = asyncio.run(interleave(turns, 2 if quick else 10))
    return told(took)


def told(took: dict[str, list[Taken]]) -> Result:
    result = Result()
    floor = took.pop(IMPORTS)
    for what, taken in took.items():
        for place, kind in enumerate(("processor", "clock")):
            ours, its = [one[place] for one in taken], [one[place] for one in floor]
            low, _, high = statistics.quantiles(
                [a / b for a, b in zip(ours, its, strict=True)], n=4, method="inclusive"
            )
            name = f"raptor status {what}, {kind}"
            result.targets.append(
                Target(
                    subject="startup",
                    what=f"{name} / {IMPORTS}",
                    value=statistics.median(ours) / statistics.median(its),
                    middle=(low, high),
                    unit="x",
                    at_most=MOST,
                )
            )
            values: dict[str, Value] = {RAPTOR: statistics.median(ours), IMPORTS: statistics.median(its)}
            result.figures.append(Figures(subject="startup", what=name, unit="ms", values=values))
    return result
