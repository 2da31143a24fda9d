"""on_failure: who is told, of what, and how often (R4-11)."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from raptor.clock import Clock
from raptor.herald import Herald
from raptor.ref import Ref
from raptor.rows import Recorded
from raptor.runners import Context
from raptor.runners.output import RunLog
from raptor.runtime import Runtime
from raptor.service import Service
from raptor.state.memory import MemoryStore
from raptor.task import Outcome, Result, Run, Slot
from raptor.timetable import Timetable
from raptor.turn import Logs
from raptor.workshop import Workshop

FAILED = Slot(service="report", planned=10.0, last=10.0, verdict="failed", reason="no disk", recorded=11.0)
MISSED = Slot(service="report", planned=10.0, last=40.0, count=4, verdict="missed", reason="node down", recorded=11.0)


class Recorder:
    """A runner that keeps what it was asked to run."""

    def __init__(self, outcome: Outcome = Outcome.OK) -> None:
        self.calls: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        self.outcome = outcome

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        self.calls.append((service.argv, json.loads(service.env["RAPTOR_FACTS"])))
        return Result(outcome=self.outcome, info="exit status 1")

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(facts["event"], facts.get("service", "")) for _, facts in self.calls]


def run_of(service: str, outcome: Outcome = Outcome.OK) -> Run:
    return Run(
        id="r1", service=service, scheduler="main", planned=10.0, attempt=2, start=10.0, end=11.0, outcome=outcome
    )


async def herald(clock: Clock, recorder: Recorder, per_minute: int = 10) -> tuple[Runtime, Ref]:
    runtime = Runtime(clock)
    services = [
        Service(name="report", kind="command", argv=("true",), on_failure=("tell", "me")),
        Service(name="quiet", kind="command", argv=("true",)),
    ]
    workshop = Workshop(
        timetable=Timetable(MemoryStore(), clock, runtime.events),
        runners={"command": recorder},
        logs=Logs(),
        catalogue={service.name: service for service in services},
    )
    ref = await runtime.start(Herald, workshop, per_minute)
    assert ref is not None
    return runtime, ref


@pytest.mark.spec("R4-11")
@pytest.mark.parametrize("slot", [FAILED, MISSED])
async def test_a_slot_that_failed_or_was_missed_is_told_with_its_facts(clock: Clock, slot: Slot) -> None:
    recorder = Recorder()
    runtime, _ = await herald(clock, recorder)
    runtime.events.emit("slot_closed", slot=slot)
    await clock.sleep(1)
    ((argv, facts),) = recorder.calls
    assert argv == ("tell", "me")
    assert (facts["event"], facts["planned"], facts["reason"]) == (slot.verdict, 10.0, slot.reason)


@pytest.mark.parametrize("verdict", ["done", "skipped", "coalesced"])
async def test_a_slot_with_any_other_verdict_is_not_told(clock: Clock, verdict: str) -> None:
    recorder = Recorder()
    runtime, _ = await herald(clock, recorder)
    runtime.events.emit("slot_closed", slot=msgspec.structs.replace(FAILED, verdict=verdict))
    await clock.sleep(1)
    assert recorder.calls == []


@pytest.mark.spec("R4-11")
async def test_a_try_is_not_told_and_a_recovery_is(clock: Clock) -> None:
    recorder = Recorder()
    runtime, _ = await herald(clock, recorder)
    runtime.events.emit("service_ended", run=run_of("report", Outcome.FAILED), verdict="retry", recovered=False)
    runtime.events.emit("service_ended", run=run_of("report"), verdict="done", recovered=True)
    await clock.sleep(1)
    assert recorder.told == [("recovered", "report")]


async def test_a_service_without_on_failure_tells_nobody(clock: Clock) -> None:
    recorder = Recorder()
    runtime, _ = await herald(clock, recorder)
    runtime.events.emit("slot_closed", slot=msgspec.structs.replace(FAILED, service="quiet"))
    runtime.events.emit("slot_closed", slot=msgspec.structs.replace(FAILED, service="removed"))
    await clock.sleep(1)
    assert recorder.calls == []


@pytest.mark.spec("R4-11")
async def test_a_cycle_in_which_something_failed_is_summed_up(clock: Clock) -> None:
    recorder = Recorder()
    runtime, _ = await herald(clock, recorder)
    results = (
        Recorded("quiet", "done"),
        Recorded("report", "failed", "no disk"),
    )
    runtime.events.emit("cycle_done", scheduler="main", results=results, took_s=2.0)
    runtime.events.emit("cycle_done", scheduler="main", results=results[:1], took_s=2.0)
    await clock.sleep(1)
    ((_, facts),) = recorder.calls
    assert facts["text"] == "Total 2 | Success 1 | Failed 1 | quiet OK | report FAILED"
    assert facts["duration_s"] == 2.0


@pytest.mark.spec("R4-11")
async def test_more_messages_than_allowed_in_a_rolling_minute_are_dropped_and_counted(clock: Clock) -> None:
    recorder = Recorder()
    runtime, ref = await herald(clock, recorder, per_minute=10)
    dropped: list[object] = []
    runtime.events.subscribe(lambda event: dropped.append(event.facts["service"]), "message_dropped")
    for _ in range(13):
        runtime.events.emit("slot_closed", slot=FAILED)
    await clock.sleep(59)
    assert (len(recorder.calls), dropped) == (10, ["report"] * 3)
    await clock.sleep(2)
    runtime.events.emit("slot_closed", slot=FAILED)
    await clock.sleep(1)
    assert len(recorder.calls) == 11
    assert ref.alive


async def test_a_message_that_fails_is_reported_and_hurts_nobody(clock: Clock) -> None:
    recorder = Recorder(Outcome.FAILED)
    runtime, ref = await herald(clock, recorder)
    failed: list[object] = []
    runtime.events.subscribe(lambda event: failed.append(event.facts["error"]), "message_failed")
    runtime.events.emit("slot_closed", slot=FAILED)
    await clock.sleep(1)
    assert failed == ["exit status 1"]
    assert ref.alive


@pytest.fixture
def inbox() -> Iterator[tuple[str, list[Any]]]:
    """A real HTTP server on loopback that keeps what is posted to it; /away redirects."""
    posted: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "/inbox")
            else:
                posted.append(json.loads(body))
                self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("path", "arrives"), [("/inbox", True), ("/away", False)])
async def test_a_url_gets_the_facts_and_is_not_followed_elsewhere(
    system_clock: Clock, inbox: tuple[str, list[Any]], path: str, arrives: bool
) -> None:
    url, posted = inbox
    _, ref = await herald(system_clock, Recorder())
    actor = ref.actor
    assert isinstance(actor, Herald)
    problem = await actor._post(url + path, {"event": "failed"})
    assert (posted == [{"event": "failed"}], problem is None) == (arrives, arrives)
