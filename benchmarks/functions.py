"""What a task costs whose function is sync: in a thread beside a pool of threads, or in a process beside bare ones.

A pool keeps its processes; Raptor starts one for each run, so a bare process for each run stands beside it too.
"""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import count as numbers
from pathlib import Path
from time import perf_counter

from benchmarks import queues
from benchmarks.report import BARE, POOL, RAPTOR, Figures, Result, Value
from benchmarks.rounds import Turn, fast, in_thread, interleave, loops, run
from benchmarks.services import PAYLOAD, home, swallow_in_thread
from raptor.node import Node
from raptor.service import Service

THREADS = 64  # as many as a node has
PROCESSES = 2
SPAWN = multiprocessing.get_context("spawn")

Times = dict[str, list[float]]
"""Seconds for a call in each round, by turn."""


async def raptor(folder: Path, turns: Iterator[int], count: int, *, isolate: bool = False) -> float:
    """Drained from a full queue, durably."""
    place = folder / f"{'processes' if isolate else 'threads'}{next(turns)}"
    service = Service(name="swallow", function=swallow_in_thread, isolate=isolate)
    async with Node(place, [service], listen=False) as node:
        return await queues.drain(node, place, "swallow", count)


def pool(executor: Executor, count: int) -> float:
    """In memory: nothing of it is durable."""
    started = perf_counter()
    futures = [executor.submit(swallow_in_thread, PAYLOAD) for _ in range(count)]
    for future in futures:
        future.result()
    return (perf_counter() - started) / count


def bare(count: int) -> float:
    """A process for each call, as many at a time as the pool has."""
    started = perf_counter()
    for start in range(0, count, PROCESSES):
        batch = [
            SPAWN.Process(target=swallow_in_thread, args=(PAYLOAD,))
            for _ in range(start, min(start + PROCESSES, count))
        ]
        for process in batch:
            process.start()
        for process in batch:
            process.join()
    return (perf_counter() - started) / count


async def compete(folder: Path, rounds: int, count: int) -> Times:
    with ThreadPoolExecutor(THREADS) as executor:
        turns: dict[str, Turn[float]] = {
            RAPTOR: partial(raptor, folder, numbers(), count),
            POOL: in_thread(pool, executor, count),
        }
        return await interleave(turns, rounds)


async def compete_apart(folder: Path, rounds: int, count: int) -> Times:
    with ProcessPoolExecutor(PROCESSES, mp_context=SPAWN) as executor:
        turns: dict[str, Turn[float]] = {
            RAPTOR: partial(raptor, folder, numbers(), count, isolate=True),
            POOL: in_thread(pool, executor, count),
            BARE: in_thread(bare, count),
        }
        return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    loop, factory = list(loops().items())[-1]
    calls, runs = (1_000, 4) if quick else (100_000, 1_000)
    with home() as folder:
        threads = run(factory, compete(folder, 1 if quick else 3, calls))
        apart = run(factory, compete_apart(folder, 1, runs))
    result = Result()
    for what, found in ((f"{calls:,} in {THREADS} threads", threads), (f"{runs:,} in processes", apart)):
        values: dict[str, Value] = {who: fast(times) * 1e6 for who, times in found.items()}
        result.figures.append(
            Figures(subject="functions", what=f"{what}, one call", loop=loop, unit="us", values=values)
        )
        more: dict[str, Value] = {
            who: fast(found[RAPTOR]) / fast(times) for who, times in found.items() if who != RAPTOR
        }
        result.figures.append(
            Figures(subject="functions", what=f"{what}, time of Raptor's / its", loop=loop, unit="x", values=more)
        )
    return result
