"""A restart: from the moment a handler raises to the `init` of the next incarnation."""

import asyncio
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from time import perf_counter

from benchmarks import otp
from benchmarks.floors import CrashingQueueActor
from benchmarks.report import OTP, QUEUE, RAPTOR, Figures, Result, Target, Value
from benchmarks.rounds import interleave, loops, percentile, run
from raptor.actor import Actor
from raptor.childspec import ChildSpec
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor

LOGS = ("off", "on")


class Stopwatch:
    """Told of every crash and every start."""

    def __init__(self) -> None:
        self.crashed_at = 0.0
        self.samples: list[float] = []
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def crashing(self) -> None:
        self.crashed_at = perf_counter()

    def started(self) -> None:
        self.samples.append((perf_counter() - self.crashed_at) * 1e6)
        if not self.up.done():
            self.up.set_result(None)

    async def next(self) -> None:
        """Wait for a start."""
        self.up = asyncio.get_running_loop().create_future()
        await self.up

    def take(self) -> list[float]:
        """The microseconds of each restart so far."""
        taken, self.samples = self.samples, []
        return taken


class Crashing(Actor):
    def init(self, watch: Stopwatch) -> None:
        watch.started()
        self.watch = watch

    def handle_cast(self, message: object) -> None:
        self.watch.crashing()
        raise RuntimeError("crash")


async def supervise(runtime: Runtime) -> Stopwatch:
    watch = Stopwatch()
    child = ChildSpec(id="crashing", name="crashing", start=Crashing, args=(watch,))
    await runtime.start(Supervisor, [child], intensity=10**9, period_s=1.0)
    return watch


async def crash(runtime: Runtime, watch: Stopwatch, times: int) -> list[float]:
    watch.take()
    for _ in range(times):
        ref = runtime.whereis("crashing")
        assert ref is not None
        ref.cast(None)
        await watch.next()
    return watch.take()


async def crash_queue_actor(times: int) -> list[float]:
    """The least that can be called a supervisor: a callback that makes the next."""
    watch = Stopwatch()
    current: list[CrashingQueueActor] = []

    def start(ended: asyncio.Task[None] | None = None) -> None:
        if ended is not None:
            ended.exception()
        watch.started()
        current[:] = [CrashingQueueActor(watch.crashing)]
        current[0].task.add_done_callback(start)

    start()
    watch.take()
    for _ in range(times):
        current[0].cast(None)
        await watch.next()
    current[0].task.remove_done_callback(start)
    current[0].task.cancel()
    return watch.take()


@contextmanager
def log_to_nowhere() -> Generator[None]:
    """Every report is formatted and written, and nobody has to read it."""
    log = logging.getLogger("raptor")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        handler = logging.StreamHandler(nowhere)
        log.addHandler(handler)
        log.propagate = False
        yield
        log.removeHandler(handler)
        log.propagate = True


async def compete(rounds: int, times: int) -> dict[str, list[list[float]]]:
    turns = {QUEUE: partial(crash_queue_actor, times)}
    for log in LOGS:
        runtime = Runtime(log=log == "on")
        turns[log] = partial(crash, runtime, await supervise(runtime), times)
    with log_to_nowhere():
        return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    rounds, times = (5, 50) if quick else (100, 100)
    result = Result()
    of_otp = otp.measure("restart", rounds * times)
    for loop, factory in loops().items():
        found = run(factory, compete(rounds, times))
        samples = {who: [sample for turn in turns for sample in turn] for who, turns in found.items()}
        for log in LOGS:
            for percent in (50, 99):
                add(result, loop, log, percent, samples, of_otp)
    return result


def add(
    result: Result, loop: str, log: str, percent: int, samples: dict[str, list[float]], of_otp: otp.Samples | None
) -> None:
    what = f"restart p{percent}, log {log}"
    ours, its = percentile(samples[log], percent), otp.percentile(of_otp, f"log_{log}", percent)
    values: dict[str, Value] = {RAPTOR: ours, OTP: its}
    if log == "off":
        values[QUEUE] = percentile(samples[QUEUE], percent)
    result.figures.append(Figures(subject="restart", what=what, loop=loop, unit="us", values=values))
    if percent == 50:
        result.targets.append(
            Target(subject="restart", what=what, loop=loop, value=ours, unit="us", at_most=100.0, otp=its)
        )
