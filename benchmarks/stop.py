"""Stopping a supervisor with few and with many children: the time is to grow as their number does."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter

from benchmarks import otp
from benchmarks.counters import Counter
from benchmarks.report import OTP, RAPTOR, Figures, Result, Target, Value, spec
from benchmarks.rounds import fast, interleave, loops, ratio, run
from raptor.childspec import ChildSpec
from raptor.dynamic import DynamicSupervisor
from raptor.exits import Exit
from raptor.ref import Ref
from raptor.runtime import Runtime
from raptor.supervisor import Supervisor, start_child

FEW, MANY = 1_000, 10_000


async def static(runtime: Runtime, count: int) -> Ref | None:
    return await runtime.start(Supervisor, [ChildSpec(id=number, start=Counter) for number in range(count)])


async def dynamic(runtime: Runtime, count: int) -> Ref | None:
    supervisor = await runtime.start(DynamicSupervisor, ChildSpec(id="counter", start=Counter))
    assert supervisor is not None
    for _ in range(count):
        await start_child(supervisor)
    return supervisor


KINDS = {"Supervisor": static, "DynamicSupervisor": dynamic}


async def turn(start: Callable[[Runtime, int], Awaitable[Ref | None]], count: int) -> float:
    """-> the seconds that stopping them took."""
    supervisor = await start(Runtime(log=False), count)
    assert supervisor is not None
    started = perf_counter()
    await supervisor.stop(Exit.SHUTDOWN)
    return perf_counter() - started


async def compete(rounds: int) -> dict[str, list[float]]:
    turns = {f"{kind} {count}": partial(turn, start, count) for kind, start in KINDS.items() for count in (FEW, MANY)}
    return await interleave(turns, rounds)


def measure(quick: bool) -> Result:
    rounds = 1 if quick else 15
    loop, factory = list(loops().items())[-1]
    took = run(factory, compete(rounds))
    of_otp = otp.measure("stop", rounds, FEW, MANY)
    result = Result()
    for kind in KINDS:
        result.targets += targets(kind, loop, took, of_otp)
        for count in (FEW, MANY):
            ours, its = fast(took[f"{kind} {count}"]), otp.fast(of_otp, f"{kind}_{count}")
            values: dict[str, Value] = {RAPTOR: ours * 1000, OTP: its if isinstance(its, str) else its * 1000}
            what = f"{kind}, stop {count:,} children"
            result.figures.append(Figures(subject="stop", what=what, loop=loop, unit="ms", values=values))
    return result


def targets(kind: str, loop: str, took: dict[str, list[float]], of_otp: otp.Samples | None) -> Iterator[Target]:
    growth = ratio(took[f"{kind} {MANY}"], took[f"{kind} {FEW}"])
    its = None if of_otp is None else ratio(of_otp[f"{kind}_{MANY}"], of_otp[f"{kind}_{FEW}"])
    for limit, ids in ((12.0, ()), (50.0, spec("otp-77"))):
        yield Target(
            subject="stop",
            what=f"{kind}, stop {MANY:,} / {FEW:,} children",
            loop=loop,
            value=growth.fast,
            middle=growth.middle,
            unit="x",
            at_most=limit,
            otp=its.fast if its else otp.ABSENT,
            spec=ids,
        )
