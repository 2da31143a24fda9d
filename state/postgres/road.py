"""A road: calls that wait, and the lanes on which they go, whichever is free first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from raptor.state.postgres.address import Address
from raptor.state.postgres.lane import Call, Lane

T = TypeVar("T")


class Road:
    def __init__(
        self,
        address: Address,
        role: str,
        ready: Callable[[], Awaitable[None]],
        opened: Callable[[int], None],
        lanes: int = 1,
    ) -> None:
        self._waiting: list[Call[Any]] = []
        self._lanes = [Lane(address, role, self._waiting, ready, opened, self._wake_one) for _ in range(lanes)]

    @property
    def commits(self) -> int:
        return sum(lane.commits for lane in self._lanes)

    def ask(self, call: Call[T]) -> asyncio.Future[T]:
        if not any(lane.joins(call) for lane in self._lanes):
            self._waiting.append(call)
            if len(self._waiting) == 1:  # for all that come before it sets out, one lane is enough
                self._wake_one()
        return call.future

    async def close(self) -> None:
        for lane in self._lanes:
            await lane.close()

    def _wake_one(self) -> None:
        """The first that is free; if none is, the first that will be goes on by itself."""
        for lane in self._lanes:
            if lane.is_at_rest:
                lane.wake()
                return
