"""`raptor logs`: what services printed, and what became of them, merged by time."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from raptor.cli.chronicle import NAME, Tail, decode, records
from raptor.cli.narrator import Narrator
from raptor.cli.paint import ansi, no_paint
from raptor.cli.session import Session, command, pass_session
from raptor.cli.words import plain, plain_lines, public, when

HEADER = re.compile(rb"== run (\S+) attempt (\d+) at (\S+)")
POLL_S = 0.2


@dataclass
class Block:
    """The output of one run in a log file."""

    at: float
    service: str
    run: str = ""
    lines: list[str] = field(default_factory=list[str])


@command("logs", reading=True)
@click.argument("service", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("--since", metavar="1h", help="Only what began within this time.")
@click.option(
    "--failed", is_flag=True, help="Only runs that did not succeed: their errors and the end of their output."
)
@pass_session
def logs(session: Session, service: str | None, follow: bool, since: str | None, failed: bool) -> None:
    """What a service printed; without a name, what all of them did and printed."""
    from raptor.clock import SystemClock
    from raptor.duration import seconds
    from raptor.timing import check_name

    if service is not None:
        check_name(service)  # it becomes part of a path
    earliest = None if since is None else SystemClock().now() - seconds(since)
    if failed:
        return _show_failed(session, service, since)
    if service is not None:
        session.call("history", service=service, limit=1)  # an unknown name is refused
    tails = _tails(session, service) if follow else {}
    _show_past(session, service, earliest)
    if follow:
        _follow(session, service, tails)


def _show_failed(session: Session, service: str | None, since: str | None) -> None:
    from raptor.cli.screens import hint_at_tasks

    answer = session.call("history", service=service, since=since, failed=True, limit=20)
    if session.json:
        return session.print_json(answer)
    runs = list(reversed(answer["runs"]))
    if not runs:
        click.echo("no failed runs", err=True)
    for run in runs:
        _show_failure(session, run, answer["now"])
    hint_at_tasks(answer, service, failed=True)


def _show_failure(session: Session, run: dict[str, Any], now: float) -> None:
    title = f"== {plain(run['service'])} {when(run['start'], now, session.zone)} attempt {run['attempt']}: "
    click.echo(click.style(f"{title}{plain(run['outcome'])}: {plain(run['info'])}", bold=True), color=session.colour)
    for part in (run["tail"], run["error"] or ""):
        if part:
            click.echo(plain_lines(part.rstrip()))


def _show_past(session: Session, service: str | None, earliest: float | None) -> None:
    home = session.config.home
    services = [service] if service is not None else _services(home)
    found: list[tuple[float, int, Any]] = [
        (block.at, 1, block) for name in services for block in _blocks(home, name) if _is_new(block.at, earliest)
    ]
    if service is None:
        found += [(record["at"], 0, record) for record in records(home, earliest)]
    found.sort(key=lambda one: one[:2])
    if not found:
        click.echo("nothing was printed yet" if service is not None else "no log yet", err=True)
    if session.json:
        return session.print_json({"logs": [_public(one) for _, _, one in found]})
    narrator = _narrator(session)
    for _, _, one in found:
        if isinstance(one, Block):
            prefix = "" if service is not None else f"{plain(one.service)} | "
            if service is not None:
                click.echo(click.style(_title(session, one), dim=True), color=session.colour)
            for line in one.lines:
                click.echo(prefix + plain(line.replace("\t", "    ")))
        else:
            told = narrator.line(one)
            if told is not None:
                click.echo(told, color=session.colour)


def _title(session: Session, block: Block) -> str:
    from raptor.clock import SystemClock

    return f"== {when(block.at, SystemClock().now(), session.zone)} run {plain(block.run)}"


def _is_new(at: float, earliest: float | None) -> bool:
    return earliest is None or at >= earliest


def _public(one: Block | dict[str, Any]) -> dict[str, Any]:
    if isinstance(one, Block):
        made: dict[str, Any] = {"at": one.at, "event": "output", "service": one.service, "run": one.run}
        return {**public(made), "lines": one.lines}
    return {**public(one)}


def _narrator(session: Session) -> Narrator:
    return Narrator(session.zone, ansi if session.colour else no_paint)


def _services(home: Path) -> list[str]:
    return sorted(file.stem for file in (home / "logs").glob("*.log"))


def _blocks(home: Path, service: str) -> Iterator[Block]:
    """The runs in a service's log files, oldest first."""
    block: Block | None = None
    for name in (f"{service}.log.2", f"{service}.log.1", f"{service}.log"):
        try:
            data = (home / "logs" / name).read_bytes()
        except FileNotFoundError:
            continue
        for line in data.splitlines():
            header = HEADER.fullmatch(line)
            if header is not None:
                if block is not None:
                    yield block
                at = datetime.fromisoformat(header[3].decode()).timestamp()
                block = Block(at, service, header[1].decode())
            else:
                block = block or Block(0.0, service)
                block.lines.append(line.decode(errors="replace"))
    if block is not None:
        yield block


def _tails(session: Session, service: str | None) -> dict[str, Tail]:
    home = session.config.home
    names = [service] if service is not None else _services(home)
    tails = {name: Tail(home / "logs" / f"{name}.log") for name in names}
    return tails if service is not None else {**tails, "": Tail(home / NAME)}


def _follow(session: Session, service: str | None, tails: dict[str, Tail]) -> None:
    """Forever: what is added to the files, and files that are new."""
    home, narrator = session.config.home, _narrator(session)
    while True:
        for name, tail in list(tails.items()):
            for line in tail.lines():
                _show_new(session, narrator, name, line, prefixed=service is None)
        if service is None:
            for name in _services(home):
                if name not in tails:
                    tails[name] = Tail(home / "logs" / f"{name}.log", from_start=True)
        sys.stdout.flush()
        time.sleep(POLL_S)


def _show_new(session: Session, narrator: Narrator, name: str, line: bytes, *, prefixed: bool) -> None:
    if name == "":
        record = decode(line)
        text = None if record is None else narrator.line(record)
        if session.json:
            text = line.decode(errors="replace")
        if text is not None:
            click.echo(text, color=session.colour)
    elif HEADER.fullmatch(line) is None:
        shown = plain(line.decode(errors="replace").replace("\t", "    "))
        click.echo(f"{plain(name)} | {shown}" if prefixed else shown)
