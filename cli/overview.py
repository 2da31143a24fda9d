"""The screen of `raptor status`: schedulers and services, every glyph with its word."""

from __future__ import annotations

from typing import Any, TypeAlias

import click

from raptor.cli.session import Session
from raptor.cli.table import BAD, DIM, GOOD, RESULTS, WARN, Cell, table
from raptor.cli.words import ago, plain, rough, took, until
from raptor.duration import show_seconds

Answer: TypeAlias = dict[str, Any]

NODES = ("NODE", "STATE", "SEEN", "SCHEDULERS", "WORK")
STATES = {
    "running": Cell("● running", GOOD),
    "stopped": Cell("○ stopped", DIM),
    "paused": Cell("◑ paused", WARN),
    "stopping": Cell("◌ stopping", WARN),
    "interrupted": Cell("◌ interrupted", WARN),
    "standby": Cell("◍ standby", DIM),
}


def show_status(session: Session, answer: Answer) -> None:
    now, zone = answer["now"], session.zone
    schedulers, services = answer["schedulers"], answer["services"]
    if not schedulers and not services and not answer["queues"] and not answer.get("nodes"):
        click.echo("no schedulers and no services yet: raptor init writes an example project")
        return
    if schedulers:
        head = ("SCHEDULER", "STATE", "CYCLE", "CURRENT", "NEXT CHECK")
        table(session, head, [_scheduler_row(one, now, zone) for one in schedulers])
    else:
        click.echo("no schedulers yet: raptor start main --interval 10s")
    if services:
        click.echo()
        columns = ("SERVICE", "LAST RESULT", "LAST RUN", "TOOK", "NEXT RUN", "EVERY")
        table(session, columns, [_service_row(one, schedulers, now, zone) for one in services])
    if answer.get("nodes"):
        click.echo()
        table(session, NODES, [node_row(one) for one in answer["nodes"]])
    if answer.get("store"):
        told = f"store {answer['store']['address']}, {answer['store']['durability']}"
        click.echo(plain(told if answer["store"]["durable"] else f"! {told}"))
    if answer.get("degraded"):
        click.echo(f"! the store does not answer, and is asked again: {plain(answer['degraded'])}")
    if answer["queues"]:
        click.echo()
        table(session, ("QUEUE", "STATE", "TASKS"), [_queue_row(one) for one in answer["queues"]])
    hint = _hint(schedulers, services, answer["queues"])
    if hint:
        click.echo(hint)


def _scheduler_row(one: Answer, now: float, zone: Any) -> list[Cell | str]:
    total = one["completed_count"] + len(one["remaining_services"]) + (one["current_service"] is not None)
    cycle = f"{one['completed_count']}/{total} done" if one["cycle"] else "-"
    current = "-"
    if one["current_service"]:
        since = one.get("current_since")
        current = one["current_service"] + ("" if since is None else f" ({rough(now - since)})")
    if one["state"] == "running":
        check = "after this cycle" if one["cycle"] else until(one["next_check"], now, zone)
        if not one["periodic_services"]:
            check = "nothing scheduled"
    else:
        check = "-"
    state = STATES.get(one["state"], Cell(one["state"]))
    if one.get("owner"):
        state = Cell(f"{state.text} ({one['owner']})", state.colour)
    return [Cell(one["name"], "bold"), state, cycle, current, check]


def _service_row(one: Answer, schedulers: list[Answer], now: float, zone: Any) -> list[Cell | str]:
    every = one["cron"] or ("-" if one["every_s"] is None else show_seconds(one["every_s"]))
    last = one["last_end"]
    if one["running"] is not None:
        result = Cell(f"▶ running ({one['running']})", "cyan")
    elif one["last_result"] is None:
        result = Cell("never run", DIM)
    else:
        result = RESULTS.get(one["last_result"], Cell(one["last_result"]))
        if one["failures"] and one["max_attempts"] and one["attempts"]:
            result = Cell(f"{result.text} {one['attempts']}/{one['max_attempts']}", result.colour)
        elif one["failures"] > 1:
            result = Cell(f"{result.text} {one['failures']}x", result.colour)
    return [
        Cell(one["name"], "bold"),
        result,
        ago(last, now),
        took(one["took_s"]),
        _next(one, schedulers, now, zone),
        every,
    ]


def _next(one: Answer, schedulers: list[Answer], now: float, zone: Any) -> Cell | str:
    if not one["known"]:
        return Cell("unknown service", BAD)
    if one["paused"]:
        return Cell("paused", WARN)
    if one["scheduler"] is None:
        return Cell("not scheduled", DIM)
    if one["retry_at"] is not None:
        return f"retry {until(one['retry_at'], now, zone)}"
    own = next((s for s in schedulers if s["name"] == one["scheduler"]), None)
    if own is not None and own["state"] in ("stopped", "interrupted"):
        return Cell(f"{until(one['next_due'], now, zone)}, when started", DIM)
    return until(one["next_due"], now, zone)


def node_row(one: Answer) -> list[Cell | str]:
    state = Cell("○ gone", BAD) if not one["alive"] else Cell("● alive" + (", here" if one["here"] else ""), GOOD)
    if one["alive"] and abs(one["skew_s"]) >= 1.0:
        state = Cell(f"◑ its clock is off by {rough(one['skew_s'])}", WARN)
    schedulers = ", ".join(f"{name} ({state})" for name, state in one["schedulers"].items()) or "-"
    worker = one["worker"]
    work = "-" if worker is None else f"{len(worker['running'])} of {worker['processors']} tasks"
    return [Cell(one["name"], "bold"), state, f"{rough(one['age_s'])} ago", schedulers, work]


def _queue_row(one: Answer) -> list[Cell | str]:
    words = {"ready": "ready", "taken": "taken", "delayed": "delayed", "dead": "dead"}
    counts = ", ".join(f"{one[key]} {word}" for key, word in words.items() if one[key])
    state = Cell("◑ paused", WARN) if one["paused"] else Cell("● open", GOOD)
    return [Cell(one["queue"], "bold"), state, Cell(counts, BAD if one["dead"] else "")]


def _hint(schedulers: list[Answer], services: list[Answer], queues: list[Answer]) -> str:
    broken = next((one for one in schedulers if one["state"] == "interrupted"), None)
    if broken is not None:
        return f"Hint: raptor start {broken['name']} finishes the cycle that was cut off"
    failed = next((one for one in services if one["failures"]), None)
    if failed is not None:
        return f"Hint: raptor logs {failed['name']} --failed"
    if any(one["dead"] for one in queues):
        return "Hint: raptor dead"
    empty = next((one for one in schedulers if one["state"] == "running" and not one["periodic_services"]), None)
    if empty is not None and services:
        return f"Hint: raptor schedule {empty['name']} {services[0]['name']}"
    if schedulers and all(one["state"] == "stopped" for one in schedulers):
        return f"Hint: raptor start {schedulers[0]['name']}"
    return ""
