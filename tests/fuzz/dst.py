"""Target: cron where the clock changes, beside the scanner: every zone, every change from 2000 to 2037."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from functools import lru_cache
from random import Random

from raptor.cron import Cron, normal_cron
from tests.fuzz import scanner
from tests.fuzz.target import Target, must

BEFORE_S, AFTER_S = 12 * 3600, 30 * 3600  # after a day that is left out, a whole one has to be seen
EACH = 8  # expressions for a change


def dst(data: bytes) -> int:
    """`zone change expression`; -> how many minutes were judged."""
    name, change, expression = data.decode().split(" ", 2)
    zone = zoneinfo.ZoneInfo(name)
    since, until = int(change) - BEFORE_S, int(change) + AFTER_S
    minutes = _walk(name, since, until)
    wanted = scanner.times(scanner.read(expression), minutes)
    timing = Cron(normal_cron(expression), zone)
    found = list(map(int, timing.times(since - 1, until - 1)))
    _compare(found, wanted, zone)
    random = Random(data)
    for at in (random.randrange(since, until) for _ in range(3)):
        earlier, later = [one for one in wanted if one <= at], [one for one in wanted if one >= at]
        must(not earlier or timing.last(at) == earlier[-1], f"the last at {at} is {timing.last(at)}")
        must(not later or timing.first(at) == later[0], f"the first at {at} is {timing.first(at)}")
        must(not later or timing.after(slot=at - 1, end=at, origin=at) == later[0], f"the next after {at - 1}")
    return len(minutes)


def _compare(found: list[int], wanted: list[int], zone: zoneinfo.ZoneInfo) -> None:
    if found != wanted:
        early, missing = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
        must(False, f"{zone.key}: too many {early[:3]}, too few {missing[:3]}")


@lru_cache(maxsize=4)
def _walk(name: str, since: int, until: int) -> list[tuple[int, scanner.datetime]]:
    return scanner.walk(zoneinfo.ZoneInfo(name), since, until)


def inputs(seed: int) -> Iterator[bytes]:
    """All changes in a random order, again and again, each with a few new expressions."""
    random = Random(seed)
    names = sorted(zoneinfo.available_timezones() - {"localtime"})
    while True:
        random.shuffle(names)
        for name in names:
            changes = scanner.changes(zoneinfo.ZoneInfo(name))
            for change in random.sample(changes, len(changes)):
                for _ in range(EACH):
                    yield f"{name} {change} {expression(random)}".encode()


def expression(random: Random) -> str:
    """One that is likely to fall on the hours at which clocks change."""
    minute = _field(random, 0, 59, every=0.2)
    hour = random.choice(
        ("*", "*", "*/2", "*/3", "0", "1", "2", "3", "0-3", "2,3", "1-4/2", _field(random, 0, 23, every=0.1))
    )
    day = "*" if random.random() < 0.8 else random.choice(("L", "1", "15,L", _field(random, 1, 31, every=0)))
    month = "*" if random.random() < 0.9 else _field(random, 1, 12, every=0)
    weekday = (
        "*" if random.random() < 0.8 else random.choice(("SUN", "0", "7", "1-5", "0#1", "SUN#2", "SUN-WED", "MON,SUN"))
    )
    fields = [minute, hour, day, month, weekday]
    return " ".join([random.choice(("0", "*/20", "59", "5,30"))] * (random.random() < 0.15) + fields)


def _field(random: Random, least: int, most: int, *, every: float) -> str:
    if random.random() < every:
        return random.choice(("*", f"*/{random.choice((2, 5, 7, 15, 30))}"))
    parts: list[str] = []
    for _ in range(random.randrange(1, 4)):
        low = random.randint(least, most)
        high = random.randint(low, most)
        parts.append(random.choice((str(low), f"{low}-{high}", f"{low}-{high}/{random.randint(1, 5)}")))
    return ",".join(parts)


TARGETS = (
    Target(
        "dst",
        dst,
        (b"Europe/Sofia 1301184000 30 3 * * *", b"Pacific/Apia 1325239200 0 12 30 12 *"),
        inputs=inputs,
        slow_s=5.0,  # two days of minutes
    ),
)
