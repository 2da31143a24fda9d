"""Casts, sent in one go, until the last of them was processed."""

from time import perf_counter

from benchmarks.contest import contest
from benchmarks.floors import Peer
from benchmarks.report import QUEUE, Result


async def turn(peer: Peer, messages: int) -> float:
    started = perf_counter()
    for _ in range(messages):
        peer.cast(None)
    await peer.call(None)  # in order, so its reply says that the others are done
    return (perf_counter() - started) / (messages + 1)


def measure(quick: bool) -> Result:
    return contest("cast", turn, quick, {QUEUE: 0.8})
