"""Damage to any file: refused with advice, repaired with a report, or harmless; never another state in silence."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.errors import RefusedState
from raptor.state import anchor
from raptor.state.home import Home
from raptor.state.repair import repair
from tests.damage.campaign import Campaign, scratch
from tests.damage.harms import FRAME, LOG_HEAD, Harm, cuts, flips, sectors, whole_files
from tests.damage.homes import Case, prepare
from tests.damage.judge import HARMLESS, REPAIRED
from tests.system.cli import RAPTOR
from tests.system.states import FILES, change

SAMPLE = 40


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def cases(place: Path) -> dict[str, Case]:
    return {case.name: case for case in prepare(place)}


@pytest.fixture
def campaign(place: Path) -> Campaign:
    return Campaign(place)


@pytest.mark.timeout(240)
async def test_no_file_can_be_lost_or_exchanged_in_silence(
    cases: dict[str, Case], campaign: Campaign, system_clock: Clock
) -> None:
    outcomes = {str(harm): await campaign.harm(cases["closed"], harm) for harm in whole_files(cases["closed"])}
    outcomes |= {str(harm): await campaign.harm(cases["killed"], harm) for harm in logs_alone(cases["killed"])}
    assert campaign.violations == []
    for name in FILES:
        for kind in ("gone", "empty", "text", "folder", "older", "others", "stranger", "sibling", "older-without-log"):
            assert outcomes[f"{kind}:{name}:0:0"] == REPAIRED
        assert outcomes[f"gone:{name}-wal:0:0"] == REPAIRED
    assert outcomes["gone:heads:0:0"] == outcomes["gone:reserve:0:0"] == HARMLESS


def logs_alone(case: Case) -> Iterator[Harm]:
    return (harm for harm in whole_files(case) if harm.file.endswith("-wal"))


@pytest.mark.parametrize("name", ["closed", "killed"])
@pytest.mark.parametrize("kind", ["cut", "sector", "flip"])
@pytest.mark.timeout(240)
async def test_nothing_that_is_cut_or_overwritten_changes_what_is_read(
    cases: dict[str, Case], campaign: Campaign, system_clock: Clock, name: str, kind: str
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    case = cases[name]
    all_of_them = list({"cut": cuts, "sector": sectors}[kind](case) if kind != "flip" else flips(case, rng))
    for harm in rng.sample(all_of_them, min(SAMPLE, len(all_of_them))):
        await campaign.harm(case, harm)
    assert campaign.violations == [], f"seed {seed}"


async def test_what_a_damaged_page_of_a_log_brings_back_is_told(
    cases: dict[str, Case], campaign: Campaign, system_clock: Clock
) -> None:
    """A record that was deleted later stood on it."""
    name = "scheduler_state.sqlite-wal"
    size = (cases["killed"].path / name).stat().st_size
    for frame in range(LOG_HEAD, size, FRAME):
        await campaign.harm(cases["killed"], Harm("flip", name, frame + 24 + 100))
    assert campaign.violations == []


def test_a_task_that_is_no_text_any_more_is_shown_among_the_others(place: Path, cases: dict[str, Case]) -> None:
    home = shutil.copytree(cases["closed"].path, place / "no text")
    content = (home / "raptor.sqlite").read_bytes()
    (home / "raptor.sqlite").write_bytes(content.replace(b"t16 long", b"t16 l\xffng", 1))
    shown = subprocess.run([*RAPTOR, "tasks", "--json", "--home", str(home)], capture_output=True, check=True)
    data = {str(task["data"]).split(" ")[0]: task["data"] for task in json.loads(shown.stdout)["tasks"]}
    assert data["t16"].startswith("t16 l\ufffdng long ")
    assert len(data) == sum(key.startswith("task/") for key in cases["closed"].records)


def test_a_task_in_no_state_that_there_is_is_refused_to_who_only_looks(place: Path, cases: dict[str, Case]) -> None:
    home = shutil.copytree(cases["closed"].path, place / "no state")
    change(home / "raptor.sqlite", "UPDATE task SET state = 'reedy' WHERE id = 7")
    done = subprocess.run([*RAPTOR, "tasks", "--home", str(home)], capture_output=True, text=True, check=False)
    assert done.returncode == 6
    assert "task 7 is in no state that there is: 'reedy'; run `raptor state repair`" in done.stderr


@pytest.mark.parametrize("at", [0, 21, 42])
def test_a_head_that_nobody_could_reach_is_no_head(place: Path, cases: dict[str, Case], at: int) -> None:
    home = shutil.copytree(cases["closed"].path, place / f"heads {at}")
    Harm("flip", "heads", at).do(cases["closed"], home)
    assert len(anchor.read_heads(home)) == 2


async def test_a_stamp_that_forgot_ids_of_tasks_is_refused_and_they_are_not_given_again(
    place: Path, cases: dict[str, Case], campaign: Campaign, system_clock: Clock
) -> None:
    case = cases["closed"]
    known = anchor.read(case.path)
    assert known is not None
    content = (case.path / "raptor.sqlite").read_bytes()
    last = content.index(known.state.encode()) + 33  # the last byte of the stamp
    assert content[last] == case.last_id
    harm = Harm("flip", "raptor.sqlite", last, 4)
    home = shutil.copytree(case.path, place / "forgot")
    harm.do(case, home)
    with pytest.raises(RefusedState, match="says that 0 was the last"):
        Home.open(home, system_clock)
    assert repair(home, system_clock).lost == []
    assert await campaign.harm(case, harm) == REPAIRED
    assert campaign.violations == []
