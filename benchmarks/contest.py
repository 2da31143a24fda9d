"""Messages to one actor of each kind, in turns; call.py and cast.py say what a turn is."""

import importlib.util
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TypeAlias

from benchmarks import otp
from benchmarks.counters import AsyncCounter, Counter
from benchmarks.floors import Peer, PykkaPeer, QueueActor, cores, kept_on
from benchmarks.report import OTP, PYKKA, PYKKA_APART, QUEUE, RAPTOR, RAPTOR_ASYNC, Figures, Result, Target, Value
from benchmarks.rounds import Turn, fast, interleave, loops, ratio, run
from raptor.runtime import Runtime

MessageTurn: TypeAlias = Callable[[Peer, int], Awaitable[float]]
"""Send so many messages, within about a time slice of the system; -> seconds for each."""

Times: TypeAlias = dict[str, list[float]]
"""Seconds for a message in each round, by contestant."""


def no_pykka() -> str | None:
    """Why it cannot be measured."""
    if not importlib.util.find_spec("pykka"):
        return "run make bench"
    return None if hasattr(os, "sched_setaffinity") else "needs Linux"


NO_PYKKA = no_pykka()


async def compete(turn: MessageTurn, quick: bool) -> Times:
    rounds, messages = (20, 200) if quick else (500, 400)
    runtime = Runtime(log=False)
    plain, with_async = await runtime.start(Counter), await runtime.start(AsyncCounter)
    assert plain is not None
    assert with_async is not None
    queue = QueueActor()
    turns: dict[str, Turn[float]] = {
        RAPTOR: partial(turn, plain, messages),
        RAPTOR_ASYNC: partial(turn, with_async, messages),
        QUEUE: partial(turn, queue, messages),
    }
    with ExitStack() as stack:
        stack.callback(queue.task.cancel)
        if NO_PYKKA is None:
            # So slow that as many messages would take its neighbours out of reach.
            turns.update(pykka_turns(turn, messages // 10, stack))
        return await interleave(turns, rounds)


def pykka_turns(turn: MessageTurn, messages: int, stack: ExitStack) -> Iterator[tuple[str, Turn[float]]]:
    """Where the kernel puts its threads makes a difference of many times, so both cases are made on purpose."""
    here, *others = cores()
    for who, there in ((PYKKA, here), *((PYKKA_APART, core) for core in others[:1])):
        peer = PykkaPeer(there)
        stack.callback(peer.stop)
        yield who, partial(turn_on, here, turn, peer, messages)


async def turn_on(core: int, turn: MessageTurn, peer: Peer, messages: int) -> float:
    with kept_on(core):
        return await turn(peer, messages)


def contest(subject: str, turn: MessageTurn, quick: bool, least: dict[str, float]) -> Result:
    """The result of a subject; `least` is how many times each floor Raptor is to be at least."""
    result = Result()
    otp_s = otp.fast(otp.measure(subject, *((20, 500) if quick else (500, 1000))), subject)
    for loop, factory in loops().items():
        took = run(factory, compete(turn, quick))
        rates: dict[str, Value] = {who: 1 / fast(times) for who, times in took.items()}
        rates.setdefault(PYKKA, NO_PYKKA)
        rates.setdefault(PYKKA_APART, NO_PYKKA or "needs 2 cores")
        rates[OTP] = otp_s if isinstance(otp_s, str) else 1 / otp_s
        result.figures.append(Figures(subject=subject, what=subject, loop=loop, unit="/s", values=rates))
        for floor, limit in least.items():
            result.targets += targets(subject, loop, took, floor, limit, otp_s)
    return result


def targets(subject: str, loop: str, took: Times, floor: str, limit: float, otp_s: float | str) -> Iterator[Target]:
    for who, kind in ((RAPTOR, "plain"), (RAPTOR_ASYNC, "async")):
        measured = ratio(took[floor], took[who]) if floor in took else None
        its: Value = otp_s
        if not isinstance(otp_s, str):
            its = fast(took[floor]) / otp_s if measured else None
        yield Target(
            subject=subject,
            what=f"{subject}, {kind} handler / {floor}",
            loop=loop,
            value=measured.fast if measured else NO_PYKKA or "needs 2 cores",
            middle=measured.middle if measured else None,
            unit="x",
            at_least=limit,
            otp=its,
        )
