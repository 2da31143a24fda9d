"""Putting tasks: by one caller, by a hundred at once, and a thousand in a call, beside psycopg alone and the peers.

What is put is due in an hour, so that nothing but the put is measured.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

from benchmarks.postgres.peers import absent, present
from benchmarks.postgres.raw import Raw
from benchmarks.postgres.server import Databases, databases
from benchmarks.puts import MANY, MANY_CALLERS, ONE, Times, by_many, catalogue, in_batches, one_by_one
from benchmarks.queues import held
from benchmarks.raw import BATCH
from benchmarks.report import ON_POSTGRES, PGQUEUER, RAPTOR, RAW_PG, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, in_thread, interleave, loops, run
from raptor.node import Node

SUBJECT = "pg-puts"
COPIED = f"{RAW_PG}, COPY of {BATCH:,}"


def batches(who: str) -> str:
    return f"{who}, {BATCH:,} in a call"


async def compete(there: Databases, missing: Mapping[str, str], rounds: int, alone: int, together: int) -> Times:
    with ExitStack() as stack:
        raw = Raw(there.new("raw"))
        stack.callback(raw.close)
        peers = present(there, stack, missing)
        async with Node(services=catalogue(), store=there.new("raptor"), listen=False) as node:
            turns: dict[str, Turn[float]] = {
                RAW_PG: in_thread(raw.put, alone),
                ONE: partial(one_by_one, node, alone),
                MANY_CALLERS: partial(by_many, node, together),
                COPIED: in_thread(raw.put_many, together),
                MANY: partial(in_batches, node, together),
            }
            for who, one in peers.items():
                turns[who] = partial(one.turn, "put", alone)
                turns[batches(who)] = partial(one.turn, "put_many", together)
            return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    loop, factory = list(loops().items())[-1]
    missing = absent(quick)
    with databases() as there:
        took = run(factory, compete(there, missing, *((1, 50, 1000) if quick else (40, 50, 2000))))
    return Result(targets=list(targets(took, missing, loop)), figures=list(figures(took, missing, loop)))


def targets(took: Times, missing: Mapping[str, str], loop: str) -> Iterator[Target]:
    pgqueuer, batch = took.get(PGQUEUER, missing.get(PGQUEUER)), took.get(batches(PGQUEUER), missing.get(PGQUEUER))
    yield held(SUBJECT, f"{ONE} / {RAW_PG}", took[ONE], took[RAW_PG], 0.5, loop)
    yield held(SUBJECT, f"{MANY_CALLERS} / {PGQUEUER}, one caller", took[MANY_CALLERS], pgqueuer, 15.0, loop)
    yield held(SUBJECT, f"{MANY} / {COPIED}", took[MANY], took[COPIED], 0.5, loop)
    yield held(SUBJECT, f"{MANY} / {batches(PGQUEUER)}", took[MANY], batch, 1.3, loop)


def figures(took: Times, missing: Mapping[str, str], loop: str) -> Iterator[Figures]:
    rate: dict[str, Value] = {turn: 1 / fast(times) for turn, times in took.items()}
    one = {who: rate.get(who, missing.get(who)) for who in ON_POSTGRES}
    many = {who: rate.get(batches(who), missing.get(who)) for who in ON_POSTGRES} | {RAW_PG: rate[COPIED]}
    for turn, others in ((ONE, one), (MANY_CALLERS, {}), (MANY, many)):
        yield Figures(subject=SUBJECT, what=turn, loop=loop, unit="/s", values={RAPTOR: rate[turn], **others})
