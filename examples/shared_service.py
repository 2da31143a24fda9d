"""One service in two schedulers: its timing is shared, so for one slot it runs once, whoever comes first.

    python examples/shared_service.py

The clock is virtual: three hours pass in a moment. Both schedulers check every hour, at the same time.
"""

import tempfile
from collections import Counter

from raptor import Node, VirtualClock
from raptor.state.memory import MemoryStore

clock = VirtualClock()
runs: Counter[str] = Counter()


def refresh_cache():
    runs["refresh_cache"] += 1


def only_here():
    runs["only_here"] += 1


def only_there():
    runs["only_there"] += 1


class Rehearsal(Node):
    """A node that keeps its records in memory: virtual time must not run ahead of a disk."""

    def _open_store(self):
        return MemoryStore()


async def main(home: str) -> None:
    services = [refresh_cache, only_here, only_there]
    async with Rehearsal(home, services=services, clock=clock, listen=False) as node:
        for name, own in (("here", "only_here"), ("there", "only_there")):
            await node.start(name, interval="1h")
            await node.schedule(name, ["refresh_cache", own])
        await clock.sleep(3 * 3600 - 60)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        clock.run(lambda: main(f"{folder}/state"))
    for name, count in sorted(runs.items()):
        print(f"{name}: {count} runs in 3 hours")
