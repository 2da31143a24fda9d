"""The services of a torture: each writes into the ledger when it starts, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenacity import wait_fixed

from raptor.clock import SystemClock
from raptor.runners import Context
from raptor.service import Service, make_service, service
from raptor.testing.checker.history import Asked, Command, Fault, Line, What
from raptor.testing.torture.writing import append

LEDGER, COMMANDS, FAULTS, LIFE = "TORTURE_LEDGER", "TORTURE_COMMANDS", "TORTURE_FAULTS", "TORTURE_LIFE"
"""Variables that say where to write, and in which life of a node."""

TRIES = 15  # fewer than the tries that a row remembers
SOON = wait_fixed(0.05)
LONG_S = 300.0  # longer than any torture

now = SystemClock().now


def note(what: What, ctx: Context, asked: Asked = "") -> None:
    task, dot, fence = ctx.run_id.partition(".")
    is_task = bool(dot) and ctx.scheduler is None
    line = Line(
        what=what, run=ctx.run_id, service=ctx.service, scheduler=ctx.scheduler, attempt=ctx.attempt,
        life=int(os.environ[LIFE]), pid=os.getpid(), planned=ctx.planned, at=now(), asked=asked,
        task=int(task) if is_task else None, fence=int(fence) if is_task else 0,
    )  # fmt: skip
    append(os.environ[LEDGER], line)


@contextmanager
def noted(ctx: Context, asked: Asked = "") -> Generator[None]:
    note("start", ctx)
    try:
        yield
    except asyncio.CancelledError:
        note("cut", ctx)
        raise
    except BaseException:
        note("fail", ctx)
        raise
    note("end", ctx, asked)


def chance(ctx: Context, one_in: int) -> bool:
    """The same answer for every attempt of a slot or a task."""
    return zlib.crc32(ctx.key.encode()) % one_in == 0


# That another process can import: these run apart when their node has died


@service(max_attempts=TRIES, backoff=SOON)
async def named(ctx: Context) -> str:
    with noted(ctx):
        await asyncio.sleep(0.02)
    return "fine"


@service(max_attempts=TRIES, backoff=SOON, isolate=True)
def apart(ctx: Context) -> int:
    with noted(ctx):
        time.sleep(0.05)
        return os.getpid()


@service(max_attempts=TRIES, backoff=SOON, isolate=True)
def poison(ctx: Context) -> None:
    """It kills its own process, each time."""
    note("start", ctx)
    append(os.environ[FAULTS], Fault(what="child", at=now(), life=int(os.environ[LIFE]), pid=os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


@service(max_attempts=TRIES, backoff=SOON)
async def lengthy(ctx: Context) -> None:
    """Until somebody ends it, unless it was told to be short."""
    with noted(ctx):
        await asyncio.sleep(0 if "TORTURE_SHORT" in os.environ else LONG_S)


@service(max_attempts=TRIES, backoff=SOON, isolate=True)
def lengthy_apart(ctx: Context) -> None:
    with noted(ctx):
        time.sleep(0 if "TORTURE_SHORT" in os.environ else LONG_S)


@service(max_attempts=TRIES, backoff=SOON)
async def held(ctx: Context) -> str:
    """Until somebody makes the file."""
    with noted(ctx):
        while not Path(os.environ[LEDGER]).with_name("go").exists():
            await asyncio.sleep(0.01)
    return "held"


def periodic_apart(ctx: Context) -> None:
    with noted(ctx):
        time.sleep(0.02)


def of_tasks() -> list[Service]:
    """Functions that no other process can import: they run in the node whatever happened."""

    async def quick(ctx: Context) -> str:
        with noted(ctx):
            await asyncio.sleep(0.03)
        return "fine"

    def threaded(ctx: Context) -> None:
        with noted(ctx):
            time.sleep(0.02)

    async def flaky(ctx: Context) -> str:
        with noted(ctx):
            if ctx.attempt < 1:
                raise RuntimeError("the first time it fails")
        return "fine"

    async def doomed(ctx: Context) -> None:
        with noted(ctx):
            raise RuntimeError("it always fails")

    async def undecided(ctx: Context) -> object:
        """Asks to be run again, once."""
        assert ctx.task is not None
        if ctx.task.previous is None:
            with noted(ctx, "again"):
                return ctx.again(in_s=0.1)
        with noted(ctx):
            return None

    async def family(children: int, ctx: Context) -> list[int]:
        """Puts tasks, and acknowledges each when the call has returned."""
        with noted(ctx):
            placed: list[int] = []
            for _ in range(children):
                asked = now()
                child = await ctx.put("quick")
                placed.append(child.id)
                command = Command(what="put", at=asked, acked=now(), task=child.id, service="quick", new=child.new)
                append(os.environ[COMMANDS], command)
        return placed

    made = [(function, TRIES) for function in (quick, threaded, flaky, undecided, family)]
    return [
        Service(name=function.__name__, function=function, max_attempts=tries, backoff=SOON)
        for function, tries in [*made, (doomed, 2)]
    ]


def periodic(name: str, **options: Any) -> Service:
    """A service with a time of its own: most runs are fine, some fail once, few always."""

    async def function(ctx: Context) -> str:
        with noted(ctx):
            await asyncio.sleep(0.005)
            if chance(ctx, 23) or (ctx.attempt == 1 and chance(ctx, 5)):
                raise RuntimeError("it happens")
        return "fine"

    return make_service(name, {"function": function, "backoff": SOON, "max_attempts": 3, **options})


MAIN = [
    periodic("by_slot", every_s=0.4),
    periodic("by_grid", every_s=0.5, anchor="grid"),
    periodic("by_end", every_s=0.3, anchor="end"),
    periodic("careful", every_s=0.6, on_crash="skip"),
    periodic("makes_up", every_s=0.5, missed="all", missed_limit=3),
    periodic("lets_go", every_s=0.5, missed="skip"),
    periodic("minutely", cron="* * * * *"),
    make_service("apart_too", {"function": periodic_apart, "every_s": 4.0, "isolate": True}),
]
SIDE = [periodic("beat"), periodic("waits", overlap="queue")]
SCHEDULES: dict[str, tuple[str | None, list[str]]] = {
    "main": ("auto", [one.name for one in MAIN]),
    "side": ("700ms", [one.name for one in SIDE]),
}
"""Schedulers: how often each looks, and its services."""

TASKS = [named, apart, poison, lengthy, lengthy_apart, held, *of_tasks()]
SERVICES: list[Any] = [*TASKS, *MAIN, *SIDE]
