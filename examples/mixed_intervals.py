"""Services with intervals of their own in one scheduler: it checks every hour, the daily report runs once a day.

    python examples/mixed_intervals.py

The clock is virtual: it jumps to whatever comes next, so that 25 hours pass in a moment. Nothing else differs from
the real one. The scheduler's interval says how often it looks, a service's own how often it runs.
"""

import tempfile
from datetime import UTC, datetime

from raptor import Node, VirtualClock
from raptor.state.memory import MemoryStore

ran: list[tuple[str, str]] = []
clock = VirtualClock(start=datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp())


def note(name: str) -> None:
    at = datetime.fromtimestamp(clock.now(), UTC).strftime("%a %H:%M")
    ran.append((at, name))


def hourly_check():
    note("hourly_check")


def daily_report():
    note("daily_report")


class Rehearsal(Node):
    """A node that keeps its records in memory: virtual time must not run ahead of a disk."""

    def _open_store(self):
        return MemoryStore()


async def main(home: str) -> None:
    async with Rehearsal(home, services=[hourly_check, daily_report], clock=clock, listen=False) as node:
        await node.start("main", interval="1h")
        await node.schedule("main", ["hourly_check", "daily_report=24h"])
        await clock.sleep(25 * 3600)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        clock.run(lambda: main(f"{folder}/state"))
    for at in dict.fromkeys(at for at, _ in ran):
        print(at, *(name for when, name in ran if when == at))
