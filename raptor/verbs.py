"""The commands of a node as methods, for a program that embeds one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from raptor.commands import perform
from raptor.site import Site
from raptor.timing import show_seconds

GRACE_S = 30.0


class Verbs:
    """What a Node performs on its site."""

    site: Site
    grace_s: float

    async def call(self, command: str, **params: Any) -> dict[str, Any]:
        """Perform a command of the table."""
        return await perform(self.site, command, params)

    async def start(self, name: str, interval: str | timedelta | None = None) -> dict[str, Any]:
        """Start a scheduler; `interval` is how often it checks, "auto" (the default) wakes when something is due."""
        given = show_seconds(interval.total_seconds()) if isinstance(interval, timedelta) else interval
        return await self.call("start", name=name, interval=given)

    async def schedule(self, name: str, services: Sequence[str]) -> dict[str, Any]:
        """Set the services of a scheduler; "name=24h" gives one its own interval."""
        return await self.call("schedule", name=name, services=list(services))

    async def status(self, name: str | None = None) -> dict[str, Any]:
        return await self.call("status", name=name)

    async def stop(self, name: str) -> dict[str, Any]:
        return await self.call("stop", name=name, grace_s=self.grace_s)

    async def pause(self, name: str, note: str = "") -> dict[str, Any]:
        return await self.call("pause", name=name, note=note)

    async def resume(self, name: str) -> dict[str, Any]:
        return await self.call("resume", name=name)

    async def run(self, service: str) -> dict[str, Any]:
        """Run one service now."""
        return await self.call("run", service=service)
