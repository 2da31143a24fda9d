"""An event loop of many processes in virtual time: they take turns by lot, stand still, and die anywhere.

Whatever is begun in the context of a process belongs to it. What a process has to do is done in the order that asyncio
promises; which process goes next is drawn, as a machine would.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from asyncio import Handle, TimerHandle
from asyncio.base_events import BaseEventLoop
from bisect import insort
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

NEVER = 2**62

HERE: ContextVar[Process] = ContextVar("HERE")


class Process:
    """What dies together."""

    def __init__(self, name: str, number: int = 0) -> None:
        self.name = name
        self.number = number  # no other has it
        self.dead = False
        self.still_until = 0.0  # it stands still, as after SIGSTOP
        self.ready: deque[Handle] = deque()
        self.listed = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.many = 64  # tasks, before those that are done are let go
        self.context = copy_context()
        self.context.run(HERE.set, self)


class ManyLoop(BaseEventLoop):
    """Every step of a process is a point, by number; `at_alarm` is told of the one it asked for, and may strike it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now_s = 0.0
        self.points = 0
        self.alarm = NEVER
        self.at_alarm: Callable[[Process], None] = lambda process: None
        self.surprises: list[str] = []
        self._lot = random.Random(seed)
        self._outside = Process("outside")  # whoever drives the simulation
        self._crowd: list[Process] = []  # those that have something to do, and may
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._numbers = 0
        self._graves: list[list[asyncio.Task[Any]]] = []
        self.set_task_factory(self._make_task)

    # What asyncio asks of a loop

    get_debug = staticmethod(bool)  # type: ignore[assignment]  # False: every handle asks

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        pass  # it is passed over when its time comes

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.surprises.append(f"{context.get('message')}: {error!r}")

    def _make_task(self, loop: Any, work: Any, context: Context | None = None) -> asyncio.Task[Any]:
        process = HERE.get(self._outside) if context is None else context.get(HERE, self._outside)
        assert process is not None
        task = asyncio.Task(work, loop=self, context=context)
        process.tasks.append(task)
        if len(process.tasks) > process.many:
            process.tasks = [task for task in process.tasks if not task.done()]
            process.many = 2 * len(process.tasks) + 64
        return task

    def _run_once(self) -> None:
        crowd, lot = self._crowd, self._lot
        outside = self._outside
        while not self._stopping:  # type: ignore[attr-defined]
            if not crowd:
                self._pass_time()
                continue
            place = 0 if len(crowd) == 1 else int(lot.random() * len(crowd))
            process = crowd[place]
            if process.still_until > self.now_s or process.dead or not process.ready:
                self._unlist(place)
                if process.still_until > self.now_s and not process.dead:
                    self.call_at(process.still_until, self._rise, process, context=outside.context)
                continue
            if process is not outside:
                self.points += 1
                if self.points >= self.alarm:
                    self.at_alarm(process)
                    if process.dead or process.still_until > self.now_s:
                        continue
            handle = process.ready.popleft()
            if not handle._cancelled:  # type: ignore[attr-defined]
                handle._run()

    # Inside

    def _enqueue(self, handle: Handle) -> None:
        process = handle._context.get(HERE, self._outside)  # type: ignore[attr-defined]
        if process.dead:
            return
        process.ready.append(handle)
        if not process.listed:
            self._list(process)

    def _list(self, process: Process) -> None:
        """By number, not by who came first: several hear of something at once, in no order."""
        process.listed = True
        insort(self._crowd, process, key=_number)

    def _unlist(self, place: int) -> None:
        self._crowd.pop(place).listed = False

    def _rise(self, process: Process) -> None:
        if process.ready and not process.listed and not process.dead:
            self._list(process)

    def _pass_time(self) -> None:
        timers = self._timers
        if not timers:
            raise RuntimeError("virtual time stands still: everybody waits for something that no timer will bring")
        self.now_s = max(self.now_s, timers[0][0])
        while timers and timers[0][0] <= self.now_s:
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._enqueue(handle)

    @property
    def outside(self) -> Context:
        """Of whoever is no process."""
        return self._outside.context

    # What may happen to a process

    def kill(self, process: Process) -> None:
        """As kill -9: nothing of it runs any more, nothing is cleaned up."""
        process.dead = True
        process.ready.clear()
        for task in process.tasks:
            asyncio._unregister_task(task)  # whoever looks through all tasks does not see those of the dead
        # Kept: a coroutine that is collected runs its `finally`, and the dead do nothing.
        self._graves.append(process.tasks)

    def hold(self, process: Process, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT so much later."""
        process.still_until = max(process.still_until, self.now_s + seconds)

    def bury(self) -> None:
        """Nothing will be asked any more. It is kept: dropped coroutines run their `finally`, amid anything."""
        for grave in (*self._graves, self._outside.tasks):
            for task in grave:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
        _BURIED.append(self)


_BURIED: list[ManyLoop] = []


def _number(process: Process) -> int:
    return process.number
