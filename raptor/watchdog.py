"""A thread that watches the event loop itself: a handler that blocks it can be seen from nowhere else.

It only tells, and ends nothing: whoever may, such as systemd, gets each sign of life, and none while the loop hangs.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from raptor.actor import Actor
from raptor.errors import RaptorError
from raptor.events import Event
from raptor.exits import Reason
from raptor.runtime import Runtime
from raptor.state.base import Store
from raptor.task import Slot

SLICES = 10
DEBUGGERS = frozenset({"bdb", "pdb", "debugpy", "pydevd", "_pydevd_bundle"})

_log = logging.getLogger("raptor.watchdog")


def _nobody() -> None:
    """Nobody asked for signs of life."""


@dataclass(frozen=True, kw_only=True)
class Watch:
    """How an event loop is watched."""

    limit_s: float = 5.0  # how long it may give no sign of life
    every_s: float | None = None  # how often it is asked for one, at least; None: twice in that time
    on_alive: Callable[[], object] = _nobody  # called for each sign of life, in the thread that watches


WATCH = Watch()


class LoopWatchdog:
    """Asks the loop for a sign of life, and tells where it hangs when none comes for the time of its limit.

    It tells once for each stall, and once when the loop is back. A loop that a debugger holds does not hang.
    """

    def __init__(self, runtime: Runtime, watch: Watch = WATCH) -> None:
        self._runtime = runtime
        self._limit_s = watch.limit_s
        self._every_s = min(watch.limit_s / 2, watch.every_s or watch.limit_s)
        self._on_alive = watch.on_alive
        self._loop_thread = threading.get_ident()
        self._stopped = threading.Event()
        self._alive = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="raptor-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._alive.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._every_s):
            self._alive.clear()
            asked_at = self._runtime.clock.monotonic()
            try:
                self._runtime.loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:
                return  # the loop has closed
            if not self._answers():
                self._sit_out(asked_at)
            if not self._stopped.is_set():
                self._on_alive()

    def _answers(self) -> bool:
        """In slices: a process that was suspended meanwhile has lost one of them, not the time to answer."""
        return any(self._alive.wait(self._limit_s / SLICES) or self._stopped.is_set() for _ in range(SLICES))

    def _sit_out(self, asked_at: float) -> None:
        told = False
        while not self._alive.is_set() and not self._stopped.is_set():
            frame = sys._current_frames().get(self._loop_thread)
            if _is_debugged(frame):
                self._on_alive()
            elif not told:
                told = True
                self._tell(frame, asked_at)
            self._alive.wait(self._every_s)
        if told and not self._stopped.is_set():
            self._runtime.events.emit("loop_resumed", stalled_s=self._runtime.clock.monotonic() - asked_at)

    def _tell(self, frame: FrameType | None, asked_at: float) -> None:
        stalled_s = self._runtime.clock.monotonic() - asked_at
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        # Logged from here: events are delivered by the very loop that hangs.
        _log.error("the event loop has been stuck for %.1f s in:\n%s", stalled_s, stack)
        self._runtime.events.emit("loop_stalled", stalled_s=stalled_s, stack=stack)


class LoopWatch(Actor):
    """Keeps the watchdog of a node, and makes each stall a line of the ledger, once the loop is back to write it."""

    def init(self, watch: Watch, store: Callable[[], Store]) -> None:
        self._store = store
        self._subscription = self.runtime.events.subscribe(self.ref.cast, "loop_resumed")
        self._watchdog = LoopWatchdog(self.runtime, watch)
        self._watchdog.start()

    async def handle_cast(self, message: Event) -> None:
        stalled_s = message.facts["stalled_s"]
        assert isinstance(stalled_s, float)
        line = Slot(
            service="node",
            planned=message.at - stalled_s,
            last=message.at - stalled_s,
            verdict="failed",
            reason=f"the event loop stalled for {stalled_s:.1f} s",
            recorded=message.at,
        )
        try:
            await self._store().record([line], ())
        except RaptorError as error:
            self.runtime.events.emit("store_failing", scheduler="watchdog", error=str(error))

    def terminate(self, reason: Reason) -> None:
        self._watchdog.stop()
        self._subscription.close()


def _is_debugged(frame: FrameType | None) -> bool:
    """Whether somebody looks into the loop: with a debugger of Python, by its frames, or with one of the system."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DEBUGGERS:
            return True
        frame = frame.f_back
    return _is_traced()


def _is_traced(status: Path = Path("/proc/self/status")) -> bool:
    try:
        text = status.read_text(errors="replace")
    except OSError:
        return False
    return "TracerPid:" in text and text.partition("TracerPid:")[2].split()[:1] not in ([], ["0"])
