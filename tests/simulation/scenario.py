"""What is simulated: services, schedulers, how many nodes on what store, how busy, and for how long."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from raptor.service import OnCrash, Service

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
START = 1_700_000_000.0
CHANGES = (1_710_054_000.0, 1_711_846_800.0, 1_729_990_800.0, 1_730_613_600.0, 1_735_689_600.0)
"""Of 2024: when New York and Europe go to summer time and back, and the end of the year."""

ZONES = (None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
CALENDARS = (
    "*/5 * * * *", "*/20 * * * *", "7 * * * *", "30 */2 * * *", "0 */6 * * *", "0 0 * * *", "30 2 * * *", "59 1 * * *",
    "15 3 * * *", "0 9 * * 1-5", "30 2 * * 7", "0 12 1 * *", "0 0 29 2 *",
)  # fmt: skip
LISTED: dict[str, OnCrash] = {"a": "rerun", "b": "skip", "c": "rerun", "x": "rerun", "y": "skip", "z": "rerun"}


class Kept(NamedTuple):
    """What retention leaves."""

    age: str = "30d"
    runs: int = 1000  # of each service
    tasks: str = "24h"


KEPT = Kept()


@dataclass(frozen=True)
class Scenario:
    name: str
    services: list[Service]
    schedulers: dict[str, tuple[str | None, tuple[str, ...]]]  # interval, services
    nodes: int = 1
    shared: bool = False
    hours: float = 4.0
    lanes: int = 6
    longest_s: float = 10.0  # of a run that goes well
    quiet_s: float = 300.0  # after the last fault, for whatever was going on to come to its end
    asks_s: float = 60.0  # the mean time between two commands; 0: none
    slice_s: float = 30.0  # how often somebody who waits looks at the wall clock
    changes: bool = True  # commands that change schedulers too
    calm: float = 1.0  # how many times rarer than in the swarm faults are
    start: float = START  # what the clock shows at first
    sweep_s: float = 600.0  # between two sweeps of the janitor
    kept: Kept = KEPT
    away_s: tuple[float, ...] = (0.1, 1.0, 5.0, 30.0, 120.0)  # between the end of a node and its next start
    delays_s: tuple[float, ...] = (0.0, 0.0, 1.0, 30.0, 300.0)  # of tasks
    tasks: tuple[str, ...] = ("post", "call", "batch")  # services that are put
    puts: tuple[dict[str, object], ...] = field(default=())  # at the start; `off_s`: cancelled so much later
    foresees: bool = False  # a store of its own that looks ahead, as a server's does for a node that is alone


def _many(rng: random.Random, count: int, shortest_s: float) -> list[Service]:
    """Services of all kinds; most are rare, as they are in life."""
    made: list[Service] = []
    for number in range(count):
        every_s = shortest_s * rng.choice((1, 2, 3, 6, 12, 24, 36))
        options: dict[str, object] = {
            "anchor": rng.choice(("slot", "slot", "end", "grid")),
            "missed": rng.choice(("once", "once", "skip", "all")),
            "overlap": rng.choice(("skip", "skip", "queue")),
            "on_crash": rng.choice(("rerun", "rerun", "skip")),
            "max_attempts": rng.choice((None, 1, 3)),
        }
        if options["missed"] == "all":
            options["missed_limit"] = rng.choice((2, 10))
        if rng.random() < 0.15:
            options["anchor"] = "slot"
            options["cron"] = rng.choice(("*/15 * * * *", "0 * * * *", "30 */2 * * *"))
        else:
            options["every_s"] = every_s
        made.append(Service(name=f"s{number:02}", **options))  # type: ignore[arg-type]
    return made


def _task_services() -> list[Service]:
    return [
        Service(name="post"),
        Service(name="call", on_crash="skip"),
        Service(name="batch", queue="side"),
    ]


def drawn(seed: int, name: str | None = None) -> Scenario:
    """The scenario of a seed: mostly a quiet one, because years have to pass."""
    rng = random.Random(f"scenario {seed}")
    name = name or rng.choice(("sparse", "sparse", "sparse", "sparse", "sparse", "pair", "trio", "dense", "dense_pair"))
    dense = name.startswith("dense")
    nodes = {"pair": 2, "trio": 3, "dense_pair": 2}.get(name, 1)
    services = _many(rng, 6 if dense else 15, 10.0 if dense else 10 * MINUTE)
    names = [service.name for service in services]
    half = len(names) // 2
    common = rng.choice((0, 0, 1, 3))  # services that both schedulers run
    schedulers: dict[str, tuple[str | None, tuple[str, ...]]] = {"main": (None, tuple(names[: half + common]))}
    schedulers["beat"] = (rng.choice(("30s", "1m") if dense else ("5m", "10m", "30m")), tuple(names[half:]))
    return Scenario(
        name=name,
        services=[*services, *_task_services()],
        schedulers=schedulers,
        nodes=nodes,
        shared=nodes > 1,
        hours=rng.uniform(0.1, 0.3) if dense else rng.uniform(1.0, 4.0) if nodes > 1 else rng.uniform(4.0, 20.0),
        asks_s=rng.choice((2.0, 5.0)) if dense else rng.choice((300.0, 900.0, 3600.0)),
        slice_s=30.0 if dense else 300.0,
        changes=rng.random() < 0.5,
        foresees=rng.random() < 0.5,
    )


def settled(seed: int, name: str) -> Scenario:
    """As most deployments are: for weeks, with services by interval and calendar, some tasks, and a fault now and then.

    Its weeks lie around the days on which clocks change.
    """
    rng = random.Random(f"settled {seed}")
    nodes = 2 if name == "settled_pair" else 1
    services = [_real(rng, f"s{number:02}") for number in range(rng.randrange(4, 13))]
    names = [service.name for service in services]
    half = len(names) // 2
    days = rng.uniform(1.0, 4.0) if nodes > 1 else rng.uniform(7.0, 28.0)
    return Scenario(
        name=name,
        services=[*services, *_task_services()],
        schedulers={
            "main": (None, tuple(names[: half + rng.choice((0, 0, 1))])),
            "beat": (rng.choice(("5m", "15m", "1h")), tuple(names[half:])),
        },
        nodes=nodes,
        shared=nodes > 1,
        hours=24 * days,
        calm=rng.choice((10.0, 30.0, 100.0)),
        start=rng.choice(CHANGES) - rng.uniform(0.0, days) * DAY,
        asks_s=rng.choice((HOUR, 3 * HOUR)),
        slice_s=15 * MINUTE,
        sweep_s=6 * HOUR,
        kept=rng.choice((Kept("2d", 100, "6h"), Kept("5d", 50, "24h"), KEPT)),
        away_s=(1.0, 30.0, 10 * MINUTE, 3 * HOUR, 30 * HOUR),
        delays_s=(0.0, 0.0, 30.0, 10 * MINUTE, 6 * HOUR, 3 * DAY),
        changes=rng.random() < 0.3,
    )


def _real(rng: random.Random, name: str) -> Service:
    missed = rng.choice(("once", "once", "once", "skip", "all"))
    options: dict[str, object] = {
        "missed": missed,
        "overlap": rng.choice(("skip", "skip", "queue")),
        "on_crash": rng.choice(("rerun", "rerun", "rerun", "skip")),
        "max_attempts": rng.choice((None, 1, 3)),
    }
    if missed == "all":
        options["missed_limit"] = rng.choice((2, 10))
    if rng.random() < 0.5:
        options |= {"cron": rng.choice(CALENDARS), "timezone": rng.choice(ZONES)}
    else:
        every_s = rng.choice((5 * MINUTE, 15 * MINUTE, HOUR, HOUR, 4 * HOUR, 12 * HOUR, DAY, 7 * DAY))
        options |= {"every_s": every_s, "anchor": rng.choice(("slot", "slot", "end", "grid"))}
    return Service(name=name, **options)  # type: ignore[arg-type]


def small(name: str) -> Scenario:
    """Those that are crashed at every point."""
    puts = (
        {"service": "post", "in_": 0.5},
        {"service": "post", "in_": 1.0, "key": "one"},
        {"service": "call"},
        {"service": "flaky", "in_": 1.0},
        {"service": "post", "every": 4.0},
    )
    every = [Service(name=name, every_s=5.0, on_crash=on_crash) for name, on_crash in LISTED.items()]
    lists: dict[str, tuple[str | None, tuple[str, ...]]] = {
        "main": (None, ("a", "b", "c")),
        "beat": ("5s", ("x", "y", "z")),
    }
    both = {"longest_s": 0.5, "asks_s": 0.0, "changes": False, "hours": 7.0 / 3600, "quiet_s": 10.0}
    match name:
        case "cycles":
            return Scenario(name, every, lists, tasks=(), **both)  # type: ignore[arg-type]
        case "tasks":
            return Scenario(name, [*_task_services(), Service(name="flaky")], {}, puts=puts, **both)  # type: ignore[arg-type]
        case "common" | "common_shared":
            services = [Service(name="a", every_s=3.0), Service(name="b", every_s=3.0, overlap="queue")]
            twice: dict[str, tuple[str | None, tuple[str, ...]]] = {
                "main": (None, ("a", "b")),
                "beat": ("3s", ("b", "a")),
            }
            nodes = 2 if name == "common_shared" else 1
            return Scenario(name, services, twice, tasks=(), nodes=nodes, shared=nodes > 1, **both)  # type: ignore[arg-type]
        case "shared":
            services = [
                every[0],
                Service(name="x", every_s=3.0, on_crash="skip"),
                *_task_services(),
                Service(name="flaky"),
            ]
            few = {"main": (None, ("a", "x"))}
            both["hours"] = 4.0 / 3600
            return Scenario(name, services, few, nodes=2, shared=True, puts=puts[1:4], **both)  # type: ignore[arg-type]
        case "lasting":  # what runs is taken over while its node stands still, or cancelled while it hears nothing
            services = [Service(name="lasting"), Service(name="flaky")]
            orders = ({"service": "lasting"}, {"service": "flaky", "in_": 1.0, "off_s": 2.0})
            both["hours"] = 4.0 / 3600
            return Scenario(name, services, {}, nodes=2, shared=True, puts=orders, **both)  # type: ignore[arg-type]
        case "burst":  # several lots, each of which ends as it begins, or does not
            services = [*_task_services(), Service(name="flaky")]
            burst = ({"service": "post", "in_": 1.0},) * 5 + ({"service": "flaky", "in_": 1.0}, {"service": "call"})
            both |= {"hours": 4.0 / 3600, "longest_s": 0.0, "lanes": 2, "foresees": True}
            return Scenario(name, services, {}, tasks=(), puts=burst, **both)  # type: ignore[arg-type]
        case _:
            raise ValueError(f"there is no small scenario {name!r}")


SETTLED = ("settled", "settled_pair")
SMALL = ("cycles", "tasks", "burst", "common", "shared", "common_shared")
STRUCK = ("shared", "common_shared", "lasting", "burst")  # by other things than crashes
