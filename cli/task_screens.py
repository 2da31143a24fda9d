"""What is shown of tasks and queues: lists, one task's life, what became of a put."""

from __future__ import annotations

import json
import sys
from typing import Any, TypeAlias

import click

from raptor.cli.overview import NODES, node_row
from raptor.cli.session import Session
from raptor.cli.table import BAD, DIM, GAP, GOOD, WARN, Cell, table
from raptor.cli.words import ago, plain, rough, took, when
from raptor.duration import show_seconds

Answer: TypeAlias = dict[str, Any]

STATES = {
    "ready": Cell("● ready"),
    "delayed": Cell("◷ delayed", DIM),
    "taken": Cell("▶ taken", "cyan"),
    "done": Cell("✓ done", GOOD),
    "dead": Cell("✗ dead", BAD),
    "cancelled": Cell("○ cancelled", WARN),
}
PASSED_S = 1.0  # so long ago a time was not meant as now
LEAST = 12  # characters of the last column: where there is less room, rows are folded


def show_put(session: Session, answer: Answer, *, replaced: bool, order: Answer) -> None:
    """Where a task was put, or which one is there already."""
    id, state, now = answer["id"], answer["state"], answer["now"]
    where = "" if answer["queue"] is None else f" on queue {plain(answer['queue'])}"
    if answer["new"]:
        passed = order.get("at") is not None and now - order["at"] > PASSED_S
        late = f" ({when(order['at'], now, session.zone)} has passed)" if passed else ""
        said = f"put as task {id}{where}, {_due(answer, now, session.zone)}{late}"
    elif replaced and state in ("ready", "delayed", "taken"):
        said = f"replaced: task {id}{where}, {_due(answer, now, session.zone)}"
    else:
        known = _due(answer, now, session.zone) if state in ("ready", "delayed") else state
        click.echo(f"already there: task {id}{where}, {known}; nothing was put")
        return
    click.echo(said + _again(order))


def _due(answer: Answer, now: float, zone: Any) -> str:
    if answer["state"] != "delayed":
        return "due now"
    return f"due in {rough(answer['due'] - now)} ({when(answer['due'], now, zone)})"


def _again(order: Answer) -> str:
    if order.get("every") is not None:
        after = " after each end" if order.get("anchor") == "end" else ""
        return f", then every {plain(order['every'])}{after}"
    if order.get("cron") is None:
        return ""
    from raptor.timing import parse_cron

    return f", then {plain(order['cron'])} in {parse_cron(order['cron'], order.get('timezone')).zone}"


def show_end(session: Session, task: Answer) -> None:
    """The output of a task to stdout, what became of it to stderr."""
    if task["output"] is not None:
        click.echo(plain(task["output"]) if isinstance(task["output"], str) else as_json(task["output"]))
    state = STATES[task["state"]].text
    spent = "" if task["started"] is None or task["ended"] is None else f" in {took(task['ended'] - task['started'])}"
    why = f": {_why(task)}" if task["state"] != "done" else ""
    click.echo(f"task {task['id']}  {plain(task['service'])}  {state}{spent}{why}", err=True)


def _why(task: Answer) -> str:
    """The reason, and the line of the error that says most."""
    error = _last_line(task["error"] or "")
    reason = task["reason"] or ""
    return plain(": ".join(part for part in dict.fromkeys((reason, error)) if part)) or "no reason given"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def as_json(value: Any) -> str:
    return plain(json.dumps(value, ensure_ascii=False))


def _show(session: Session, head: tuple[str, ...], rows: list[list[Cell | str]]) -> None:
    """A table whose last column is cut to the terminal: the whole is a command away. Nothing is cut in a pipe."""
    if sys.stdout.isatty():
        import shutil

        texts = [head, *([cell.text if isinstance(cell, Cell) else cell for cell in row] for row in rows)]
        widths = [max(len(plain(row[column])) for row in texts) + len(GAP) for column in range(len(head) - 1)]
        room = shutil.get_terminal_size().columns - sum(widths)
        if room >= LEAST:
            rows = [[*row[:-1], _cut(plain(row[-1]), room)] for row in rows]
    table(session, head, rows)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 3] + "..."


def show_tasks(session: Session, answer: Answer, *, is_cut: bool) -> None:
    now, found = answer["now"], answer["tasks"]
    if not found:
        click.echo("no such tasks", err=True)
        return
    keyed = any(task["key"] is not None for task in found)
    rows = [_task_row(task, now, keyed) for task in found]
    _show(session, ("ID", "SERVICE", "STATE", "WHEN", "TRIES", "QUEUE", *(("KEY",) if keyed else ()), "INFO"), rows)
    if is_cut and sys.stdout.isatty():
        click.echo(f"Hint: the newest {len(found)}; -n {len(found) * 10} shows more", err=True)


def _task_row(task: Answer, now: float, keyed: bool) -> list[Cell | str]:
    state = task["state"]
    match state:
        case "ready":
            moment = "now" if now - task["due"] < 1 else f"{rough(now - task['due'])} late"
        case "delayed":
            moment = f"in {rough(task['due'] - now)}"
        case "taken":
            moment = f"for {rough(now - (task['started'] or now))}"
        case _:
            moment = ago(task["ended"], now)
    key = [task["key"] or "-"] if keyed else []
    return [
        Cell(str(task["id"]), "bold"),
        task["service"],
        STATES[state],
        moment,
        _attempts(task),
        task["queue"],
        *key,
        _info(task),
    ]


def _attempts(task: Answer) -> str:
    """How many runs it has had, the one that counts among them."""
    runs = task["attempts"] + (task["state"] in ("taken", "done"))
    return f"{runs}/{task['max_attempts']}" if task["max_attempts"] else str(runs)


def _info(task: Answer) -> str:
    match task["state"]:
        case "done":
            return "" if task["output"] is None else as_json(task["output"])
        case "dead" | "cancelled":
            return _why(task)
        case _ if task["history"]:
            return plain(task["history"][-1]["info"])
        case _:
            return ""


def show_dead(session: Session, answer: Answer) -> None:
    now, found = answer["now"], answer["tasks"]
    if not found:
        click.echo("no dead tasks", err=True)
        return
    rows: list[list[Cell | str]] = [
        [
            Cell(str(task["id"]), "bold"),
            task["service"],
            task["queue"],
            ago(task["ended"], now),
            _attempts(task),
            Cell(task["reason"], BAD),
            _last_line(task["error"] or ""),
        ]
        for task in found
    ]
    _show(session, ("ID", "SERVICE", "QUEUE", "DIED", "TRIES", "REASON", "ERROR"), rows)
    id = found[0]["id"]
    click.echo(f"Hint: raptor task {id}, raptor retry {id} or --all, raptor drop {id} or --all", err=True)


def show_queues(session: Session, answer: Answer, *, running: bool) -> None:
    found = answer["queues"]
    if not found:
        click.echo("no queues yet: raptor put SERVICE makes one", err=True)
    numbers = ("ready", "taken", "delayed", "done", "dead")
    rows: list[list[Cell | str]] = []
    for one in found:
        counts = [Cell(str(one[key]), BAD if key == "dead" and one[key] else "") for key in numbers]
        late = "-" if one["late_s"] is None or one["late_s"] < 1 else rough(one["late_s"])
        set_so = Cell(limits(one), WARN if one["paused"] else "")
        rows.append([Cell(one["queue"], "bold"), *counts, speed(one["done_per_s"]), late, set_so])
    if rows:
        table(session, ("QUEUE", *map(str.upper, numbers), "RATE", "LATE", "LIMITS"), rows)
    nodes = answer.get("nodes", ())
    if nodes:
        click.echo()
        table(session, NODES, [node_row(one) for one in answer["nodes"]])
    hint = _hint(answer, running or any(one["alive"] for one in nodes))
    if hint:
        click.echo(hint, err=True)


def speed(done_per_s: float | None) -> str:
    """How many tasks were done in a second, or in a minute where they are few."""
    if not done_per_s:
        return "-"
    if done_per_s < 1:
        return f"{done_per_s * 60:.0f}/min"
    return f"{done_per_s:.0f}/s" if done_per_s >= 9.95 else f"{done_per_s:.1f}/s"


def limits(line: Answer) -> str:
    """What was set otherwise than by default."""
    parts = [f"◑ paused{': ' + line['note'] if line['note'] else ''}"] if line["paused"] else []
    parts += [f"{line['concurrency']} at a time"] if line["concurrency"] else []
    parts += [f"{line['rate']}/{_per(line['per_s'])}"] if line["rate"] else []
    parts += [f"{line['processors']} processor{'s' * (line['processors'] > 1)}"] if line["processors"] else []
    parts += [f"batches of {line['batch_size']}"] if line["batch_size"] != 10 else []
    parts += [f"lease {show_seconds(line['lease_s'])}"] if line["lease_s"] != 60 else []
    if line["max_attempts"] != 3:
        tries = line["max_attempts"]
        parts.append(f"{tries or 'unlimited'} attempt{'s' * (tries != 1)}")
    return ", ".join(parts) or "-"


def _per(seconds: float) -> str:
    return {1.0: "s", 60.0: "min", 3600.0: "h", 86400.0: "d"}.get(seconds) or show_seconds(seconds)


def _hint(answer: Answer, running: bool) -> str:
    found, worker = answer["queues"], answer["worker"]
    if any(one["dead"] for one in found):
        return "Hint: raptor dead"
    waiting = [one["queue"] for one in found if one["ready"] and not one["paused"]]
    if waiting and not running:
        return "Hint: raptor work"
    idle = [name for name in waiting if worker and worker["queues"] and name not in worker["queues"]]
    if idle or (waiting and worker and not worker["processors"]):
        where = "raptor stop, and start it for these too; [worker] of raptor.toml says for which"
        return f"Hint: the node takes nothing from {', '.join(idle or waiting)}: {where}"
    return ""
