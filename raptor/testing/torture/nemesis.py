"""The nemesis: does to nodes, to the processes of their services and to the server what the plan says, and logs it."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Protocol

from raptor.clock import Clock
from raptor.testing.checker.history import Fault
from raptor.testing.torture.lives import Lived, Lives
from raptor.testing.torture.node import NOT_RECORDED, Place
from raptor.testing.torture.plan import Plan, choose, named_point

GRACE_S = 5.0  # what an orderly stop may take beyond its own grace
POINT_S = 0.8  # until a named point is passed, or will not be
CUT_S = 0.2  # on average, until an orderly stop is broken off: about as long as one takes
CHILD_S = 1.5  # until a service has a process of its own
POLL_S = 0.01
BACK_S = 2.0  # for which a store has been back before a node that stops must have recorded what it had
AGAIN_S = 0.2  # before one that could not start is started again
TAIL = 300  # characters of a log
MOST = 5  # complaints about nodes, before a round is given up


class Server(Protocol):
    """A database server that is ours to kill."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Nemesis:
    """There is a node at each place; `seen` is told of each life that was killed."""

    def __init__(
        self,
        plan: Plan,
        lives: Lives,
        places: Sequence[Place],
        clock: Clock,
        seen: Callable[[Lived], Awaitable[None]],
        server: Server | None = None,
        stood_still: Callable[[float, float], bool] = lambda since, until: False,
    ) -> None:
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._plan = plan
        self._lives = lives
        self._places = places
        self._clock = clock
        self._seen = seen
        self._server = server
        self._stood_still = stood_still  # the machine, between two times
        self._nodes: dict[int, Lived] = {}
        self._stop_asked: Callable[[], bool] = lambda: False
        self._outages: list[tuple[float, float]] = []
        self._freezes: list[tuple[float, float]] = []

    async def torment(self, enough: Callable[[], bool]) -> None:
        """Until it is enough; then every node has begun anew, undisturbed."""
        self._stop_asked = enough
        await self._begin(0).ready.wait()  # who comes first says what is to run
        await self._kill(self._nodes[0])
        haunts = [self._haunt(number) for number in range(len(self._places))]
        if self._server is not None:
            haunts.append(self._haunt_server(self._server))
        await asyncio.gather(*haunts)
        await asyncio.gather(*(self._settle(number) for number in self._nodes))

    async def stop(self) -> None:
        """An orderly end of all."""
        await asyncio.gather(*(self._term(lived) for lived in self._nodes.values() if not lived.over.is_set()))

    # A node

    async def _haunt(self, number: int) -> None:
        rng = random.Random(f"{self._plan.seed} {number}")
        while not self._is_enough():
            deed = choose(self._plan, rng)
            env = {"RAPTOR_FAULT": named_point(rng)} if deed == "point" else {}
            lived = self._begin(number, env)
            if rng.random() < 0.8:  # else perhaps while it starts
                await lived.ready.wait()
            while not lived.over.is_set() and not self._is_enough():
                await self._do(deed, lived, rng)
                deed = choose(self._plan, rng)
            if not lived.over.is_set() and "RAPTOR_FAULT" in env:
                await self._kill(lived)
            if not lived.over.is_set():
                return
            if rng.random() < 0.05:
                await self._clock.sleep(rng.uniform(0.1, 1.5))

    async def _settle(self, number: int) -> None:
        """Have it run, now that nobody disturbs it."""
        lived = self._nodes[number]
        while True:
            if lived.over.is_set():
                lived = self._begin(number)
            await lived.ready.wait()
            if not lived.over.is_set() or self._is_hopeless:
                return
            await self._judge_end(lived)

    @property
    def _is_hopeless(self) -> bool:
        """Whether nodes end by themselves again and again."""
        return len(self.complaints) >= MOST

    def _is_enough(self) -> bool:
        return self._stop_asked() or self._is_hopeless

    def _begin(self, number: int, env: dict[str, str] | None = None) -> Lived:
        self._nodes[number] = lived = self._lives.begin(self._places[number], env)
        return lived

    async def _do(self, deed: str, lived: Lived, rng: random.Random) -> None:
        wait_s = rng.expovariate(1 / self._plan.mean_s)
        match deed:
            case "point":
                await self._within(lived, POINT_S)
                await self._kill(lived)
            case "child" | "both":
                await self._kill_child(lived, rng, both=deed == "both")
            case "stop":
                if not await self._within(lived, wait_s):
                    await self._freeze(lived, rng)
            case "term":
                if not await self._within(lived, wait_s) and lived.ready.is_set():
                    await self._term(lived)
            case "cut":
                if not await self._within(lived, wait_s) and lived.ready.is_set():
                    await self._cut(lived, rng)
            case _:
                await self._within(lived, wait_s)
                await self._kill(lived)

    async def _within(self, lived: Lived, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        if not await self._is_over(lived, seconds):
            return False
        await self._judge_end(lived)
        return True

    async def _judge_end(self, lived: Lived) -> None:
        """It ended by itself: at a named point, or because it could not start without a server."""
        if lived.code == -signal.SIGKILL:
            return
        if not self._could_not_start(lived):
            self._complain(lived, "ended by itself")
        await self._clock.sleep(AGAIN_S)

    def _could_not_start(self, lived: Lived) -> bool:
        """Whether it ended before it was ready, and the server was away meanwhile, or the machine stood still."""
        if lived.was_ready:
            return False
        ended = self._clock.now() if lived.ended is None else lived.ended
        is_away = any(at <= ended and until >= lived.began for at, until in self._outages)
        return is_away or self._stood_still(lived.began, ended)

    async def _kill(self, lived: Lived) -> None:
        if not await self._was_killed(lived):
            await self._judge_end(lived)

    async def _was_killed(self, lived: Lived) -> bool:
        """Kill it: whether it was there to be killed."""
        self._lives.signal(lived, signal.SIGKILL)
        await lived.over.wait()
        if lived.code != -signal.SIGKILL:
            return False
        assert lived.ended is not None
        self.faults.append(Fault(what="kill", at=lived.ended, life=lived.life))
        self.counts["kills"] += 1
        await self._seen(lived)
        return True

    async def _kill_child(self, lived: Lived, rng: random.Random, *, both: bool) -> None:
        """That of an isolated service, once there is one."""
        end, found = self._clock.monotonic() + CHILD_S, list[int]()
        while not lived.over.is_set() and not (found := children(lived.pid)):
            if self._clock.monotonic() > end:
                return
            await asyncio.sleep(POLL_S)
        if lived.over.is_set():
            return
        await self._clock.sleep(rng.uniform(0, 0.3))  # it imports, or runs
        at, pid = self._clock.now(), rng.choice(found)
        if kill_child(pid, lived.pid):
            self.faults.append(Fault(what="child", at=at, life=lived.life, pid=pid))
            self.counts["children"] += 1
        if both:
            await self._kill(lived)

    async def _freeze(self, lived: Lived, rng: random.Random) -> None:
        at, place = self._clock.now(), len(self._freezes)
        self._freezes.append((at, math.inf))
        self._lives.signal(lived, signal.SIGSTOP)
        await self._clock.sleep(rng.uniform(*self._plan.stop_s))
        self._lives.signal(lived, signal.SIGCONT)
        self._freezes[place] = at, self._clock.now()
        self.faults.append(Fault(what="freeze", at=at, until=self._clock.now(), life=lived.life))
        self.counts["stops"] += 1

    async def _term(self, lived: Lived) -> None:
        place = lived.work
        assert isinstance(place, Place)
        patience_s = place.grace_s + GRACE_S
        is_stopped = await self._is_stopped(lived, patience_s)
        while not is_stopped and self._stood_still(self._clock.now() - patience_s, self._clock.now()):
            is_stopped = await self._is_over(lived, patience_s)
        if is_stopped:
            self._judge_stop(lived)
        else:
            self._complain(lived, f"did not stop within {patience_s} s of SIGTERM")
            await self._kill(lived)

    async def _cut(self, lived: Lived, rng: random.Random) -> None:
        """Tell it to stop, and kill it while it does."""
        if await self._is_stopped(lived, rng.expovariate(1 / CUT_S)) or not await self._was_killed(lived):
            self._judge_stop(lived)

    async def _is_stopped(self, lived: Lived, within_s: float) -> bool:
        """Tell it to stop: whether it has in that time."""
        lived.stopping = self._clock.now()
        self._lives.signal(lived, signal.SIGTERM)
        self.counts["terms"] += 1
        return await self._is_over(lived, within_s)

    async def _is_over(self, lived: Lived, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await lived.over.wait()
        except TimeoutError:
            return False
        return True

    def _judge_stop(self, lived: Lived) -> None:
        if lived.code == NOT_RECORDED and self._was_hindered(lived):
            self.counts["unrecorded"] += 1
        elif lived.code != 0 and not self._could_not_start(lived):
            self._complain(lived, "stopped")

    def _was_hindered(self, lived: Lived) -> bool:
        """Whether the store was away when it ended, or somebody stood still, who may have had a lock in it."""
        assert lived.ended is not None
        since, until = lived.ended - BACK_S, lived.ended
        assert isinstance(lived.work, Place)
        holds = [*self._outages, *(self._freezes if lived.work.store is not None else ())]
        return any(at <= until and end >= since for at, end in holds) or self._stood_still(since, until)

    # The server

    async def _haunt_server(self, server: Server) -> None:
        rng = random.Random(f"{self._plan.seed} server")
        while not self._is_enough():
            await self._clock.sleep(self._plan.server_s + rng.expovariate(1.0))
            at = self._clock.now()
            self._outages.append((at, math.inf))
            await self._clock.offload(server.kill)
            await self._clock.sleep(rng.choice((0.0, 0.0, 0.5)))
            await self._clock.offload(server.start)
            self._outages[-1] = at, self._clock.now()
            self.faults.append(Fault(what="outage", at=at, until=self._clock.now()))
            self.counts["server_kills"] += 1

    def _complain(self, lived: Lived, what: str) -> None:
        said = lived.log.read_text(errors="replace").split("\n") if lived.log.exists() else []
        last = next((line for line in reversed(said) if line.strip()), "")
        self.complaints.append(f"life {lived.life} {what} with {lived.code}: {last[:TAIL]}")


def children(pid: int | None) -> list[int]:
    """Processes of isolated services of a node. Where there is no /proc nobody is found."""
    found: list[int] = []
    for file in glob(f"/proc/{pid}/task/*/children"):
        try:
            found += map(int, Path(file).read_text().split())
        except OSError:
            continue
    return found


def kill_child(pid: int, parent: int | None) -> bool:
    """Whether it was still a child of the node: no stranger is killed."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if pid not in children(parent):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
