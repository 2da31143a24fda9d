"""The herald: calls a service's `on_failure` when one of its slots fails, is missed, or works again.

One message for the final verdict of a slot, never for a try; a summary at the end of a cycle in which something failed;
and no more than so many a minute.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, TypeAlias, cast

import msgspec

from raptor.actor import Actor
from raptor.address import read_url
from raptor.errors import RaptorError
from raptor.events import Event
from raptor.exits import Reason
from raptor.rows import Recorded
from raptor.runners import Context
from raptor.runners.exchange import Request, exchange
from raptor.runners.output import RunLog
from raptor.service import Service
from raptor.task import Outcome, Run, Slot
from raptor.workshop import Workshop

Target: TypeAlias = str | tuple[str, ...]
Facts: TypeAlias = dict[str, Any]

TIMEOUT_S = 10.0
WINDOW_S = 60.0


class Herald(Actor):
    """Listens to the schedulers' events and tells whoever asked to be told."""

    def init(self, workshop: Workshop, per_minute: int) -> None:
        self._workshop = workshop
        self._per_minute = per_minute
        self._sent: deque[float] = deque()
        self.dropped = 0
        heard = ("slot_closed", "service_ended", "cycle_done")
        self._subscription = self.runtime.events.subscribe(self._hear, *heard)

    def _hear(self, event: Event) -> None:
        """Nearly all that happens went well, and is no message of its own."""
        match event.facts:
            case {"slot": Slot(verdict=verdict)} if verdict not in ("failed", "missed"):
                pass
            case {"recovered": False}:
                pass
            case _:
                self.ref.cast(event)

    async def handle_cast(self, message: Event) -> None:
        match message.name, message.facts:
            case "slot_closed", {"slot": Slot(verdict="failed" | "missed") as slot}:
                await self._tell_slot(slot)
            case "service_ended", {"recovered": True, "run": Run() as run}:
                await self._tell(run.service, {"event": "recovered", **msgspec.to_builtins(run)})
            case "cycle_done", {"scheduler": scheduler, "took_s": took_s}:
                results = cast("tuple[Recorded, ...]", message.facts["results"])
                await self._tell_cycle(scheduler, results, took_s)
            case _:
                pass

    def terminate(self, reason: Reason) -> None:
        self._subscription.close()

    async def _tell_slot(self, slot: Slot) -> None:
        await self._tell(slot.service, {"event": slot.verdict, **msgspec.to_builtins(slot)})

    async def _tell_cycle(self, scheduler: object, results: tuple[Recorded, ...], took_s: object) -> None:
        """The whole cycle in one message, to those whose services failed in it."""
        failed = [result for result in results if result.verdict == "failed"]
        targets = {self._target(result.service) for result in failed} - {None}
        lines = [f"{r.service} {'OK' if r.verdict == 'done' else 'FAILED'}" for r in results]
        done = sum(result.verdict == "done" for result in results)
        facts: Facts = {
            "event": "summary",
            "scheduler": scheduler,
            "total": len(results),
            "success": done,
            "failed": len(results) - done,
            "duration_s": took_s,
            "services": lines,
            "text": f"Total {len(results)} | Success {done} | Failed {len(results) - done} | " + " | ".join(lines),
        }
        for target in targets:
            if target is not None:
                await self._send(target, facts)

    async def _tell(self, service: str, facts: Facts) -> None:
        target = self._target(service)
        if target is not None:
            await self._send(target, {"text": f"{service}: {facts['event']}", **facts})

    def _target(self, service: str) -> Target | None:
        known = self._workshop.catalogue.get(service)
        return None if known is None else known.on_failure

    async def _send(self, target: Target, facts: Facts) -> None:
        now = self.runtime.clock.monotonic()
        while self._sent and self._sent[0] <= now - WINDOW_S:
            self._sent.popleft()
        if len(self._sent) >= self._per_minute:
            self.dropped += 1
            self.runtime.events.emit("message_dropped", service=facts.get("service"), per_minute=self._per_minute)
            return
        self._sent.append(now)
        problem = await (self._post(target, facts) if isinstance(target, str) else self._run(target, facts))
        if problem:
            self.runtime.events.emit("message_failed", target=str(target), error=problem)

    async def _post(self, url: str, facts: Facts) -> str | None:
        """To the operator's own URL, wherever that is; a redirect is not followed."""
        try:
            request = Request("POST", read_url(url), {"Content-Type": "application/json"}, msgspec.json.encode(facts))
            secure = request.url.origin.scheme == "https"
            tls = await self.runtime.clock.offload(ssl.create_default_context) if secure else None
            async with asyncio.timeout(TIMEOUT_S):
                reply = await exchange(request, lambda address: None, tls)
        except TimeoutError:
            return f"no reply within {TIMEOUT_S:g} s"
        except RaptorError as error:
            return str(error)
        return None if 200 <= reply.status < 300 else reply.line

    async def _run(self, argv: tuple[str, ...], facts: Facts) -> str | None:
        """A command, with the facts in its environment, killed after a time like any service."""
        name = str(facts.get("service") or facts.get("scheduler"))
        service = Service(
            name=name,
            kind="command",
            argv=argv,
            timeout_s=TIMEOUT_S,
            env={"RAPTOR_EVENT": str(facts["event"]), "RAPTOR_FACTS": msgspec.json.encode(facts).decode()},
        )
        now = self.runtime.clock.now()
        context = Context(run_id="on_failure", service=name, planned=now, key=f"{name}@{now:.6f}")
        result = await self._workshop.runners["command"].run(service, context, RunLog(None))
        return None if result.outcome is Outcome.OK else result.info
