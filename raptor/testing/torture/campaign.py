"""A torture as a whole: one round after another until the time is over, each judged, and the verdict on all of them."""

from __future__ import annotations

import asyncio
import random
import secrets
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from raptor.clock import Clock, SystemClock
from raptor.state.opening import open_store
from raptor.testing.checker import History, check
from raptor.testing.checker.history import Line, write
from raptor.testing.torture.nemesis import Server
from raptor.testing.torture.node import LANES
from raptor.testing.torture.own import Own
from raptor.testing.torture.plan import plan_of
from raptor.testing.torture.round import Round
from raptor.testing.torture.services import SCHEDULES

ROUND_S = 40.0  # of torture in a round
SHORTEST_S = 2.0  # that are worth a round
LANES_IN_ALL = LANES + len(SCHEDULES)
HARMS = ("kills", "children", "stops", "terms", "server_kills")
COUNTED = (*HARMS, "unrecorded", "runs", "acks", "repeats", "rounds", "standstills")


class Found(msgspec.Struct, frozen=True):
    """One violation."""

    seed: int  # of its round
    kind: str
    text: str
    folder: str  # where its history is

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} [round {self.seed}, {self.folder}]"


@dataclass
class Campaign:
    """`store` is the address of a PostgreSQL, `server` is there if it is ours to kill; without, files in the folder."""

    seed: int
    seconds: float
    folder: Path
    clock: Clock
    store: str | None = None
    server: Server | None = None
    own: Own | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    found: list[Found] = field(default_factory=list[Found])
    stage: str = ""

    async def run(self, hear: Callable[[], None], stop: asyncio.Event) -> None:
        """Until the time is over or `stop` is set: what was begun is judged then as well. `hear`: there is news."""
        end = self.clock.monotonic() + self.seconds
        seeds = random.Random(self.seed)
        while not self.counts["rounds"] or (end - self.clock.monotonic() > SHORTEST_S and not stop.is_set()):
            # The last quarter is for what is left to do.
            until = self.clock.monotonic() + min(ROUND_S, 0.75 * (end - self.clock.monotonic()))
            await self._round(seeds.randrange(2**32), lambda: stop.is_set() or self.clock.monotonic() > until, hear)  # noqa: B023

    async def _round(self, seed: int, enough: Callable[[], bool], hear: Callable[[], None]) -> None:
        before = Counter(self.counts)

        def told(counts: Counter[str]) -> None:
            self.counts = before + counts
            hear()

        folder = self.folder / f"round-{seed}"
        plan = plan_of(seed, shared=self.store is not None)
        async with scratch_schema(self.store, self.clock) as store:
            one = Round(plan, folder, self.clock, store=store, server=self.server, services=self.own)
            history = await one.run(enough, told)
        await self.clock.offload(self._judge, seed, one, history, folder)
        self.counts["rounds"] += 1
        hear()

    def _judge(self, seed: int, one: Round, history: History, folder: Path) -> None:
        repeats, harm = repeated(history.lines), sum(self.counts[harm] for harm in HARMS)
        self.counts["repeats"] += repeats
        found = [Found(seed, "node", text, str(folder)) for text in one.complaints]
        found += [Found(seed, wrong.kind, f"{wrong.subject}: {wrong.text}", str(folder)) for wrong in check(history)]
        if self.counts["repeats"] > harm * LANES_IN_ALL:
            text = f"{self.counts['repeats']} repeats, for {harm} disturbances of {LANES_IN_ALL} lanes"
            found.append(Found(seed, "extra", text, str(folder)))
        self.found += found
        if found:
            write(folder / "history", history.records)
        else:
            shutil.rmtree(folder)


@asynccontextmanager
async def scratch_schema(store: str | None, clock: Clock) -> AsyncGenerator[str | None]:
    """The address of a schema of its own, which goes again."""
    if store is None:
        yield None
        return
    schema = f"raptor_torture_{secrets.token_hex(4)}"
    base = store.partition("?")[0]
    rest = [option for option in store.partition("?")[2].split("&") if option and not option.startswith("schema=")]
    address = f"{base}?{'&'.join([*rest, f'schema={schema}'])}"
    async with open_store(address, SystemClock()):  # what is wrong with it is said before anything starts
        pass
    try:
        yield address
    finally:
        await clock.offload(_drop, "?".join([base, *(["&".join(rest)] if rest else [])]), schema)


def _drop(address: str, schema: str) -> None:
    import psycopg

    from raptor.state.postgres.address import read

    with psycopg.connect(read(address).url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def repeated(lines: tuple[Line, ...]) -> int:
    """How often work began anew whose run before had neither failed nor asked for it."""
    last: dict[object, Line] = {}
    repeats = 0
    for line in lines:
        work = line.task if line.task is not None else (line.service, line.planned)
        before = last.get(work)
        if line.what == "start" and before is not None and before.what != "fail" and not before.asked:
            repeats += 1
        if line.what == "start" or (before is not None and before.run == line.run):
            last[work] = line
    return repeats
