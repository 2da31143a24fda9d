"""One lane: the task that works on one unit, and how its work is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raptor.task import Outcome, Result

INTERRUPTED = Result(outcome=Outcome.INTERRUPTED, info="interrupted")


class Lane:
    """What a runner sees of the lane that it runs in."""

    __slots__ = ("_leave", "cancelled", "insist", "left", "task")

    def __init__(self, leave: Callable[[Result], None]) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.cancelled = False  # by us
        self.left = False
        self.insist: Callable[[], None] | None = None  # the runner's, for work that may ignore its cancellation
        self._leave = leave

    def cancel(self) -> None:
        """End the work. It is recorded as interrupted."""
        if not self.cancelled and self.task is not None:
            self.cancelled = True
            self.task.cancel()
            if self.insist is not None:
                self.insist()

    def leave(self, result: Result) -> None:
        """Go on without work that cannot be ended: this is its result, whatever comes of it later."""
        self.left = True
        self._leave(result)


async def by_itself(work: Callable[[Lane], Any]) -> Result:
    """Work in a lane of its own, outside of any turn."""
    over: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    lane = Lane(lambda result: None if over.done() else over.set_result(result))
    task = lane.task = asyncio.get_running_loop().create_task(work(lane))

    def end(ended: asyncio.Task[Result]) -> None:
        if over.done():
            return
        if ended.cancelled():
            over.cancel()
        elif (error := ended.exception()) is not None:
            over.set_exception(error)
        else:
            over.set_result(ended.result())

    task.add_done_callback(end)
    try:
        return await asyncio.shield(over)
    except asyncio.CancelledError:
        if not over.done():
            lane.cancel()
            await asyncio.wait({over})
        raise
