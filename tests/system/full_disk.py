"""A node on a disk of its own, whose first service fills that disk. A line of its output is an event."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import raptor
from raptor.events import Event
from raptor.service import Service
from raptor.task import Run


def fill(folder: Path) -> None:
    """Leave no room at all."""
    with (folder / "filler").open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def service(name: str, folder: Path) -> Service:
    async def function(ctx: object) -> str:
        if name == "first":
            fill(folder)
        return f"{name} was here"

    return Service(name=name, function=function)


def tell(event: Event) -> None:
    match event.name:
        case "service_started" | "service_ended":
            run = event.facts["run"]
            assert isinstance(run, Run)
            print(event.name, run.service, flush=True)
        case "store_failing" | "cycle_done":
            print(event.name, flush=True)


async def main(home: Path) -> None:
    loop = asyncio.get_running_loop()
    async with raptor.Node(home, services=[service(name, home) for name in ("first", "second")], listen=False) as node:
        node.runtime.events.subscribe(tell)
        await node.start("main", interval="1h")
        await node.schedule("main", ["first", "second"])
        await loop.run_in_executor(None, sys.stdin.readline)  # the test has seen enough of the full disk
        (home / "filler").unlink()
        await loop.run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    raptor.SystemClock().run(lambda: main(Path(sys.argv[1])))
