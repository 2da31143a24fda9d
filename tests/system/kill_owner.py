"""A node of a shared store with a scheduler that ticks, to be killed. What it runs is written to a ledger."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import raptor
from raptor.config import Config
from raptor.service import Service
from raptor.testing.torture.writing import append_bytes

TAKES_S = 0.3


def ticking(ledger: str) -> Service:
    async def function(ctx: raptor.Context) -> str:
        append_bytes(ledger, f"begin {ctx.key} {os.getpid()} {time.time()!r}\n".encode())
        await asyncio.sleep(TAKES_S)
        append_bytes(ledger, f"end {ctx.key} {os.getpid()} {time.time()!r}\n".encode())
        return str(os.getpid())

    return Service(name="tick", function=function)


async def main(home: Path, store: str, ledger: str) -> None:
    config = Config.load({"home": str(home), "store": store, "worker.processors": 0})
    async with raptor.Node(config=config, services=[ticking(ledger)]) as node:
        await node.start("main", interval="1s")
        await node.schedule("main", ["tick"])
        print("ready", flush=True)
        await node.root.wait()


if __name__ == "__main__":
    raptor.SystemClock().run(lambda: main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
