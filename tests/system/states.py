"""State directories for tests: opening, filling, looking."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import msgspec

from raptor.clock import Clock
from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.state.files import FileStore, ReadStore
from raptor.state.home import Home
from raptor.task import Outcome, Run, Slot

ROOT = Path(__file__).parents[2]  # where a program of a test is run, so that it finds `tests`
FILES = ("service_timing.sqlite", "scheduler_state.sqlite", "raptor.sqlite")


@contextmanager
def owned(path: Path, clock: Clock, **options: bool) -> Iterator[Home]:
    home = Home.open(path, clock, **options)
    try:
        yield home
    finally:
        home.close()


@asynccontextmanager
async def opened(path: Path, clock: Clock, **options: bool) -> AsyncIterator[FileStore]:
    with owned(path, clock, **options) as home:
        store = FileStore(home)
        try:
            yield store
        finally:
            await store.close()


@asynccontextmanager
async def looked_at(path: Path) -> AsyncIterator[ReadStore]:
    store = ReadStore(Home.read(path))
    try:
        yield store
    finally:
        await store.close()


async def fill(path: Path, clock: Clock, count: int = 50) -> None:
    """`count` services with their timing, a run and a slot each; a definition and an open cycle."""
    async with opened(path, clock) as store:
        await store.save([("service_timing", f"service {n:04}", timing(n)) for n in range(count)])
        await store.save([("scheduler_state", "main", STATE), ("definitions", "main", DEFINITION)])
        await store.record([slot(n) for n in range(count)], [run(n) for n in range(count)])


def timing(number: int) -> ServiceTiming:
    return ServiceTiming(next_due=float(number), last_info=f"info {number} " * 5)


def large(number: int) -> ServiceTiming:
    """Two of them fill a page."""
    return ServiceTiming(next_due=float(number), last_info=f"info {number} " * 150)


def run(number: int) -> Run:
    at = float(number)
    return Run(
        id=f"run {number:04}", service="a", scheduler="main", planned=at, attempt=1, start=at, outcome=Outcome.OK
    )


def slot(number: int) -> Slot:
    return Slot(service="a", planned=float(number), last=float(number), verdict="done", recorded=0.0)


STATE = SchedulerState(cycle="c", slot=1.0, started=1.0, services_queue=("b", "c"), current_service="a")
STARTED = msgspec.structs.replace(STATE, current_run=run(0))  # with it, a run begins
DEFINITION = Definition(name="main", interval_s=60.0)


def ask(file: Path, query: str) -> list[tuple[object, ...]]:
    """As anyone may with the sqlite3 shell."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
