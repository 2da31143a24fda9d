"""Putting tasks: by one caller, by a hundred at once, and a thousand in a call, beside SQLite alone and beside Huey.

What is put is due in an hour, so that nothing but the put is measured; one figure is of tasks that run meanwhile.
"""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.peers import NO_HUEY, peer
from benchmarks.queues import emptied, held
from benchmarks.raw import BATCH, Raw, is_young
from benchmarks.report import HUEY, RAPTOR, RAPTOR_BLOCKING, RAW_SQLITE, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, in_thread, interleave, loops, run
from benchmarks.services import PAYLOAD, home, services, swallow
from raptor.embedded import Running, running
from raptor.node import Node
from raptor.service import Service

LATER_S = 3600.0
CALLERS = 100

ONE, MANY_CALLERS, MANY = "put, one caller", f"put, {CALLERS} callers", f"put_many({BATCH:,})"
RUNNING = "put, one caller, run meanwhile"
RAW_MANY = f"{RAW_SQLITE}, {BATCH:,} in a commit"

Times = dict[str, list[float]]
"""Seconds for a task in each round, by turn."""


async def one_by_one(node: Node, count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        await node.put("swallow", PAYLOAD, in_=LATER_S)
    return (perf_counter() - started) / count


async def and_run(node: Node, folder: Path, count: int) -> float:
    """Due at once: the node runs them while more are put."""
    started = perf_counter()
    for _ in range(count):
        await node.put("swallow", PAYLOAD)
    took_s = perf_counter() - started
    await emptied(folder)
    return took_s / count


async def by_many(node: Node, count: int) -> float:
    """A hundred callers, each of which waits for its own put."""
    started = perf_counter()
    await asyncio.gather(*(one_by_one(node, count // CALLERS) for _ in range(CALLERS)))
    return (perf_counter() - started) / count


async def in_batches(node: Node, count: int) -> float:
    data = [PAYLOAD] * BATCH
    started = perf_counter()
    for _ in range(count // BATCH):
        await node.put_many("swallow", data, in_=LATER_S)
    return (perf_counter() - started) / count


async def age(raw: Raw, nodes: dict[Path, Node | Running]) -> None:
    """Fill each log once, so that nobody is measured while theirs grows and others write over what they have."""
    while is_young(raw.path):
        await asyncio.to_thread(raw.put_many, BATCH)
    for folder, node in nodes.items():
        while is_young(folder / "raptor.sqlite"):
            if isinstance(node, Node):
                await in_batches(node, BATCH)
            else:
                await asyncio.to_thread(node.put_many, "swallow", [PAYLOAD] * BATCH, in_=LATER_S)


def blocking(node: Running, count: int) -> float:
    started = perf_counter()
    for _ in range(count):
        node.put("swallow", PAYLOAD, in_=LATER_S)
    return (perf_counter() - started) / count


def catalogue() -> list[Service]:
    return services(["swallow"], swallow, every_s=None)


async def compete(folder: Path, rounds: int, alone: int, together: int) -> Times:
    with ExitStack() as stack:
        raw, beside = Raw(folder / "raw.sqlite"), stack.enter_context(running(folder / "blocking", catalogue()))
        stack.callback(raw.close)
        assert isinstance(beside, Running)
        async with (
            Node(folder / "async", catalogue(), listen=False) as node,
            Node(folder / "busy", catalogue(), listen=False) as busy,
        ):
            turns: dict[str, Turn[float]] = {
                RAW_SQLITE: in_thread(raw.put, alone),
                ONE: partial(one_by_one, node, alone),
                RAPTOR_BLOCKING: in_thread(blocking, beside, alone),
                RUNNING: partial(and_run, busy, folder / "busy", alone),
                MANY_CALLERS: partial(by_many, node, together),
                RAW_MANY: in_thread(raw.put_many, together),
                MANY: partial(in_batches, node, together),
            }
            await age(raw, {folder / "async": node, folder / "busy": busy, folder / "blocking": beside})
            if NO_HUEY is None:
                turns[HUEY] = partial(stack.enter_context(peer("benchmarks.huey_peer")).turn, "put", alone)
            return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    loop, factory = list(loops().items())[-1]
    with home() as folder:
        took = run(factory, compete(folder, *((2, 50, 1000) if quick else (60, 50, 2000))))
    return Result(targets=list(targets(took, loop)), figures=list(figures(took, loop)))


def targets(took: Times, loop: str) -> Iterator[Target]:
    raw, many, huey = took[RAW_SQLITE], took[RAW_MANY], took.get(HUEY, NO_HUEY)
    yield held("puts", f"{ONE} / {RAW_SQLITE}", took[ONE], raw, 0.55, loop)
    yield held("puts", f"{ONE}, blocking / {RAW_SQLITE}", took[RAPTOR_BLOCKING], raw, 0.35, loop)
    yield held("puts", f"{MANY_CALLERS} / {HUEY}", took[MANY_CALLERS], huey, 10.0, loop)
    yield held("puts", f"{MANY} / {RAW_SQLITE}", took[MANY], many, 0.35, loop)


def figures(took: Times, loop: str) -> Iterator[Figures]:
    rate = {turn: 1 / fast(times) for turn, times in took.items()}
    huey: Value = rate.get(HUEY, NO_HUEY)
    beside: dict[str, dict[str, Value]] = {
        ONE: {RAPTOR_BLOCKING: rate[RAPTOR_BLOCKING], RAW_SQLITE: rate[RAW_SQLITE], HUEY: huey},
        RUNNING: {},
        MANY_CALLERS: {HUEY: huey},
        MANY: {RAW_SQLITE: rate[RAW_MANY]},
    }
    for turn, others in beside.items():
        yield Figures(subject="puts", what=turn, loop=loop, unit="/s", values={RAPTOR: rate[turn], **others})
