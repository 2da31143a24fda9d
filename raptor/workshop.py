"""What the schedulers and workers of a node work with.

Light to import: a command that only reads needs neither a runner nor the engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raptor.unrecorded import Pending

if TYPE_CHECKING:
    import asyncio

    from raptor.company import Company
    from raptor.resources import Resource
    from raptor.rows import Definition, Line
    from raptor.runners import Runner
    from raptor.service import Service
    from raptor.timetable import Timetable
    from raptor.turn import Logs


@dataclass
class Workshop:
    """What schedulers and workers work with. It is filled before they start, and outlives each of them."""

    timetable: Timetable
    runners: Mapping[str, Runner]
    logs: Logs
    catalogue: Mapping[str, Service] = field(default_factory=dict[str, "Service"])
    definitions: dict[str, Definition] = field(default_factory=dict[str, "Definition"])
    _plain: dict[str, Line] = field(default_factory=dict[str, "Line"], repr=False)
    lines: dict[str, Line] = field(default_factory=dict[str, "Line"])
    owner: str = field(default_factory=lambda: os.urandom(8).hex())  # this process, as leases name it
    company: Company | None = None  # the other nodes of a shared store
    asked: set[str] = field(default_factory=set[str])  # schedulers that this node was asked to start
    keep_done: bool = True  # tasks that are done stay for a while
    held: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Tasks, and the fences by which this process has taken them and not yet settled."""
    unrecorded: Pending = field(default_factory=Pending)
    resources: Mapping[str, Resource] = field(default_factory=dict[str, "Resource"])
    turns: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])  # the latest of each

    def line(self, name: str) -> Line:
        """How a queue is set: as it was asked for, or by default."""
        known = self.lines.get(name) or self._plain.get(name)
        if known is None:
            from raptor.rows import Line

            known = self._plain[name] = Line(name=name)
        return known
