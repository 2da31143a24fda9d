"""A thread that watches the event loop itself: a handler that blocks it can be seen from nowhere else."""

from __future__ import annotations

import logging
import sys
import threading
import traceback

from raptor.runtime import Runtime

_log = logging.getLogger("raptor.watchdog")


class LoopWatchdog:
    """Asks the loop for a sign of life, and tells where it hangs when none comes for `limit_s`.

    It tells once for each stall, and once when the loop is back. It cannot end what blocks the loop.
    """

    def __init__(self, runtime: Runtime, limit_s: float = 5.0) -> None:
        self._runtime = runtime
        self._limit_s = limit_s
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
        while not self._stopped.wait(self._limit_s / 2):
            self._alive.clear()
            asked_at = self._runtime.clock.monotonic()
            try:
                self._runtime.loop.call_soon_threadsafe(self._alive.set)
            except RuntimeError:
                return  # the loop has closed
            if not self._alive.wait(self._limit_s):
                self._tell_stall(asked_at)

    def _tell_stall(self, asked_at: float) -> None:
        clock, events = self._runtime.clock, self._runtime.events
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        # Logged from here: events are delivered by the very loop that hangs.
        _log.error("the event loop has been stuck for %.1f s in:\n%s", clock.monotonic() - asked_at, stack)
        events.emit("loop_stalled", stalled_s=clock.monotonic() - asked_at, stack=stack)
        self._alive.wait()
        if not self._stopped.is_set():
            events.emit("loop_resumed", stalled_s=clock.monotonic() - asked_at)
