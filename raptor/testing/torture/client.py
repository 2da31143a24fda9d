"""Those who put tasks while nodes are tortured, and write down what was acknowledged."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from raptor.client import Refused, ask
from raptor.errors import NotRunning
from raptor.testing.checker.history import Command
from raptor.testing.torture.services import now
from raptor.testing.torture.writing import append

PATIENCE_S = 2.0  # for a node that stands still
PAUSE_S = 0.005
SERIES = 3  # tasks that repeat for ever
A_MOMENT_S = 1e-3  # a due time is rounded


class Client(msgspec.Struct, frozen=True, kw_only=True, tag="client"):
    """Who puts: until a file says that it is enough, whether there is a node or not."""

    homes: Sequence[str]
    commands: str
    seed: int
    every_s: float = 0.003
    services: Sequence[str] = ()  # of a user, which need no data; none: those of the torture


def order(rng: random.Random, number: int) -> dict[str, Any]:
    """What is put next."""
    if number < SERIES:
        key = {"key": f"series {number}"} if number else {}
        return {"service": ("quick", "threaded", "flaky")[number], "every": 0.25, **key}
    kinds = (
        ["quick"] * 8
        + ["threaded", "flaky"] * 3
        + ["named"]
        + ["doomed", "undecided", "family", "family", "delayed", "delayed", "many", "keyed", "keyed"]
    )
    rare = {3: "apart", 23: "poison"}.get(number % 60)
    kind = rng.choice([*kinds, rare] if rare else kinds)
    match kind:
        case "family":
            return {"service": kind, "data": {"children": rng.randrange(1, 4)}}
        case "many":
            return {"service": "quick", "many": [None] * rng.randrange(5, 40)}
        case "delayed":
            return {"service": "quick", "in_": rng.uniform(0.05, 1.0)}
        case "keyed":
            return {"service": "quick", "key": f"key {rng.randrange(10)}", "in_": rng.uniform(0, 0.1)}
        case _:
            return {"service": kind, "priority": rng.randrange(10)}


def put(client: Client) -> int:
    """Put by one node after another; -> the exit code."""
    rng, number = random.Random(client.seed), 0
    homes, enough = [Path(home) for home in client.homes], Path(client.commands).with_name("enough")
    while not enough.exists():
        asked = {"service": rng.choice(client.services)} if client.services else order(rng, number)
        if _put(client, rng.choice(homes), asked):
            number += 1
            time.sleep(client.every_s)
        else:
            time.sleep(PAUSE_S)
    return 0


def _put(client: Client, home: Path, asked: dict[str, Any]) -> bool:
    at = now()
    command = Command(what="put", at=at, service=asked["service"])
    try:
        answer = ask(home, "put", asked, timeout_s=PATIENCE_S)
    except NotRunning:
        return False
    except (Refused, ConnectionError):
        append(client.commands, command)  # it may have been stored, and nobody knows
        return False
    due = at + asked.get("in_", 0.0) - A_MOMENT_S
    for id in answer.get("ids", [answer.get("id")]):
        new = answer.get("new", True)
        append(client.commands, msgspec.structs.replace(command, acked=now(), task=id, due=due, new=new))
    return True
