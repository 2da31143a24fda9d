"""The wall clock for whoever needs no other: raptor.clock brings an event loop along."""

from __future__ import annotations

import time


class WallClock:
    """The machine's time: UTC, seconds since the epoch."""

    def now(self) -> float:
        return time.time()
