"""How many starts a rate allows: a sliding window, never exceeded, in few entries. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

GRAIN = 64  # entries of a window, at most: more would only cost

Starts: TypeAlias = list[tuple[float, int]]
"""(time, how many), the oldest first. Those of one grain are merged at the latest time, which only ever delays."""


_decoder = msgspec.json.Decoder(Starts)


class Allowance(NamedTuple):
    """How many may start now, and when there will be more."""

    starts: int
    more_at: float


def allowance(starts: Sequence[tuple[float, int]], now: float, rate: int, per_s: float) -> Allowance:
    window = recent(starts, now, per_s)
    left = rate - sum(count for _, count in window)
    return Allowance(max(left, 0), (window[0][0] if window else now) + per_s)


def started(starts: Sequence[tuple[float, int]], now: float, count: int, per_s: float) -> Starts:
    """The window after so many more starts."""
    window = recent(starts, now, per_s)
    grain = per_s / GRAIN
    # Grains stand still: one that began with its first start could grow for ever, and hold all of them back.
    while window and count and window[-1][0] // grain == now // grain:
        count += window.pop()[1]
    return [*window, (now, count)] if count else window


def noted(text: str) -> Starts | None:
    """Starts that were kept as JSON; None for what cannot be read: then all of a rate counts as used up."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def recent(starts: Sequence[tuple[float, int]], now: float, per_s: float) -> Starts:
    """What still counts. A clock that was set back moves what lies ahead to now; keep that, or it stays ahead."""
    return [(min(at, now), count) for at, count in starts if at + per_s > now]
