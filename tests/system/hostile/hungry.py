"""A node in small that runs a command and an isolated function without bounds on their memory, and tells their ends."""

from __future__ import annotations

import sys

from raptor.clock import SystemClock
from raptor.runners import RUNNERS, Context
from raptor.runners.output import RunLog
from raptor.service import Service

HUNGRY = "hoard = []\nwhile True: hoard.append(bytearray(b'x' * 1_000_000))"


def eat() -> None:
    exec(HUNGRY, {})


async def main() -> None:
    for service in (
        Service(name="command", kind="command", argv=(sys.executable, "-c", HUNGRY)),
        Service(name="function", function=eat, isolate=True),
    ):
        context = Context(run_id=f"hungry-{service.name}", service=service.name, planned=0.0, key="k")
        result = await RUNNERS[service.kind](clock).run(service, context, RunLog())
        print(service.name, result.info, flush=True)


if __name__ == "__main__":
    clock = SystemClock()
    clock.run(main)
