"""Runs of a service whose process is kept, one after another."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from raptor.clock import Clock, SystemClock
from raptor.runners import Closing
from raptor.service import Service
from raptor.task import Outcome, Result
from tests.system.hostile import kept
from tests.unit.runs import Trial, gone, left_behind


class Series:
    """Runs of a service, one runner for all, closed at the end."""

    def __init__(self, clock: Clock, function: Any = kept.work, **options: Any) -> None:
        self.clock = clock
        chosen: dict[str, Any] = {"count": 1000, **options}
        self.service = Service(name="kept", function=function, isolate=True, **chosen)
        self.runner = Trial(clock, self.service).runner
        self.ids: list[str] = []

    async def __aenter__(self) -> Series:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()
        for run_id in self.ids:
            assert left_behind(run_id) == {}

    async def close(self) -> None:
        assert isinstance(self.runner, Closing)
        await self.runner.close()

    def trial(self, data: Any = None, path: Path | None = None, **context: Any) -> Trial:
        trial = Trial(self.clock, self.service, path, data=data, **context)
        trial.runner = self.runner
        self.ids.append(trial.context.run_id)
        return trial

    async def run(self, data: Any = None, path: Path | None = None, **context: Any) -> Result:
        return await self.trial(data, path, **context).run()

    async def one(self, data: Any = None) -> list[int]:
        """A run that goes well; -> its process, and which of its runs it was."""
        result = await self.run(data)
        assert result.outcome is Outcome.OK, result
        found: list[int] = json.loads(result.info)
        return found

    async def stays_after(self, data: str) -> bool:
        """Whether the process that did this takes the next run, which goes well in any case."""
        before, _ = await self.one()
        await self.run(data)
        after, _ = await self.one()
        return before == after


class Shifted(SystemClock):
    """A clock whose time can be moved on."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


async def has_gone(pid: int) -> bool:
    return await asyncio.to_thread(gone, pid)
