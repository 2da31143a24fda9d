"""What is asked for before it is known that there will be room for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from raptor.task import Task


class Prospect(NamedTuple):
    """Of a take."""

    sure: asyncio.Future[bool]  # whether there will be room
    found: Callable[[Sequence[Task]], None] | None = None  # may be shown what it will give, to prepare for it; or not


async def is_sure(prospect: Prospect | None) -> bool:
    """As soon as it is known; it goes on if whoever asks does not wait any longer."""
    return prospect is None or await asyncio.shield(prospect.sure)
