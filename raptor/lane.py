"""One lane: the task that works on one unit, and how its work is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from raptor.task import Outcome, Result

INTERRUPTED = Result(outcome=Outcome.INTERRUPTED, info="interrupted")


class Lane(msgspec.Struct, eq=False):
    """What a runner sees of the lane that it runs in."""

    task: asyncio.Task[Any] | None = None
    cancelled: bool = False  # by us
    left: bool = False
    insist: Callable[[], None] | None = None  # the runner's, for work that may ignore its cancellation

    def cancel(self) -> None:
        """End the work, or have it not begin. It is recorded as interrupted."""
        if not self.cancelled:
            self.cancelled = True
            if self.task is not None:
                self.task.cancel()
            if self.insist is not None:
                self.insist()

    def leave(self, result: Result) -> None:
        """Go on without work that cannot be ended: this is its result, whatever comes of it later."""
        self.left = True


class OwnLane(Lane, kw_only=True, eq=False):
    """A lane outside of any turn."""

    over: asyncio.Future[Result]

    def leave(self, result: Result) -> None:
        super().leave(result)
        if not self.over.done():
            self.over.set_result(result)

    def end(self, ended: asyncio.Task[Result]) -> None:
        if self.over.done():
            return
        if ended.cancelled():
            self.over.cancel()
        elif (error := ended.exception()) is not None:
            self.over.set_exception(error)
        else:
            self.over.set_result(ended.result())


async def by_itself(work: Callable[[Lane], Coroutine[Any, Any, Result]]) -> Result:
    """Work in a lane of its own."""
    loop = asyncio.get_running_loop()
    lane = OwnLane(over=loop.create_future())
    task = lane.task = loop.create_task(work(lane))
    task.add_done_callback(lane.end)
    try:
        return await asyncio.shield(lane.over)
    except asyncio.CancelledError:
        if not lane.over.done():
            lane.cancel()
            await asyncio.wait({lane.over})
        raise
