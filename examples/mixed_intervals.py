"""Services with intervals of their own in one scheduler: it checks every hour, the daily report runs once a day.

    python examples/mixed_intervals.py

The clock is virtual: it jumps to whatever comes next, so that 25 hours pass in a moment. Nothing else differs from
the real one, but that the records are in memory: such a clock would run ahead of a disk. The scheduler's interval says
how often it looks, a service's own how often it runs.
"""

from datetime import UTC, datetime

from raptor import Node, VirtualClock

ran: list[tuple[str, str]] = []
clock = VirtualClock(start=datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp())


def note(name: str) -> None:
    at = datetime.fromtimestamp(clock.now(), UTC).strftime("%a %H:%M")
    ran.append((at, name))


def hourly_check():
    note("hourly_check")


def daily_report():
    note("daily_report")


async def main() -> None:
    async with Node(store="memory:", services=[hourly_check, daily_report], clock=clock) as node:
        await node.start("main", interval="1h")
        await node.schedule("main", ["hourly_check", "daily_report=24h"])
        await clock.sleep(25 * 3600)


if __name__ == "__main__":
    clock.run(main)
    for at in dict.fromkeys(at for at, _ in ran):
        print(at, *(name for when, name in ran if when == at))
