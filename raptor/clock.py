"""The only reader of time and the only door to threads.

`SystemClock` is the machine's; `VirtualClock` jumps to the next timer, so that a day passes in a moment.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
import secrets
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast

from raptor.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")


class Clock(ABC):
    """Wall time, monotonic time, and waiting.

    A wait for a wall time is cut into slices of at most `slice_s`, because neither a suspended machine nor
    a wall clock that was set moves the monotonic timers that sleeping rests on.
    """

    slice_s: float
    rng: random.Random
    offset_s: float = 0.0  # that wall time is ahead of the machine's

    @abstractmethod
    def now(self) -> float:
        """Wall time: UTC, seconds since the epoch. It may be set forwards and back."""

    def follow(self, offset_s: float) -> None:
        """Show the time of another clock, which is that much ahead of the machine's."""
        self.offset_s = offset_s

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds that only grow, whatever happens to the wall clock."""

    def new_id(self) -> str:
        """An id that nothing else has. Here, beside the time and the dice, so that a simulation can repeat itself."""
        return secrets.token_hex(8)

    @abstractmethod
    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work off the event loop, in a copy of the caller's context."""

    @abstractmethod
    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a program to its end on an event loop that lives by this clock."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the monotonic clock, never shorter than asked."""
        end = self.monotonic() + seconds
        await asyncio.sleep(seconds)
        while (left := end - self.monotonic()) > 0:
            await asyncio.sleep(left)

    async def sleep_until(self, when: float) -> float:
        """Wait until the wall clock shows `when`, never shorter; -> how far it was set meanwhile."""
        skew = self.now() - self.monotonic()
        while (left := when - self.now()) > 0:
            # Not less than a microsecond: less may be no step at all for the monotonic clock.
            await self.sleep(min(max(left, 1e-6), self.slice_s))
        return self.now() - self.monotonic() - skew


class SystemClock(Clock):
    """The machine's clocks, daemon threads, and uvloop where it is installed."""

    def __init__(self, *, slice_s: float = 1.0, threads: int = 64) -> None:
        self.slice_s = slice_s
        self.rng = random.Random()
        self._threads = Threads(threads)

    def now(self) -> float:
        return time.time() + self.offset_s

    def monotonic(self) -> float:
        return time.monotonic()

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        context = contextvars.copy_context()
        return await self._threads.run(lambda: context.run(work, *args, **kwargs))

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with asyncio.Runner(loop_factory=_fastest_loop()) as runner:
            return runner.run(main())


class VirtualClock(Clock):
    """Time that stands still while anything can run, and jumps to the next timer when nothing can."""

    def __init__(self, *, start: float = 1_000_000_000.0, seed: int = 0, slice_s: float = 30.0) -> None:
        self.slice_s = slice_s
        self.rng = random.Random(seed)
        self._wall_at_zero = start
        self._monotonic = 0.0

    def now(self) -> float:
        return self._wall_at_zero + self._monotonic + self.offset_s

    def monotonic(self) -> float:
        return self._monotonic

    def step(self, seconds: float) -> None:
        """Set the wall clock forwards or back; to a program, a suspended machine looks the same."""
        self._wall_at_zero += seconds

    def jump_to(self, monotonic: float) -> None:
        self._monotonic = max(self._monotonic, monotonic)

    async def offload(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Inline: simulated time must never wait for a real thread. One turn of the loop keeps it a real wait.
        await asyncio.sleep(0)
        return contextvars.copy_context().run(work, *args, **kwargs)

    def run(self, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self)) as runner:
            return runner.run(main())


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that lives by a VirtualClock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        super().__init__(_Jump(self._jump))

    def time(self) -> float:
        return self._clock.monotonic()

    @property
    def clock(self) -> VirtualClock:
        return self._clock

    @property
    def _clock_resolution(self) -> float:
        # How early the loop may run a timer. The least there is: one run early would be armed again for a moment
        # that never comes, because time stands still meanwhile.
        return math.ulp(self._clock.monotonic())

    @_clock_resolution.setter
    def _clock_resolution(self, value: float) -> None:
        pass  # the base class takes the machine's

    def _jump(self) -> None:
        # The exact time of the next timer: adding up differences would stop moving after some simulated years.
        scheduled = cast("list[asyncio.TimerHandle]", getattr(self, "_scheduled"))  # noqa: B009 - not in the stubs
        if not scheduled:
            raise RuntimeError("virtual time stands still: every task waits for something that no timer will bring")
        self._clock.jump_to(scheduled[0].when())


class _Jump(selectors.DefaultSelector):
    """A selector that never waits: where it would, it moves the clock."""

    def __init__(self, jump: Callable[[], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._jump()
        return super().select(0)


async def first_of(*waits: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> None:
    """Wait until one of them is over, or the time is; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
