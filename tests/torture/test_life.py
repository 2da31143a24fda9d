"""A real life of a node under torture, and what is known of it when it has ended."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from raptor.client import ask
from raptor.clock import SystemClock
from raptor.testing.checker.history import Line, Unrecorded
from raptor.testing.torture.lives import Lives
from raptor.testing.torture.node import NOT_RECORDED, UNRECORDED, Place
from raptor.testing.torture.round import life_of
from raptor.testing.torture.services import COMMANDS, FAULTS, LEDGER
from raptor.testing.torture.writing import written
from tests.postgres import own_server
from tests.servers import Server
from tests.system.cli import eventually

__all__ = ["own_server"]


@pytest.mark.timeout(120)
async def test_a_life_that_could_not_record_a_run_says_so_and_was_not_killed(
    tmp_path: Path, own_server: Server, system_clock: SystemClock
) -> None:
    (tmp_path / "logs").mkdir()
    place = Place(
        home=str(tmp_path / "home"), commands=str(tmp_path / "commands"), store=own_server.url, grace_s=1.0,
        schedules=False,
    )  # fmt: skip
    env = {LEDGER: str(tmp_path / "ledger"), COMMANDS: place.commands, FAULTS: str(tmp_path / "faults")}

    def lines() -> list[str]:
        return [line.what for line in written(tmp_path / "ledger", Line)]

    async with Lives(tmp_path, env) as lives:
        lived = lives.begin(place)
        await lived.ready.wait()
        id = (await asyncio.to_thread(ask, Path(place.home), "put", {"service": "held"}))["id"]
        await asyncio.to_thread(eventually, lines, "it does not start")
        await asyncio.to_thread(own_server.kill)
        (tmp_path / "go").touch()
        await asyncio.to_thread(eventually, lambda: lines() == ["start", "end"], "it does not end")
        lived.stopping = system_clock.now()
        lives.signal(lived, signal.SIGTERM)
        async with asyncio.timeout(60):
            await lived.over.wait()
    assert lived.code == NOT_RECORDED, lived.log.read_text()
    assert not life_of(lived, place).killed
    (said,) = written(tmp_path / UNRECORDED, Unrecorded)
    assert (said.life, said.run) == (lived.life, f"{id}.1")
