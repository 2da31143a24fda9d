"""What commands show: tables with rich on a terminal, plain aligned rows elsewhere, every glyph with its word."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import click

from raptor.cli.narrator import Paint, ansi, no_paint
from raptor.cli.session import Session
from raptor.cli.words import ago, plain, plain_lines, rough, took, until, when

Answer: TypeAlias = dict[str, Any]


class Cell(NamedTuple):
    """A text and its colour, which never says more than the text."""

    text: str
    colour: str = ""


GAP = "   "
GOOD, BAD, DIM, WARN = "green", "red", "dim", "yellow"

STATES = {
    "running": Cell("● running", GOOD),
    "stopped": Cell("○ stopped", DIM),
    "paused": Cell("◑ paused", WARN),
    "stopping": Cell("◌ stopping", WARN),
    "interrupted": Cell("◌ interrupted", WARN),
}
RESULTS = {
    "ok": Cell("✓ ok", GOOD),
    "failed": Cell("✗ failed", BAD),
    "timed_out": Cell("✗ timed out", BAD),
    "interrupted": Cell("◌ interrupted", WARN),
    None: Cell("▶ running", "cyan"),
}


def table(session: Session, head: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> None:
    """Print rows under a head."""
    cells = [[Cell(title, "bold") for title in head]]
    cells += [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [max(len(plain(row[column].text)) for row in cells) for column in range(len(head))]
    if sys.stdout.isatty() and sum(widths) + len(GAP) * (len(head) - 1) > shutil.get_terminal_size().columns:
        return _rich(session, head, cells[1:])  # it knows how to fold; what fits does without its import
    for row in cells:
        click.echo(_aligned(row, widths, ansi if session.colour else no_paint), color=session.colour)


def _aligned(row: Sequence[Cell], widths: Sequence[int], paint: Paint) -> str:
    made = ""
    for cell, width in zip(row, widths, strict=True):
        text = plain(cell.text)
        made += (paint(text, cell.colour) if cell.colour and text else text) + " " * (width - len(text)) + GAP
    return made.rstrip()


def _rich(session: Session, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in head:
        made.add_column(Text(title), overflow="fold")
    for row in rows:
        # Text, not markup: a name is shown as it is, whatever it holds.
        made.add_row(*(Text(plain(cell.text), style=cell.colour) for cell in row))
    console(session).print(made)


def console(session: Session) -> Any:
    from rich.console import Console

    return Console(no_color=not session.colour, markup=False, highlight=False, emoji=False)


def show_status(session: Session, answer: Answer) -> None:
    now, zone = answer["now"], session.zone
    schedulers, services = answer["schedulers"], answer["services"]
    if not schedulers and not services:
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
    hint = _hint(schedulers, services)
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
    return [Cell(one["name"], "bold"), STATES.get(one["state"], Cell(one["state"])), cycle, current, check]


def _service_row(one: Answer, schedulers: list[Answer], now: float, zone: Any) -> list[Cell | str]:
    every = one["cron"] or ("-" if one["every_s"] is None else _every(one["every_s"]))
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


def _every(seconds: float) -> str:
    from raptor.duration import show_seconds

    return show_seconds(seconds)


def _hint(schedulers: list[Answer], services: list[Answer]) -> str:
    broken = next((one for one in schedulers if one["state"] == "interrupted"), None)
    if broken is not None:
        return f"Hint: raptor start {broken['name']} finishes the cycle that was cut off"
    failed = next((one for one in services if one["failures"]), None)
    if failed is not None:
        return f"Hint: raptor logs {failed['name']} --failed"
    empty = next((one for one in schedulers if one["state"] == "running" and not one["periodic_services"]), None)
    if empty is not None and services:
        return f"Hint: raptor schedule {empty['name']} {services[0]['name']}"
    if schedulers and all(one["state"] == "stopped" for one in schedulers):
        return f"Hint: raptor start {schedulers[0]['name']}"
    return ""


def show_outlook(session: Session, answer: Answer, pid: int | None) -> None:
    name = answer["scheduler"]
    state = f"running, pid {pid}" if answer["running"] else f"not running: raptor start {name} runs it"
    click.echo(f"scheduled on {plain(name)} ({state})")
    if not answer["services"]:
        click.echo("  nothing: the list is empty")
        return
    facts = session.call("status", name=name)
    known = {one["name"]: one for one in facts["services"]}
    width = max(len(plain(one["name"])) for one in answer["services"])
    for one in answer["services"]:
        said = _outlook(one, known.get(one["name"], {}), facts["now"], session.zone)
        click.echo(f"  {plain(one['name']):<{width}}   {said}")


def _outlook(one: Answer, known: Answer, now: float, zone: Any) -> str:
    reason = plain(one["reason"])
    if one["due"]:
        return f"due now ({'never run' if reason == 'first run' else reason})"
    if one["next_due"] is None:
        return reason
    if known.get("last_run_timestamp") is not None and reason.startswith("runs in"):
        timing = known["cron"] or (None if known["every_s"] is None else _every(known["every_s"]))
        every = "" if timing is None else f", every {timing}" if known["cron"] is None else f", {timing}"
        reason = f"ran {ago(known['last_run_timestamp'], now)}{every}"
    return f"not due: {reason} → {when(one['next_due'], now, zone)}"


def show_run(session: Session, run: Answer) -> None:
    """The output of a run to stdout, the result to stderr."""
    if run["tail"]:
        click.echo(plain_lines(run["tail"]))
    result = RESULTS.get(run["outcome"], Cell(str(run["outcome"])))
    spent = took(None if run["end"] is None else run["end"] - run["start"])
    text = f"{run['service']}  {result.text} in {spent}" + (f": {run['info']}" if run["info"] else "")
    coloured = sys.stderr.isatty() and session.config.color != "never"
    click.echo(
        click.style(plain(text), fg=result.colour if coloured and result.colour else None), err=True, color=coloured
    )
    if run["error"] and run["outcome"] != "ok":
        click.echo(plain_lines(run["error"]), err=True)


def show_history(session: Session, answer: Answer) -> None:
    now, zone = answer["now"], session.zone
    if not answer["runs"]:
        click.echo("no runs yet", err=True)
        return
    rows: list[list[Cell | str]] = []
    for run in answer["runs"]:
        spent = None if run["end"] is None else run["end"] - run["start"]
        rows.append(
            [
                when(run["start"], now, zone),
                Cell(run["service"], "bold"),
                RESULTS.get(run["outcome"], Cell(str(run["outcome"]))),
                took(spent),
                str(run["attempt"] or "-"),
                run["scheduler"] or "by hand",
                run["info"],
            ]
        )
    table(session, ("STARTED", "SERVICE", "RESULT", "TOOK", "ATTEMPT", "SCHEDULER", "INFO"), rows)


def show_next(session: Session, answer: Answer) -> None:
    now, zone = answer["now"], session.zone
    if "services" in answer:
        rows: list[list[Cell | str]] = []
        for one in answer["services"]:
            due = one["next_due"]
            left = "-" if due is None or due <= now else rough(due - now)
            last = one["last_end"]
            rows.append(
                [
                    "-" if due is None else "now" if due <= now else when(due, now, zone),
                    left,
                    "-" if last is None else when(last, now, zone),
                    ago(last, now),
                    Cell(one["name"], "bold"),
                    one["scheduler"] or "-",
                ]
            )
        table(session, ("NEXT", "LEFT", "LAST", "PASSED", "SERVICE", "SCHEDULER"), rows)
        return
    rows = [[_whole(at, zone), "now" if at <= now else rough(at - now)] for at in answer["times"]]
    table(session, ("NEXT", "LEFT"), rows)


def _whole(at: float, zone: Any) -> str:
    from raptor.cli.words import moment

    return moment(at, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def show_why(session: Session, answer: Answer, now: float) -> None:
    """A slot's story in sentences."""
    zone, name, planned = session.zone, plain(answer["service"]), answer["planned"]
    if planned is None:
        click.echo(
            f"{name}: nothing is known of {when(answer['at'], now, zone)}: no slot within a day of it is recorded"
        )
        return
    slot = when(planned, now, zone)
    verdict, reason = answer["verdict"], plain(answer.get("reason") or "")
    why = f": {reason}" if reason else ""
    many = answer.get("count", 1)
    span = f"{slot} to {when(answer['last'], now, zone)} ({many} slots)" if many > 1 else slot
    match verdict:
        case "open":
            said = _open(answer, now, zone)
        case "done":
            said = "✓ ran, and succeeded"
        case "failed":
            said = f"✗ failed, and was given up{why}"
        case "skipped":
            said = f"○ skipped{why}"
        case "missed":
            said = f"○ missed{why}"
        case "coalesced":
            said = f"○ went into a later run{why}"
        case _:
            said = f"{verdict}{why}"
    click.echo(f"{name}, planned for {span}: {said}")
    for run in sorted(answer["runs"], key=lambda run: run["start"]):
        result = RESULTS.get(run["outcome"], Cell(str(run["outcome"]))).text
        spent = took(None if run["end"] is None else run["end"] - run["start"])
        info = f": {plain(run['info'])}" if run["info"] else ""
        click.echo(f"  attempt {run['attempt']} began {when(run['start'], now, zone)}, {result} in {spent}{info}")


def _open(answer: Answer, now: float, zone: Any) -> str:
    row = answer["row"]
    if row["retry_at"] is not None:
        return f"↻ failed {row['attempts']} times so far; the next try is at {until(row['retry_at'], now, zone)}"
    return f"not yet due: it runs at {until(row['next_due'], now, zone)}" if row["next_due"] > now else "due now"


def show_tree(session: Session, answer: Answer) -> None:
    marks = {"running": ("●", GOOD), "busy": ("●", "cyan"), "restarting": ("↻", WARN), "stopped": ("○", DIM)}

    def walk(branch: Answer, lead: str, below: str) -> None:
        mark, colour = marks.get(branch["state"], ("?", ""))
        facts = [branch["kind"], branch["state"]]
        if branch["uptime_s"] is not None:
            facts.append(f"up {rough(branch['uptime_s'])}")
        if branch["restarts"]:
            facts.append(f"{branch['restarts']} restart{'s' * (branch['restarts'] != 1)}")
        if branch["mailbox"]:
            facts.append(f"{branch['mailbox']} waiting")
        glyph = click.style(mark, fg=colour if colour != DIM else None, dim=colour == DIM)
        text = f"{lead}{glyph} {plain(branch['name'])}  {' · '.join(map(plain, facts))}"
        click.echo(text, color=session.colour)
        children = branch["children"]
        for number, child in enumerate(children):
            last = number == len(children) - 1
            walk(child, f"{below}{'└── ' if last else '├── '}", f"{below}{'    ' if last else '│   '}")

    walk(answer, "", "")
