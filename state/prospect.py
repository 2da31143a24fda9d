"""Whether there will be room for what is asked for."""

from __future__ import annotations

import asyncio


async def is_sure(sure: asyncio.Future[bool] | None) -> bool:
    """As soon as it is known; it goes on if whoever asks does not wait any longer."""
    return sure is None or await asyncio.shield(sure)
