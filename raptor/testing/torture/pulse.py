"""Whether the machine itself stood still, or had no time for us: nodes that had none either are not to blame for it.

A process of its own works a little and syncs a file, again and again, as nodes do, and writes down what took too long.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from raptor.testing.checker.history import Fault
from raptor.testing.torture.services import now
from raptor.testing.torture.writing import append, written

EVERY_S = 0.1
STALL_S = 0.4  # that a beat may take beyond that
WORK = 100_000  # additions: a few thousandths of a second


class Pulse(msgspec.Struct, frozen=True, kw_only=True, tag="pulse"):
    """Beats until it is killed."""

    stalls: str  # the file that it writes; beside it is one with its last beat


def beat(pulse: Pulse) -> NoReturn:
    last = now()
    with open(_beat(pulse.stalls), "wb", buffering=0) as file:
        while True:
            time.sleep(EVERY_S)
            sum(range(WORK))
            file.write(b".")
            os.fsync(file.fileno())
            at, last = last, now()
            if last - at > EVERY_S + STALL_S:
                append(pulse.stalls, Fault(what="freeze", at=at, until=last))


class Stalls:
    """What a pulse has written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def faults(self) -> list[Fault]:
        return list(written(self._path, Fault))

    def met(self, since: float, until: float) -> bool:
        """Whether the machine stood still in that time, or does now."""
        try:
            if now() - _beat(self._path).stat().st_mtime > EVERY_S + STALL_S:
                return True
        except FileNotFoundError:
            return False  # it does not beat yet
        return any(one.at <= until and (one.until or one.at) >= since for one in self.faults)


def _beat(stalls: str | Path) -> Path:
    return Path(stalls).with_name("beat")
