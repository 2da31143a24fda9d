"""A machine that stands still is told of, and is nobody's fault."""

from __future__ import annotations

import os
from pathlib import Path

from raptor.testing.checker.history import Fault
from raptor.testing.torture.pulse import Stalls
from raptor.testing.torture.services import now
from raptor.testing.torture.writing import append


def pulse(folder: Path, *, last: float) -> Stalls:
    """One that noticed a standstill from 10 to 20, and has beaten last so many seconds ago."""
    append(folder / "stalls", Fault(what="freeze", at=10.0, until=20.0))
    (folder / "beat").touch()
    os.utime(folder / "beat", (now() - last, now() - last))
    return Stalls(folder / "stalls")


def test_a_time_met_a_standstill_or_did_not(tmp_path: Path) -> None:
    stalls = pulse(tmp_path, last=0.0)
    assert stalls.met(5.0, 10.0)
    assert stalls.met(12.0, 13.0)
    assert not stalls.met(20.1, 30.0)
    assert not stalls.met(1.0, 9.9)
    assert stalls.faults == [Fault(what="freeze", at=10.0, until=20.0)]


def test_a_machine_that_stands_still_now_has_not_said_so_yet(tmp_path: Path) -> None:
    assert pulse(tmp_path, last=5.0).met(20.1, 30.0)


def test_before_the_first_beat_nothing_is_excused(tmp_path: Path) -> None:
    assert not Stalls(tmp_path / "stalls").met(0.0, 1e12)
