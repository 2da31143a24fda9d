"""kill -9 of the owner of a scheduler, again and again: another takes over in time, and never are there two.

RAPTOR_KILLS says how many kills of nodes there are, 40 if it is not set; half as many owners are killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from raptor.clock import SystemClock
from raptor.rows import LEASE_S
from raptor.state.opening import open_store
from raptor.task import Outcome
from tests.system.cli import eventually
from tests.system.states import ROOT

KILLS = int(os.environ.get("RAPTOR_KILLS", "40")) // 2
GROUPS = 4  # schedulers that lose their owner at the same time, each with a store of its own


@dataclass(frozen=True)
class Line:
    """What the service wrote."""

    what: str
    key: str
    pid: int
    at: float

    @classmethod
    def read(cls, text: str) -> Line:
        what, key, pid, at = text.split()
        return cls(what, key, int(pid), float(at))


class Group:
    """Two nodes, of which one owns the scheduler."""

    def __init__(self, folder: Path, store: str) -> None:
        folder.mkdir()
        self.store = store
        self.killed: dict[int, float] = {}  # pid, and the last that it wrote
        self._folder = folder
        self._ledger = folder / "ledger"
        self._nodes: dict[int, subprocess.Popen[str]] = {}
        self._count = 0
        for _ in range(2):
            self.start()

    def start(self) -> None:
        self._count += 1
        words = ["tests.system.kill_owner", str(self._folder / f"home{self._count}"), self.store, str(self._ledger)]
        node = subprocess.Popen([sys.executable, "-m", *words], cwd=ROOT, text=True, stdout=subprocess.PIPE)
        self._nodes[node.pid] = node

    def lines(self) -> list[Line]:
        return [Line.read(line) for line in self._ledger.read_text().splitlines()] if self._ledger.exists() else []

    def owner(self) -> int | None:
        """Who wrote last, unless it was killed."""
        lines = self.lines()
        return lines[-1].pid if lines and lines[-1].pid not in self.killed else None

    def kill_owner(self) -> None:
        owner = eventually(self.owner, "nobody owns the scheduler")
        node = self._nodes.pop(owner)
        node.kill()
        node.communicate()
        self.killed[owner] = max(line.at for line in self.lines() if line.pid == owner)
        self.start()

    def close(self) -> None:
        for node in self._nodes.values():
            node.kill()
            node.communicate()
        self._nodes.clear()

    def complaints(self) -> list[str]:
        return [*self._two_owners(), *self._nobody(), *self._repeated(), *self._ledger_of_the_store()]

    def _two_owners(self) -> Iterator[str]:
        """Whoever has lost it never runs again, and nobody begins while another runs."""
        owners: list[int] = []
        running: Line | None = None
        for line in self.lines():
            if not owners or line.pid != owners[-1]:
                if line.pid in owners:
                    yield f"{line.pid} runs again after another did"
                if running is not None and running.pid not in self.killed:
                    yield f"{line.pid} runs while {running.pid} does"
                if owners and owners[-1] not in self.killed:
                    yield f"{line.pid} runs, and {owners[-1]} was not killed"
                owners.append(line.pid)
            running = line if line.what == "begin" else None

    def _nobody(self) -> Iterator[str]:
        for before, after in pairwise(self.lines()):
            if after.at - before.at > LEASE_S:
                yield f"nobody ran anything for {after.at - before.at} s"

    def _repeated(self) -> Iterator[str]:
        """A slot is run again only if whoever ran it was killed meanwhile."""
        begun: dict[str, list[int]] = {}
        for line in self.lines():
            if line.what == "begin":
                begun.setdefault(line.key, []).append(line.pid)
        for key, pids in begun.items():
            if any(pid not in self.killed for pid in pids[:-1]) or len(set(pids)) < len(pids):
                yield f"{key} was run by {pids}"

    def _ledger_of_the_store(self) -> Iterator[str]:
        async def read() -> tuple[Counter[float], Counter[float]]:
            async with open_store(self.store) as store:
                slots = await store.slots("tick", since=0, until=1e12, limit=10_000)
                runs = await store.history("tick", limit=10_000)
            done = Counter(run.planned for run in runs if run.outcome is Outcome.OK)
            return Counter(slot.planned for slot in slots if slot.verdict == "done"), done

        slots, done = SystemClock().run(read)
        for planned, count in (slots | done).items():
            if count > 1:
                yield f"the slot of {planned} was done {count} times"
        ended = {line.key for line in self.lines() if line.what == "end"}
        if len(slots) > len(ended):
            yield f"{len(slots)} slots are done, for {len(ended)} runs that ended"


@pytest.fixture
def groups(tmp_path: Path, server_url: str) -> Iterator[list[Group]]:
    joint = "&" if "?" in server_url else "?"
    names = [f"raptor_owners_{os.getpid()}_{number}" for number in range(min(GROUPS, max(KILLS, 1)))]
    made = [Group(tmp_path / name, f"{server_url}{joint}schema={name}") for name in names]
    yield made
    for group in made:
        group.close()
    with psycopg.connect(server_url, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())


@pytest.mark.timeout(180 + KILLS * 30)
@pytest.mark.spec("001-56")
def test_a_scheduler_whose_owner_is_killed_has_another_in_time_and_never_two(groups: list[Group]) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for first in range(0, KILLS, len(groups)):
        for group in rng.sample(groups, min(len(groups), KILLS - first)):
            group.kill_owner()
    for group in groups:
        eventually(group.owner, "nobody owns the scheduler")
        group.close()
        assert group.complaints() == []
        assert len(group.killed) >= KILLS // len(groups)
