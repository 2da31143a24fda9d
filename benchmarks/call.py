"""A call: a message there and its reply back, one at a time."""

from time import perf_counter

from benchmarks.contest import contest
from benchmarks.floors import Peer
from benchmarks.report import PYKKA, PYKKA_APART, QUEUE, Result


async def turn(peer: Peer, messages: int) -> float:
    started = perf_counter()
    for _ in range(messages):
        await peer.call(None)
    return (perf_counter() - started) / messages


def measure(quick: bool) -> Result:
    return contest("call", turn, quick, {QUEUE: 0.8, PYKKA: 10.0, PYKKA_APART: 10.0})
