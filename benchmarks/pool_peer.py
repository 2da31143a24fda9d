"""The pools of the standard library, and bare processes, in a process of its own.

Light to import, since every process that is spawned imports it again.
"""

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from time import perf_counter

from benchmarks.noop import swallow

THREADS = 64  # as many as a node has
PROCESSES = 2
PAYLOAD = "x" * 98


def through(pool: Executor, count: int) -> float:
    """-> the seconds for a call. In memory: nothing of it is durable."""
    started = perf_counter()
    for future in [pool.submit(swallow, PAYLOAD) for _ in range(count)]:
        future.result()
    return (perf_counter() - started) / count


def bare(count: int) -> float:
    """A process for each call, as many at a time as the pool has."""
    spawn = multiprocessing.get_context("spawn")
    started = perf_counter()
    for start in range(0, count, PROCESSES):
        some = range(start, min(start + PROCESSES, count))
        processes = [spawn.Process(target=swallow, args=(PAYLOAD,)) for _ in some]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    return (perf_counter() - started) / count


def main() -> None:
    from benchmarks.peers import serve  # what only the peer itself needs

    spawn = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(THREADS) as threads, ProcessPoolExecutor(PROCESSES, mp_context=spawn) as processes:
        serve(
            {
                "threads": lambda count: through(threads, count),
                "processes": lambda count: through(processes, count),
                "bare": bare,
            }
        )


if __name__ == "__main__":
    main()
