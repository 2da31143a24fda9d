"""A node that works through tasks, to be killed, and a putter beside it. Both write down what they did.

The ledger has a line for each start and end of a run, and acks one for each put that was acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenacity import wait_fixed

import raptor
from raptor.client import Refused, ask
from raptor.config import Config
from raptor.errors import NotRunning
from raptor.service import Service
from raptor.testing.checker.history import Command, Line, What, encode

LANES = 6
TRIES = 15  # fewer than the tries that a row remembers
SOON = wait_fixed(0.05)
LONG_S = 300.0  # longer than any test


def append(file: str, line: bytes) -> None:
    """One write, so that lines of several processes do not mix."""
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(number, line)
        os.fsync(number)
    finally:
        os.close(number)


def note(what: What, ctx: raptor.Context) -> None:
    task, fence = map(int, ctx.run_id.split("."))
    line = Line(
        what=what, run=ctx.run_id, service=ctx.service, task=task, fence=fence, attempt=ctx.attempt,
        life=int(os.environ["QUEUE_LIFE"]), pid=os.getpid(), planned=ctx.planned, at=time.time(),
    )  # fmt: skip
    append(os.environ["QUEUE_LEDGER"], encode(line))


def acknowledge(id: int, sent: float, due: float | None, new: bool) -> None:
    append(os.environ["QUEUE_ACKS"], encode(Command(what="put", at=sent, acked=time.time(), task=id, due=due, new=new)))


@contextmanager
def noted(ctx: raptor.Context) -> Generator[None]:
    note("start", ctx)
    try:
        yield
    except asyncio.CancelledError:
        note("cut", ctx)
        raise
    except BaseException:
        note("fail", ctx)
        raise
    note("end", ctx)


@raptor.service(max_attempts=TRIES, backoff=SOON)
async def named(ctx: raptor.Context) -> str:
    """One that another process can import: it runs apart when its node has died."""
    with noted(ctx):
        await asyncio.sleep(0.02)
    return "fine"


@raptor.service(max_attempts=TRIES, backoff=SOON, isolate=True)
def apart(ctx: raptor.Context) -> int:
    with noted(ctx):
        return os.getpid()


@raptor.service(max_attempts=TRIES, backoff=SOON)
async def lengthy(ctx: raptor.Context) -> None:
    """Until somebody ends it, unless it was told to be short."""
    with noted(ctx):
        await asyncio.sleep(0 if "QUEUE_SHORT" in os.environ else LONG_S)


@raptor.service(max_attempts=TRIES, backoff=SOON, isolate=True)
def lengthy_apart(ctx: raptor.Context) -> None:
    with noted(ctx):
        time.sleep(0 if "QUEUE_SHORT" in os.environ else LONG_S)


@raptor.service(max_attempts=TRIES, backoff=SOON)
async def held(ctx: raptor.Context) -> str:
    """Until the test makes the file."""
    with noted(ctx):
        while not Path(os.environ["QUEUE_LEDGER"]).with_name("go").exists():
            await asyncio.sleep(0.01)
    return "held"


def nameless() -> list[Service]:
    """Functions that no other process can import: they run in the node whatever happened."""

    async def quick(ctx: raptor.Context) -> str:
        with noted(ctx):
            await asyncio.sleep(0.03)
        return "fine"

    def threaded(ctx: raptor.Context) -> None:
        with noted(ctx):
            time.sleep(0.02)

    async def flaky(ctx: raptor.Context) -> str:
        with noted(ctx):
            if ctx.attempt < 1:
                raise RuntimeError("the first time it fails")
        return "fine"

    async def doomed(ctx: raptor.Context) -> None:
        with noted(ctx):
            raise RuntimeError("it always fails")

    async def family(children: int, ctx: raptor.Context) -> list[int]:
        """Puts tasks, and acknowledges each when the call has returned."""
        with noted(ctx):
            sent = time.time()
            placed = [await ctx.put("quick") for _ in range(children)]
            for child in placed:
                acknowledge(child.id, sent, None, child.new)
        return [child.id for child in placed]

    made = [(function, TRIES) for function in (quick, threaded, flaky, family)]
    return [
        Service(name=function.__name__, function=function, max_attempts=tries, backoff=SOON)
        for function, tries in [*made, (doomed, 2)]
    ]


SERVICES: list[Any] = [named, apart, lengthy, lengthy_apart, held, *nameless()]


def order(rng: random.Random, number: int) -> dict[str, Any]:
    """What is put next."""
    if number < 3:  # three series that go on for ever
        key = {"key": f"series {number}"} if number else {}
        return {"service": ("quick", "threaded", "flaky")[number], "every": 0.25, **key}
    kinds = (
        ["quick"] * 8
        + ["named", "threaded", "flaky"] * 3
        + ["doomed", "family", "family", "delayed", "delayed", "many"]
    )
    kind = rng.choice([*kinds, "keyed", "keyed", *(["apart"] if number % 40 == 3 else [])])
    match kind:
        case "family":
            return {"service": kind, "data": {"children": rng.randrange(1, 4)}}
        case "many":
            return {"service": "quick", "many": [None] * rng.randrange(5, 40)}
        case "delayed":
            return {"service": "quick", "in_": rng.uniform(0.05, 1.0)}
        case "keyed":
            return {"service": "quick", "key": f"key {rng.randrange(10)}", "in_": rng.uniform(0, 0.1)}
        case _:
            return {"service": kind, "priority": rng.randrange(10)}


def put(homes: list[Path], seed: int) -> None:
    """Put until told that it is enough, whether there is a node or not; of several, by one after the other."""
    rng, number, turn = random.Random(seed), 0, 0
    enough = homes[0].with_name("enough")
    asked = order(rng, number)
    while not enough.exists():
        sent = time.time()
        try:
            answer = ask(homes[turn % len(homes)], "put", asked)
        except (NotRunning, Refused, ConnectionError):
            turn += 1
            time.sleep(0.005)  # the same again: it may have been stored, and nobody knows
            continue
        for id in answer.get("ids", [answer.get("id")]):
            acknowledge(id, sent, sent + asked.get("in_", 0.0) - 1e-3, answer.get("new", True))
        number += 1
        asked = order(rng, number)
        time.sleep(0.003)


async def work(home: Path, grace_s: float) -> int:
    store = {"store": os.environ["QUEUE_STORE"]} if "QUEUE_STORE" in os.environ else {}
    config = Config.load({"home": str(home), "worker.processors": LANES, **store})
    async with raptor.Node(config=config, services=SERVICES) as node:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, node.shut_down, grace_s)
        if "QUEUE_LEASE" in os.environ:
            await node.call("queue", name="default", lease=os.environ["QUEUE_LEASE"])
        print("ready", flush=True)
        ends = [asyncio.ensure_future(node.root.wait()), asyncio.ensure_future(node.stop_asked.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        gave_up = ends[0].done()
        for end in ends:
            end.cancel()
    return 1 if gave_up else 0


if __name__ == "__main__":
    role, argument, folders = sys.argv[1], sys.argv[2], [Path(folder) for folder in sys.argv[3:]]
    if role == "put":
        put(folders, int(argument))
    else:
        sys.exit(raptor.SystemClock().run(lambda: work(folders[0], float(argument))))
