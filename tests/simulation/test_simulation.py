"""A slice of the simulation: some seeds, the same trace for the same seed, and every crash of small scenarios."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.simulation import plan, scenario
from tests.simulation.campaign import Batch, Campaign, singles, strikes
from tests.simulation.case import Case
from tests.simulation.crew import Crew
from tests.simulation.drive import Drive
from tests.simulation.lives import Living
from tests.simulation.loop import ManyLoop, Process
from tests.simulation.plan import Plan, Strike
from tests.simulation.scenario import Scenario

ROOT = Path(__file__).parents[2]
STEPS = {"shared": 4, "common_shared": 6}  # of a long one every so many points; the long form takes all


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """A node that is killed all the time has much to complain of."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def campaign() -> Campaign:
    return Campaign(tell=lambda text: None)


@pytest.mark.parametrize("seed", range(1, 12))
def test_nothing_promised_is_broken_by_what_a_seed_does(campaign: Campaign, seed: int) -> None:
    verdict = campaign.run(Case(seed, ("sparse", "sparse", "dense", "dense_pair")[seed % 4]))
    assert campaign.violations == []
    assert verdict is not None
    assert verdict.faults.total() > 0
    assert verdict.counts["runs"] > 0


@pytest.mark.parametrize("seed", range(1, 5))
def test_nothing_promised_is_broken_in_weeks_with_a_fault_now_and_then(campaign: Campaign, seed: int) -> None:
    verdict = campaign.run(Case(seed, "settled"))
    assert campaign.violations == []
    assert verdict is not None
    assert verdict.faults.total() > 0


def test_what_retention_lets_go_of_is_still_judged() -> None:
    drive = Drive(6, scenario.settled(6, "settled"), plan.drawn(6, shared=False, calm=30.0))
    drive.world.run(drive.main)
    image, dump = drive.world.image, drive.world.history().dump
    assert len(dump.slots) > len(image._slots) > 0  # pyright: ignore[reportPrivateUsage]
    assert len(dump.runs) > len(image._runs) > 0  # pyright: ignore[reportPrivateUsage]
    assert len(dump.tasks) > len(image._tasks) > 0  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", scenario.SMALL)
def test_a_crash_at_any_point_of_a_small_scenario_breaks_nothing(campaign: Campaign, name: str) -> None:
    _all(campaign, singles(0, [name], STEPS.get(name, 1)))
    assert campaign.violations == []
    assert campaign.counts["singles"] == campaign.counts["crashes"] > 50


@pytest.mark.parametrize("name", scenario.STRUCK)
def test_nothing_else_that_strikes_a_small_scenario_breaks_anything(campaign: Campaign, name: str) -> None:
    _all(campaign, strikes(0, [name], 60))
    assert campaign.violations == []
    assert campaign.counts["strikes"] > 20


@pytest.mark.parametrize("case", [Case(7, "dense"), Case(8, "dense_pair"), Case(1, "settled")])
def test_the_same_seed_gives_the_same_trace_in_any_process(campaign: Campaign, case: Case) -> None:
    campaign.repeat(case)
    assert campaign.violations == []
    traces = {_elsewhere(case, hashes) for hashes in ("1", "2")}
    assert traces == {case.run().trace}


def test_a_violation_names_the_line_that_replays_it() -> None:
    case = Case(5, "cycles", (Strike(17), Strike(80, "freeze")))
    assert case.replay == "python -m tests.simulation --seed 5 --scenario cycles --strike 17,freeze@80"
    assert _elsewhere(case, "0") == case.run().trace


def test_a_node_that_ends_while_its_schedulers_are_started_is_started_again() -> None:
    drive = Breaking(0, scenario.small("cycles"), Plan(random.Random(0)))
    drive.world.run(drive.main)
    assert drive.world.violations == []
    assert [one.root.alive for one in drive.world.lives] == [False, True]


def test_schedulers_that_were_stopped_with_their_node_are_started_though_its_next_start_failed() -> None:
    drive = Breaking(0, scenario.small("cycles"), Plan(random.Random(0)), breaks=2)
    drive.world.run(drive.stopped_once)
    assert drive.world.violations == []
    assert len(drive.world.lives) == 3
    definitions = drive.world.history().dump.definitions
    assert {name: definition.should_run for name, definition in definitions.items()} == {"main": True, "beat": True}


def test_a_short_freeze_does_not_end_a_longer_one() -> None:
    loop, process = ManyLoop(0), Process("n0")
    loop.hold(process, 10.0)
    loop.hold(process, 1.0)
    loop.close()
    assert process.still_until == 10.0


class Breaking(Drive):
    """The files of one life of the node break as its schedulers are started, and it ends of that."""

    def __init__(self, seed: int, scenario: Scenario, plan: Plan, *, breaks: int = 1) -> None:
        super().__init__(seed, scenario, plan)
        self._breaks = breaks

    async def stopped_once(self) -> None:
        """The first life is stopped in order."""
        stopping = self.world.loop.create_task(self._stop_first())
        await self.main()
        await stopping

    async def _stop_first(self) -> None:
        await asyncio.sleep(2.0)
        await self._stop(self.world.lives[0])

    async def _start(self, one: Living, name: str, interval: str | None, services: tuple[str, ...]) -> None:
        if one.number == self._breaks:
            one.door.broken = True
            one.root.kill()
        await super()._start(one, name, interval, services)


def _all(campaign: Campaign, batches: Iterable[Batch]) -> None:
    """Each batch in a process of its own, as in the long form."""
    crew = Crew(1)
    for batch in batches:
        crew.begin(batch, float("inf"))
        for _, done in crew.done():
            campaign.add(done.campaign)


def _elsewhere(case: Case, hashes: str) -> str:
    """The trace of it in another process, whose strings have other hashes."""
    words = case.replay.split()[1:]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()[1].rstrip(",")
