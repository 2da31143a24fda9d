"""One service in two schedulers: its timing is shared, so for one slot it runs once, whoever comes first.

    python examples/shared_service.py

The clock is virtual: three hours pass in a moment, and so the records are in memory. Both schedulers check every hour,
at the same time.
"""

from collections import Counter

from raptor import Node, VirtualClock

clock = VirtualClock()
runs: Counter[str] = Counter()


def refresh_cache():
    runs["refresh_cache"] += 1


def only_here():
    runs["only_here"] += 1


def only_there():
    runs["only_there"] += 1


async def main() -> None:
    services = [refresh_cache, only_here, only_there]
    async with Node(store="memory:", services=services, clock=clock) as node:
        for name, own in (("here", "only_here"), ("there", "only_there")):
            await node.start(name, interval="1h")
            await node.schedule(name, ["refresh_cache", own])
        await clock.sleep(3 * 3600 - 60)


if __name__ == "__main__":
    clock.run(main)
    for name, count in sorted(runs.items()):
        print(f"{name}: {count} runs in 3 hours")
