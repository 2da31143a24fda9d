"""Short turns for everybody, again and again: on a busy machine only short and neighbouring ones can be compared."""

import asyncio
import gc
import statistics
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Turn: TypeAlias = Callable[[], Awaitable[T]]
LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]


def loops() -> dict[str, LoopFactory]:
    """The event loops there are; Raptor takes the last."""
    found: dict[str, LoopFactory] = {"asyncio": asyncio.SelectorEventLoop}
    try:
        import uvloop
    except ImportError:
        return found
    return found | {"uvloop": uvloop.new_event_loop}


def run(loop: LoopFactory, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


async def interleave(turns: Mapping[str, Turn[T]], rounds: int) -> dict[str, list[T]]:
    """A turn for each in every round, each time from another one on; the first round warms up and is left out."""
    names = list(turns)
    found: dict[str, list[T]] = {name: [] for name in names}
    gc.collect()
    gc.freeze()  # what was imported is nobody's garbage
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            gc.collect()  # nobody cleans up after another
            answer = await turns[name]()
            if number:
                found[name].append(answer)
    gc.unfreeze()
    return found


def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Turn[T]:
    """A turn of work that blocks: the event loop stays free, so that a node on it does not seem to hang."""
    return lambda: asyncio.to_thread(work, *args, **kwargs)


def fast(times: Sequence[float]) -> float:
    """What the fastest tenth of the rounds stays within: other work on the machine only ever makes a round slower."""
    return times[0] if len(times) == 1 else statistics.quantiles(times, n=10, method="inclusive")[0]


@dataclass(frozen=True)
class Ratio:
    """How many times one is another."""

    fast: float  # by the fastest tenth of the rounds of each
    middle: tuple[float, float] | None  # where half of the rounds lay, each compared within itself


def ratio(one: Sequence[float], other: Sequence[float]) -> Ratio:
    ratios = [a / b for a, b in zip(one, other, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (0.0, 0.0, 0.0)
    return Ratio(fast(one) / fast(other), (low, high) if len(ratios) > 1 else None)


def percentile(samples: Sequence[float], percent: int) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[percent - 1]
