"""The screen of `raptor task`: the whole life of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from raptor.cli.paint import ansi, no_paint
from raptor.cli.session import Session
from raptor.cli.task_screens import STATES, Answer, as_json
from raptor.cli.words import ago, plain, plain_lines, rough, took, until, when
from raptor.duration import show_seconds

TRIES = {
    "done": "✓ ok",
    "retry": "✗ failed",
    "failed": "✗ failed",
    "again": "↻ given back",
    "missed": "✗ too late",
    "skipped": "○ cancelled",
    "taken": "▶ running",
    "repeated": "↻ its next was put",
}
LARGEST = 2000  # characters of data and output


def show_task(session: Session, task: Answer) -> None:
    paint = ansi if session.colour else no_paint
    state = STATES[task["state"]]
    reason = f": {plain(task['reason'])}" if task["reason"] else ""
    head = [paint(f"task {task['id']}", "bold"), plain(task["service"])]
    head.append((paint(state.text, state.colour) if state.colour else state.text) + reason)
    click.echo("  ".join(head), color=session.colour)
    for label, text in _facts(session, task):
        click.echo(f"  {label:<9} {text}")
    for label, text in (("output", _output(task)), ("error", task["error"] or "")):
        if text:
            click.echo(f"  {label}")
            click.echo("\n".join(f"    {line}" for line in plain_lines(text.rstrip()).splitlines()))
    hint = _hint(task)
    if hint:
        click.echo(hint, err=True)


def _facts(session: Session, task: Answer) -> Iterator[tuple[str, str]]:
    now, zone = task["now"], session.zone
    extras = [f"priority {task['priority']}"] if task["priority"] != 5 else []
    extras += [f"key {plain(task['key'])}"] if task["key"] is not None else []
    yield "queue", " · ".join([plain(task["queue"]), *extras])
    by = f", by task {task['parent']}" if task["parent"] is not None else ""
    yield "put", f"{when(task['created'], now, zone)} ({ago(task['created'], now)}){by}"
    yield "due", _due(task, now, zone)
    if task["timing"]:
        yield "repeats", _timing(task["timing"])
    if limits := _limits(task):
        yield "limits", limits
    if task["data"] is not None:
        yield "data", as_json(task["data"])[:LARGEST]
    for number, line in enumerate(_tries(task, now, zone), 1):
        yield "tries" if number == 1 else "", line
    if task["children"]:
        more = " and more" if len(task["children"]) == 20 else ""
        yield "children", ", ".join(map(str, task["children"])) + more


def _due(task: Answer, now: float, zone: Any) -> str:
    due = when(task["due"], now, zone)
    match task["state"]:
        case "delayed":
            return until(task["due"], now, zone)
        case "ready":
            return f"{due}, {rough(now - task['due'])} late" if now - task["due"] >= 1 else "now"
        case _:
            late = None if task["started"] is None else task["started"] - task["due"]
            return due if late is None or late < 1 else f"{due}, taken up {rough(late)} late"


def _timing(timing: Answer | str) -> str:
    if not isinstance(timing, dict) or not (timing.get("cron") or timing.get("every_s")):
        return f"what makes no sense: {plain(str(timing))}"
    if timing.get("cron"):
        zone = f" in {timing['timezone']}" if timing.get("timezone") else ""
        return plain(timing["cron"] + zone)
    after = " after each end" if timing.get("anchor") == "end" else ""
    return f"every {show_seconds(timing['every_s'])}{after}"


def _limits(task: Answer) -> str:
    tries = task["max_attempts"]
    parts = [f"{tries or 'unlimited'} attempt{'s' * (tries != 1)}"] if tries != 3 else []
    parts += [f"a run may take {show_seconds(task['timeout_s'])}"] if task["timeout_s"] else []
    parts += [f"not run later than {show_seconds(task['active_s'])}"] if task["active_s"] else []
    return " · ".join(parts)


def _tries(task: Answer, now: float, zone: Any) -> Iterator[str]:
    for past in task["history"]:
        if past["verdict"] == "repeated" and past["end"] == task["ended"]:
            continue  # its children say so
        yield _try(past["start"], past["end"], past["verdict"], past["info"], now, zone)
    verdict = {"taken": "taken", "done": "done", "dead": "failed", "cancelled": "skipped"}.get(task["state"])
    if verdict is not None and task["started"] is not None:
        last = "missed" if task["reason"] == "expired" else verdict
        end = None if verdict == "taken" else task["ended"]
        yield _try(task["started"], end, last, "breaking off" if task["unwanted"] else "", now, zone)


def _try(start: float | None, end: float | None, verdict: str, info: str, now: float, zone: Any) -> str:
    if verdict == "repeated":
        return f"{when(end, now, zone)}  {TRIES[verdict]}"
    began = "not started" if start is None else when(start, now, zone)
    spent = "" if start is None else f" for {rough(now - start)}" if end is None else f" in {took(end - start)}"
    return f"{began}  {TRIES.get(verdict, verdict)}{spent}" + (f": {plain(info)}" if info else "")


def _output(task: Answer) -> str:
    value = task["output"]
    return "" if value is None else (value if isinstance(value, str) else as_json(value))[:LARGEST]


def _hint(task: Answer) -> str:
    id = task["id"]
    match task["state"]:
        case "dead":
            return f"Hint: raptor retry {id}, raptor drop {id}, raptor logs {plain(task['service'])}"
        case "ready" | "delayed" | "taken":
            return f"Hint: raptor wait {id}, raptor cancel {id}"
        case _:
            return ""
