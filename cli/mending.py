"""`raptor state`: look into the tables, make a service due, repair what is damaged."""

from __future__ import annotations

import json as json_text
from typing import Any

import click

from raptor.cli.session import Command, Reading, Session, pass_session, talk
from raptor.cli.words import plain

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


@click.group("state", context_settings=HELP)
def state() -> None:
    """Look into the state directory, and mend it."""


@state.command("dump", cls=Reading, context_settings=HELP)
@click.argument("table", required=False)
@click.argument("key", required=False)
@pass_session
def dump(session: Session, table: str | None, key: str | None) -> None:
    """The rows of service_timing, scheduler_state and definitions, as they are stored."""
    answer = session.call("dump", table=table, key=key)
    rows = answer["tables"]
    if key is not None and not any(rows.values()):
        from raptor.errors import NoSuchName

        known = [name for found in session.call("dump", table=table)["tables"].values() for name in found]
        raise NoSuchName("row", key, known)
    if session.json:
        click.echo(json_text.dumps({"v": 1, "tables": rows}))
        return
    for name, found in rows.items():
        for row, record in found.items():
            click.echo(f"{plain(name)}  {plain(row)}  {json_text.dumps(record)}")


@state.command("reset", cls=Command, context_settings=HELP)
@click.argument("service", required=False)
@click.option("--scheduler", metavar="NAME", help="Drop what is left of its cycle instead; it must not run.")
@pass_session
def reset(session: Session, service: str | None, scheduler: str | None) -> None:
    """Make a service due now. Its record stays."""
    if (service is None) == (scheduler is None):
        raise click.UsageError("name a service, or a scheduler with --scheduler NAME")
    session.call("reset", service=service, scheduler=scheduler)
    if service is not None:
        talk(f"{service} is due now")
    else:
        talk(f"what was left of the cycle of {scheduler} is dropped")


@state.command("repair", cls=Reading, context_settings=HELP)
@pass_session
def repair(session: Session) -> None:
    """Make a damaged state directory usable again. A copy of everything is saved first."""
    from raptor.clock import SystemClock
    from raptor.state.repair import repair as mend

    report = mend(session.config.home, SystemClock())
    if session.json:
        return session.print_json(
            {"copy": None if report.copy is None else str(report.copy), "kept": report.kept, "lost": report.lost}
        )
    if report.copy is None:
        return talk(f"{session.config.home}: nothing is wrong, and nothing was touched")
    click.echo("kept: " + ", ".join(f"{count} of {table}" for table, count in report.kept.items()))
    for what in report.lost:
        click.echo(f"lost: {plain(what)}")
    if not report.lost:
        click.echo("lost: nothing")
    talk(f"the state as it was is in {report.copy}")
