"""Spans of time, and which of them meet. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """From `since` to `until`, both included."""

    since: float
    until: float


class Spans:
    """Spans that do not meet: those that do, or leave a gap of at most `gap`, are one."""

    def __init__(self, spans: Iterable[tuple[float, float]], gap: float = 0.0) -> None:
        merged: list[Span] = []
        for since, until in sorted(spans):
            if merged and since <= merged[-1].until + gap:
                merged[-1] = Span(merged[-1].since, max(merged[-1].until, until))
            else:
                merged.append(Span(since, until))
        self.spans = merged
        self._starts = [span.since for span in merged]

    def meeting(self, since: float, until: float) -> Span | None:
        """The last span that meets this one."""
        place = bisect_right(self._starts, until) - 1
        if place < 0 or self.spans[place].until < since:
            return None
        return self.spans[place]
