"""What the other commands show: outlooks, runs, times, a slot's story, the tree."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import click

from raptor.cli.session import Session
from raptor.cli.table import DIM, GOOD, RESULTS, WARN, Cell, table
from raptor.cli.words import ago, plain, plain_lines, rough, took, until, when
from raptor.duration import show_seconds

Answer: TypeAlias = dict[str, Any]


def show_outlook(session: Session, answer: Answer, owner: str | None) -> None:
    name = answer["scheduler"]
    state = f"running, {owner}" if answer["running"] else f"not running: raptor start {name} runs it"
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
        timing = known["cron"] or (None if known["every_s"] is None else show_seconds(known["every_s"]))
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


def show_history(session: Session, answer: Answer, *, service: str | None, failed: bool) -> None:
    if answer["runs"]:
        _show_runs(session, answer)
    else:
        click.echo("no failed runs" if failed else "no runs by a scheduler or by hand yet", err=True)
    hint_at_tasks(answer, service, failed=failed)


def hint_at_tasks(answer: Answer, service: str | None, *, failed: bool) -> None:
    """The runs of tasks stand in their own rows: where to look for them."""
    if answer["has_tasks"]:
        named = "" if service is None else f" --service {plain(service)}"
        click.echo(f"Hint: raptor {'dead' if failed else 'tasks'}{named} has what ran as a task", err=True)


def _show_runs(session: Session, answer: Answer) -> None:
    now, zone = answer["now"], session.zone
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
    from raptor.moment import moment

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

    if "name" in answer:
        walk(answer, "", "")
    for node in answer.get("nodes", ()):
        state = "seen" if node["alive"] else "gone, last seen"
        click.echo(f"node {plain(node['name'])}  {state} {rough(node['age_s'])} ago")
        if node["alive"] and node["tree"] is not None:
            walk(node["tree"], "", "")
