"""Commands that look: status, next, history, why, tree, config. None of them changes anything."""

from __future__ import annotations

import time
from typing import Any

import click

from raptor.cli import door
from raptor.cli.session import Session, command, pass_session


@command("status", reading=True)
@click.argument("name", required=False)
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@pass_session
def status(session: Session, name: str | None, watch: bool) -> None:
    """Schedulers and services as they are, whether a node runs or not."""
    from raptor.cli.overview import show_status

    if watch:
        return _watch(session, name)
    answer = _status(session, name)
    if session.json:
        return session.print_json(answer)
    show_status(session, answer)


def _status(session: Session, name: str | None) -> dict[str, Any]:
    answer = session.call("status", name=name)
    pid = door.owner_pid(session.config.home)
    pids = {node["name"]: node["pid"] for node in answer.get("nodes", ())}
    for one in answer["schedulers"]:
        runs = one["state"] not in ("stopped", "interrupted")
        one["pid"] = pids.get(one.get("owner"), pid) if runs else None
    return answer


def _watch(session: Session, name: str | None) -> None:
    import sys

    from raptor.cli.overview import show_status

    terminal = sys.stdout.isatty()
    while True:
        answer = _status(session, name)
        if session.json:
            session.print_json(answer)
        else:
            # The whole screen, from its top: what is shorter than before leaves nothing behind.
            if terminal:
                click.echo("\x1b[H\x1b[2J", nl=False)
            show_status(session, answer)
            if not terminal:
                click.echo()
        sys.stdout.flush()
        time.sleep(1.0)


@command("next", reading=True)
@click.argument("target", required=False, metavar="[SERVICE|10m|'CRON']")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many times.")
@pass_session
def next(session: Session, target: str | None, count: int) -> None:
    """Preview the next runs: of every service, of one, of an interval, or of a cron expression."""
    from raptor.cli.screens import show_next

    answer = session.call("next", target=target, n=count, tz=session.config.tz)
    if session.json:
        return session.print_json(answer)
    if answer.get("timezone"):
        from raptor.timing import explain

        assert target is not None
        click.echo(f"{target}: {explain(target)}, in {answer['timezone']}", err=True)
    show_next(session, answer)


@command("history", reading=True)
@click.argument("service", required=False)
@click.option("--since", metavar="1h", help="Only runs that began within this time.")
@click.option("--failed", is_flag=True, help="Only runs that did not succeed.")
@click.option("-n", "count", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many runs.")
@pass_session
def history(session: Session, service: str | None, since: str | None, failed: bool, count: int) -> None:
    """Past runs by schedulers and by hand, newest first: results, durations, errors.

    The runs of a task are told by `raptor task ID`.
    """
    from raptor.cli.screens import show_history

    answer = session.call("history", service=service, since=since, failed=failed, limit=count)
    if session.json:
        for run in answer["runs"]:
            run["took_s"] = None if run["end"] is None else round(run["end"] - run["start"], 6)
        return session.print_json(answer)
    show_history(session, answer, service=service, failed=failed)


@command("why", reading=True)
@click.argument("service")
@click.option("--at", "at", default="now", show_default=True, metavar="TIME", help="02:30, yesterday 02:30, 2h ago.")
@pass_session
def why(session: Session, service: str, at: str) -> None:
    """What became of the slot nearest to a time, and why."""
    from raptor.cli.screens import show_why
    from raptor.clock import SystemClock
    from raptor.moment import read_moment

    now = SystemClock().now()
    answer = session.call("why", service=service, at=read_moment(at, now, session.zone))
    if session.json:
        return session.print_json(answer)
    show_why(session, answer, now)


@command("tree", reading=True)
@pass_session
def tree(session: Session) -> None:
    """The supervision tree of the running node."""
    from raptor.cli.screens import show_tree

    answer = session.call("tree")
    if session.json:
        return session.print_json({"tree": answer})
    show_tree(session, answer)


@command("config", reading=True)
@click.option("--explain", is_flag=True, help="Where each value came from, and what is defined where.")
@pass_session
def config(session: Session, explain: bool) -> None:
    """The settings in force."""
    from raptor.cli.table import Cell, table

    settings = session.config.settings
    if session.json:
        lines = [{"name": one.name, "value": one.text, "source": one.source} for one in settings]
        return session.print_json({"settings": lines})
    if not explain:
        return table(session, ("SETTING", "VALUE"), [[Cell(one.name, "bold"), one.text] for one in settings])
    table(session, ("SETTING", "VALUE", "FROM"), [[Cell(one.name, "bold"), one.text, one.source] for one in settings])
    rows = _defined(session)
    if rows:
        click.echo()
        table(session, ("DEFINED", "AS", "FROM"), rows)


def _defined(session: Session) -> list[list[Any]]:
    from raptor.cli.table import Cell

    made = session.config
    catalogue = made.catalogue()
    rows: list[list[Any]] = [[Cell(name, "bold"), "service", catalogue.where(name)] for name in catalogue]
    stored = session.call("dump", table="definitions")["tables"]["definitions"]
    declared = {definition.name for definition in made.schedulers}
    for name in sorted(declared | set(stored)):
        place = f"{made.file}: schedulers.{name}"
        if name in stored:
            place = "the state directory, by command" + (f" (before: {place})" if name in declared else "")
        rows.append([Cell(name, "bold"), "scheduler", place])
    return rows
