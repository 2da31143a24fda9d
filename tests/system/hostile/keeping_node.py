"""A node in small: runs a service whose process is kept, once well and once until the node is killed."""

from __future__ import annotations

import sys

from raptor.clock import SystemClock
from raptor.runners import RUNNERS, Context
from raptor.service import Service
from tests.system.hostile import kept
from tests.system.hostile.node import Aloud


async def main() -> None:
    service = Service(name="kept", function=kept.work, isolate=True, count=1000)
    runner = RUNNERS["python"](clock)
    for run_id, data in zip(sys.argv[1:], (None, "leave_daemon_and_hang"), strict=True):
        await runner.run(service, Context(run_id=run_id, service="kept", planned=0.0, key="k", data=data), Aloud())


if __name__ == "__main__":
    clock = SystemClock()
    clock.run(main)
