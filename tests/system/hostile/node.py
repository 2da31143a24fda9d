"""A node in small: runs one isolated service until it is killed."""

from __future__ import annotations

import sys

from raptor.clock import SystemClock
from raptor.runners import RUNNERS, Context
from raptor.runners.output import RunLog
from raptor.service import Service
from tests.system.hostile import functions


class Aloud(RunLog):
    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


async def main() -> None:
    service = Service(name="hang", function=functions.hang, isolate=True)
    context = Context(run_id=sys.argv[1], service="hang", planned=0.0, key="k")
    await RUNNERS["python"](clock).run(service, context, Aloud())


if __name__ == "__main__":
    clock = SystemClock()
    clock.run(main)
