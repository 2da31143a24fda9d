"""A durable cycle: services that do nothing, one after another, beside durable writes to one table, one after another.

A service costs two such writes, its timing row and the cycle's state row, so that 0.5 would be a scheduler for nothing.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter

from benchmarks.report import RAPTOR, RAW, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, interleave, loops, ratio, run
from benchmarks.services import SCHEDULERS, dealt, home, named, nothing, services
from raptor.events import Event
from raptor.node import Node
from raptor.rows import ServiceTiming
from raptor.service import Service
from raptor.state.tables import Table

SIZES = (20, 100, 500)
EACH = 50  # services of each of several schedulers
WRITES = 200
LEAST = 0.35

Lists = dict[str, list[str]]
"""The services of each scheduler of a turn."""


def lists() -> dict[str, Lists]:
    """Those of every turn: one scheduler of each size, and several at once."""
    alone = {title(size): {f"of{size}": named(size, f"of{size}-")} for size in SIZES}
    return alone | {f"{SCHEDULERS} schedulers of {EACH}": dealt(named(SCHEDULERS * EACH), SCHEDULERS)}


def title(size: int) -> str:
    return f"a cycle of {size}"


def catalogue() -> list[Service]:
    """Each is due again a moment after its end, with no slots in between: a turn runs all of them, once."""
    names = [name for turn in lists().values() for of_one in turn.values() for name in of_one]
    return services(names, nothing, every_s=0.001, anchor="end")


class Cycles:
    """Has schedulers look now, and hears when they are done."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ended: asyncio.Queue[Event] = asyncio.Queue()
        node.runtime.events.subscribe(self.ended.put_nowait, "cycle_done")

    async def start(self, turn: Lists) -> None:
        for scheduler in turn:
            await self.node.start(scheduler, "1h")

    async def turn(self, turn: Lists) -> float:
        """A cycle of each; -> the seconds for a service, from the first check to the last line of the ledger."""
        for scheduler, names in turn.items():
            await self.node.schedule(scheduler, names)
        ends = [await self.ended.get() for _ in turn]
        began = min(end.at - float(str(end.facts["took_s"])) for end in ends)
        return (max(end.at for end in ends) - began) / sum(map(len, turn.values()))


async def write(table: Table[ServiceTiming], numbers: Iterator[int], writes: int) -> float:
    """-> the seconds for a write."""
    started = perf_counter()
    for number in numbers:
        row = ServiceTiming(next_due=float(number), interval_seconds=1.0, last_run_id=f"{number:016x}")
        await table.put(f"s{number % max(SIZES)}", row)
        if not (number + 1) % writes:
            break
    return (perf_counter() - started) / writes


async def compete(folder: Path, rounds: int) -> dict[str, list[float]]:
    table = Table(folder / "service_timing.sqlite", ServiceTiming, state="bench")
    async with Node(folder / "home", catalogue(), listen=False) as node:
        cycles = Cycles(node)
        turns: dict[str, Turn[float]] = {RAW: partial(write, table, count(), WRITES)}
        for what, turn in lists().items():
            await cycles.start(turn)
            turns[what] = partial(cycles.turn, turn)
        took = await interleave(turns, rounds)
    await table.shut()
    return took


def measure(quick: bool) -> Result:
    loop, factory = list(loops().items())[-1]
    with home() as folder:
        took = run(factory, compete(folder, 2 if quick else 15))
    result = Result()
    raw = took.pop(RAW)
    for what, times in took.items():
        measured = ratio(raw, times)
        result.targets.append(
            Target(
                subject="cycle",
                what=f"cycle, services in {what} / raw write",
                loop=loop,
                value=measured.fast,
                middle=measured.middle,
                unit="x",
                at_least=LEAST,
            )
        )
        values: dict[str, Value] = {RAPTOR: 1 / fast(times), RAW: 1 / fast(raw)}
        result.figures.append(
            Figures(subject="cycle", what=f"services in {what}", loop=loop, unit="runs/s", values=values)
        )
    return result
