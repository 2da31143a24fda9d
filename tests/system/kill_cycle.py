"""A node with a cycle of five services, to be killed. Each service writes lines to a ledger, and syncs them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import raptor
from raptor.service import Service
from raptor.testing.checker.history import Command, Line, Record, What, encode

NAMES = ("s1", "s2", "s3", "s4", "s5")


def service(name: str, ledger: Path, takes_s: float) -> Service:
    def note(what: What, ctx: raptor.Context) -> None:
        line = Line(
            what=what, run=ctx.run_id, service=name, scheduler=ctx.scheduler, attempt=ctx.attempt,
            life=int(os.environ["CYCLE_LIFE"]), pid=os.getpid(), planned=ctx.planned, at=time.time(),
        )  # fmt: skip
        write(ledger, line)

    async def function(ctx: raptor.Context) -> str:
        note("start", ctx)
        await asyncio.sleep(takes_s)
        note("end", ctx)
        return "fine"

    return Service(name=name, function=function)


def write(ledger: Path, record: Record) -> None:
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, encode(record))
        os.fsync(file)
    finally:
        os.close(file)


async def define(node: raptor.Node, commands: Path) -> None:
    """What its operator asks of it, and whether that was acknowledged."""
    known, at = (await node.site.definitions()).get("main"), time.time()
    if node.scheduler("main") is None:
        await node.start("main", interval="1h")
    if not (await node.status("main"))["schedulers"][0]["periodic_services"]:  # killed before it could say which
        await node.schedule("main", NAMES)
    definition = (await node.site.definitions())["main"]
    if definition != known:
        write(commands, Command(what="define", at=at, acked=time.time(), definition=definition))


async def main(home: Path, ledger: Path, takes_s: float) -> None:
    services = [service(name, ledger, takes_s) for name in NAMES]
    async with raptor.Node(home, services=services, listen=False) as node:
        print("ready", flush=True)
        await define(node, ledger.with_name("commands"))
        while not (status := (await node.status("main"))["schedulers"][0])["cycles"] or status["next_check"] is None:
            await asyncio.sleep(0.001)
        print(f"over {status['next_check']} {status['cycles']}", flush=True)
        if "--stay" in sys.argv:
            await asyncio.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL)  # an unclean end: the next one comes back by itself


if __name__ == "__main__":
    raptor.SystemClock().run(lambda: main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
