"""Running what is due: a full queue drained by one process and by two, beside psycopg alone and the peers.

All of them in processes of their own. Raptor's time is from the word that lets the queue go to the last durable
verdict, seen from outside; that of a peer from its first run to its last.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from benchmarks.peers import Peer, peer
from benchmarks.postgres import node_peers
from benchmarks.postgres.peers import PROGRAMS, absent, present
from benchmarks.postgres.queues import emptied
from benchmarks.postgres.raw import Raw
from benchmarks.postgres.server import Databases, ask, databases
from benchmarks.queues import held
from benchmarks.report import (
    GRAPHILE,
    ON_POSTGRES,
    PG_BOSS,
    PGQUEUER,
    PROCRASTINATE,
    RAPTOR,
    RAW_PG,
    Figures,
    Result,
    Target,
    Value,
)
from benchmarks.rounds import Turn, fast, in_thread, interleave, loops, run

SUBJECT = "pg-drain"

Times = dict[str, list[float]]
"""Seconds for a task in each round, by contestant."""


@dataclass(frozen=True)
class Size:
    """How many tasks; a slow one drains fewer, so that the turns stay neighbours."""

    rounds: int
    count: int
    few: int


def by_two(who: str) -> str:
    return f"{who}, two processes"


def raptor(url: str, nodes: Sequence[Peer], count: int) -> float:
    """What is done is kept, and is cleared away before the next turn."""
    nodes[0].ask("pause", 1)
    ask(url, "TRUNCATE raptor.task")
    nodes[0].ask("fill", count)
    started = perf_counter()
    nodes[0].ask("pause", 0)
    emptied(url, count)
    return (perf_counter() - started) / count


async def compete(there: Databases, missing: Mapping[str, str], size: Size) -> Times:
    with ExitStack() as stack:
        raw = Raw(there.new("raw"))
        stack.callback(raw.close)
        turns: dict[str, Turn[float]] = {RAW_PG: in_thread(raw.drain, size.count)}
        for who, processes in ((RAPTOR, 1), (by_two(RAPTOR), 2)):
            url = there.new(f"raptor{processes}")
            nodes = [stack.enter_context(peer("benchmarks.postgres.raptor_peer", url)) for _ in range(processes)]
            turns[who] = in_thread(raptor, url, nodes, size.count)
        for who, one in present(there, stack, missing, programs=False).items():
            turns[who] = partial(one.turn, "drain", size.few if who == PROCRASTINATE else size.count)
        for who, name in PROGRAMS.items():
            for title, processes in ((who, 1), (by_two(who), 2)):
                if who not in missing:
                    url = there.new(f"{name}{processes}")
                    its = stack.enter_context(node_peers.node_peers(name, url, processes))
                    turns[title] = partial(node_peers.drain, its, size.count)
        return await interleave(turns, size.rounds)


def measure(quick: bool) -> Result:
    size = Size(rounds=1, count=3_000, few=50) if quick else Size(rounds=3, count=100_000, few=1_000)
    loop, factory = list(loops().items())[-1]
    missing = absent(quick)
    with databases() as there:
        took = run(factory, compete(there, missing, size))
    what = f"drain of {size.count:,}"
    return Result(targets=list(targets(took, missing, what, loop)), figures=list(figures(took, missing, what, loop)))


def targets(took: Times, missing: Mapping[str, str], what: str, loop: str) -> Iterator[Target]:
    for who, limit in ((PGQUEUER, 2.0), (GRAPHILE, 1.0), (PROCRASTINATE, 50.0)):
        other = took.get(who, missing.get(who))
        yield held(SUBJECT, f"{what}, one process / {who}", took[RAPTOR], other, limit, loop)
    other = took.get(by_two(PG_BOSS), missing.get(PG_BOSS))
    yield held(SUBJECT, f"{what}, two processes / {PG_BOSS}", took[by_two(RAPTOR)], other, 0.9, loop)


def figures(took: Times, missing: Mapping[str, str], what: str, loop: str) -> Iterator[Figures]:
    rate: dict[str, Value] = {who: 1 / fast(times) for who, times in took.items()}
    one = {who: rate.get(who, missing.get(who)) for who in ON_POSTGRES}
    two = {who: rate.get(by_two(who), missing.get(who)) for who in PROGRAMS}
    for title, others in ((RAPTOR, one), (by_two(RAPTOR), two)):
        told = f"{what}, {'one process' if title == RAPTOR else 'two processes'}"
        yield Figures(subject=SUBJECT, what=told, loop=loop, unit="/s", values={RAPTOR: rate[title], **others})
