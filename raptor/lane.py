"""One lane: the task that works on one unit, and how its work is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from raptor.task import Outcome, Result

INTERRUPTED = Result(outcome=Outcome.INTERRUPTED, info="interrupted")


class Lane:
    """What a runner sees of the lane that it runs in."""

    __slots__ = ("cancelled", "insist", "left", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.cancelled = False  # by us
        self.left = False
        self.insist: Callable[[], None] | None = None  # the runner's, for work that may ignore its cancellation

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


class OwnLane(Lane):
    """A lane outside of any turn."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        super().__init__()
        self.over: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

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
    lane = OwnLane()
    task = lane.task = asyncio.get_running_loop().create_task(work(lane))
    task.add_done_callback(lane.end)
    try:
        return await asyncio.shield(lane.over)
    except asyncio.CancelledError:
        if not lane.over.done():
            lane.cancel()
            await asyncio.wait({lane.over})
        raise
