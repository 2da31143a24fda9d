"""Running a coroutine step by step in the lane's own task: one that waits for nothing costs neither task nor timer.

One that waits is under guard: it is cancelled when its time is over, then closed, and left behind if it ignores both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any

from raptor.lane import INTERRUPTED, Lane
from raptor.task import Outcome, Result

CANCEL_GRACE_S = 1.0
CLOSE_GRACE_S = 0.1
LEFT = "it ignores its cancellation and was left running: it may overlap with the next run"


class TimedOut(Exception):
    """The work took longer than it may."""


class OwnCancel(Exception):
    """The work cancelled its own task, or raised as if somebody had: the cause."""


class Steps:
    """The rest of a coroutine that has begun to wait, as something to await."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waited: Any, task: asyncio.Task[Any]) -> None:
        self.own = False  # it cancelled its own task
        self._coroutine = coroutine
        self._waited = waited
        self._task = task

    def __await__(self) -> Generator[Any, Any, Any]:
        waited, task, coroutine = self._waited, self._task, self._coroutine
        while True:
            sent, caught = None, None
            try:
                sent = yield waited
            except BaseException as error:  # what the task throws in: a cancellation
                caught = error
            asked = task.cancelling()
            try:
                waited = coroutine.send(sent) if caught is None else coroutine.throw(caught)
            except StopIteration as end:
                return end.value
            finally:
                self.own = self.own or task.cancelling() > asked


class Guard:
    """Sees to the end of work that waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], lane: Lane, limit_s: float | None) -> None:
        self.timed_out = False
        self._coroutine = coroutine
        self._lane = lane
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer = None if limit_s is None else self._loop.call_later(limit_s, self._expire)
        lane.insist = self._insist

    def lift(self) -> None:
        self._lane.insist = None
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self.timed_out = True
        self._cancel()
        self._insist()

    def _insist(self) -> None:
        self.lift()
        self._timer = self._loop.call_later(CANCEL_GRACE_S, self._close)

    def _close(self) -> None:
        """Raise GeneratorExit in it, which passes where CancelledError was caught."""
        try:
            self._coroutine.close()
        except BaseException:
            pass  # it catches everything
        self._cancel()
        self._timer = self._loop.call_later(CLOSE_GRACE_S, self._leave)

    def _leave(self) -> None:
        if self.timed_out:
            why = f"timed out after {self._limit_s:g} s; {LEFT}"
            self._lane.leave(Result(outcome=Outcome.TIMED_OUT, info=why, error=why))
        else:
            self._lane.leave(INTERRUPTED)

    def _cancel(self) -> None:
        if self._lane.task is not None:
            self._lane.task.cancel()


async def follow(
    coroutine: Coroutine[Any, Any, Any], waited: Any, lane: Lane, limit_s: float | None, *, asked: int
) -> Any:
    """What a coroutine that has begun to wait returns or raises.

    TimedOut when its time is over, CancelledError if we were cancelled. `asked`: how often that was before it began.
    """
    task = lane.task
    assert task is not None
    rest, guard = Steps(coroutine, waited, task), Guard(coroutine, lane, limit_s)
    rest.own = task.cancelling() > asked
    value, error = None, None
    try:
        value = await rest
    except BaseException as caught:
        error = caught
    guard.lift()
    if guard.timed_out:
        raise TimedOut from error
    if lane.cancelled:
        raise asyncio.CancelledError from error
    if error is None:
        if rest.own:
            raise OwnCancel from await absorbed()
        return value
    if isinstance(error, asyncio.CancelledError) and (rest.own or not task.cancelling()):
        raise OwnCancel from error
    raise error


async def absorbed() -> asyncio.CancelledError:
    """The cancellation that waits for the task's next step."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as error:
        return error
    return asyncio.CancelledError()
