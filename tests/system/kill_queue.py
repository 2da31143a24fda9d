"""A node that works through tasks, to be killed, and a putter beside it: the torture's own, one by one."""

from __future__ import annotations

import os
import sys

from raptor.testing.torture.client import Client, put
from raptor.testing.torture.node import Place, live
from raptor.testing.torture.services import COMMANDS


def main(role: str, argument: str, homes: list[str]) -> int:
    commands = os.environ[COMMANDS]
    if role == "put":
        return put(Client(homes=homes, commands=commands, seed=int(argument)))
    place = Place(
        home=homes[0], commands=commands, store=os.environ.get("QUEUE_STORE"), lease=os.environ.get("QUEUE_LEASE"),
        grace_s=float(argument), schedules=False,
    )  # fmt: skip
    return live(place, lambda: print("ready", flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
