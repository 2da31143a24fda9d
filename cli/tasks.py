"""Commands that change tasks, or wait for them: put, wait, cancel, retry, drop."""

from __future__ import annotations

import math
from typing import Any

import click

from raptor.cli.session import Session, command, pass_session, talk
from raptor.client import Refused, is_listening

ID = click.IntRange(1, 2**63 - 1)
WAIT_S = 5.0


@command("put", reading=True)
@click.argument("service")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--in", "delay", metavar="30m", help="Due so long from now.")
@click.option("--at", metavar="TIME", help="Due then: 12:51, tomorrow 08:00, 2029-07-01 12:51.")
@click.option("--every", metavar="10m", help="Again and again, so long apart.")
@click.option("--anchor", type=click.Choice(["grid", "end"]), help="Of --every: by the clock, or from each end.")
@click.option("--cron", metavar="'0 2 * * *'", help="Again and again, at these times.")
@click.option("--timezone", metavar="ZONE", help="Of --cron; else the system's.")
@click.option("--data", metavar="JSON|@FILE|-", help="What the service is given; - is standard input.")
@click.option("--queue", metavar="QUEUE", help="Else the service's own queue.")
@click.option("--key", metavar="KEY", help="One pending task of the service for each key.")
@click.option("--key-for", metavar="1h", help="And none within that time, even when the first has ended.")
@click.option("--replace", is_flag=True, help="Give the task that holds the key this time and data instead.")
@click.option("--priority", type=click.IntRange(0, 9), metavar="0..9", help="0 goes first; else 5.")
@click.option("--max-attempts", metavar="N|unlimited", help="Runs in all before it is dead; else 3.")
@click.option("--active", metavar="1h", help="Not run any more when it is later than that.")
@click.option("--timeout", metavar="5m", help="How long one run may take; 0 is for ever.")
@click.option("--force", is_flag=True, help="The service need not be known yet.")
@click.option("--wait", is_flag=True, help="Until it has ended; its output is printed, exit 1 if it failed.")
@click.option("--wait-for", metavar="30s", help="The same, but no longer than that: exit 124.")
@pass_session
def put(
    session: Session,
    /,
    service: str,
    pairs: tuple[str, ...],
    delay: str | None,
    at: str | None,
    data: str | None,
    max_attempts: str | None,
    replace: bool,
    force: bool,
    wait: bool,
    wait_for: str | None,
    **order: Any,
) -> int:
    """Put a task: one run of a service, now or later, once or again and again.

    It is on disk when this returns. A node that runs takes it up when it is due; else it waits for `raptor work` or
    `raptor start`. NAME=VALUE gives the data field by field.
    """
    from raptor.cli.task_screens import show_put
    from raptor.cli.task_words import read_count, read_data
    from raptor.errors import NotRunning

    waits, patience_s = wait or wait_for is not None, _patience(wait_for)
    if waits and session.config.store is None and not is_listening(session.config.home):
        raise NotRunning("no node runs here that would run it: `raptor work` starts one")
    given = {name: value for name, value in order.items() if value is not None}
    given |= {} if delay is None else {"in_": delay}
    given |= {} if at is None else {"at": _moment(session, at)}
    given |= {} if max_attempts is None else {"max_attempts": read_count(max_attempts)}
    asked = {"data": read_data(data, pairs), "replace": replace, "force": force}
    answer = session.call("put", service=service, **asked, **given)
    if waits:
        return _wait(session, answer["id"], patience_s)
    if session.json:
        session.print_json(answer)
    else:
        show_put(session, answer, replaced=replace, order=given)
        if session.config.store is None and not is_listening(session.config.home):
            talk("no node runs here: raptor work runs what is due")
    return 0


def _moment(session: Session, text: str) -> float:
    """In the zone of this terminal, which need not be the node's."""
    from raptor.clock import SystemClock
    from raptor.moment import read_moment

    return read_moment(text, SystemClock().now(), session.zone)


def _patience(text: str | None) -> float | None:
    from raptor.duration import seconds

    return None if text is None else seconds(text)


@command("wait", reading=True)
@click.argument("id", type=ID)
@click.option("--timeout", metavar="30s", help="No longer than that: exit 124.")
@pass_session
def wait(session: Session, id: int, timeout: str | None) -> int:
    """Wait until a task has ended, and print its output. Exit 1 if it is dead or was cancelled."""
    return _wait(session, id, _patience(timeout))


def _wait(session: Session, id: int, patience_s: float | None) -> int:
    from raptor.cli.task_screens import show_end

    try:
        answer = _ended(session, id, patience_s)
    except KeyboardInterrupt:
        talk(f"task {id} goes on: raptor task {id} shows it")
        return 130
    if session.json:
        session.print_json(answer)
    else:
        show_end(session, answer)
    return 0 if answer["state"] == "done" else 1


def _ended(session: Session, id: int, patience_s: float | None) -> dict[str, Any]:
    """A task when it has ended. In short waits, so that a node does not go on waiting for whoever has gone."""
    from raptor.errors import CallTimeout

    left_s = math.inf if patience_s is None else patience_s
    while left_s > 0:
        try:
            return session.call("wait", id=id, timeout_s=min(WAIT_S, left_s))
        except Refused as told:
            if told.code != 124:
                raise
        left_s -= WAIT_S
    raise CallTimeout(f"task {id} has not ended within {patience_s:g} s")


@command("cancel", reading=True)
@click.argument("ids", nargs=-1, required=True, type=ID, metavar="ID...")
@click.option("--reason", default="cancelled", metavar="TEXT", help="Why, for whoever looks.")
@pass_session
def cancel(session: Session, ids: tuple[int, ...], reason: str) -> int:
    """Cancel tasks: one that waits at once, one that runs by breaking off its run.

    Exit 1 if one of them had ended already. One that repeats does not come again.
    """
    answer = session.call("cancel", ids=_once(ids), reason=reason)
    if session.json:
        session.print_json(answer)
        return int(bool(answer["ended"]))
    for id in answer["cancelled"]:
        click.echo(f"task {id} is cancelled")
    for id in answer["ending"]:
        running = is_listening(session.config.home)
        click.echo(f"task {id} runs, and is broken off" if running else f"task {id} is not taken up again")
    for id, state in answer["ended"].items():
        talk(f"task {id} had ended: it is {state}")
    return int(bool(answer["ended"]))


def _once(ids: tuple[int, ...]) -> list[int]:
    return list(dict.fromkeys(ids))


@command("retry", reading=True)
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Every dead task.")
@click.option("--queue", metavar="QUEUE", help="With --all: only those of a queue.")
@click.option("--service", metavar="SERVICE", help="With --all: only those of a service.")
@pass_session
def retry(session: Session, ids: tuple[int, ...], every: bool, queue: str | None, service: str | None) -> int:
    """Have tasks that have ended run again, from the first attempt. What was recorded of them stays."""
    answer = session.call("retry", **_chosen(ids, every, queue, service))
    revived = answer["revived"]
    held = [id for id in _once(ids) if id not in revived]
    if session.json:
        session.print_json(answer)
        return int(bool(held))
    _tell_all(revived, every, "ready again", "no dead tasks")
    for id in held:
        talk(f"task {id} stays as it is: another task has its key by now")
    if revived and session.config.store is None and not is_listening(session.config.home):
        talk("no node runs here: raptor work runs what is due")
    return int(bool(held))


@command("drop", reading=True)
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="Every dead task.")
@click.option("--queue", metavar="QUEUE", help="With --all: only those of a queue.")
@click.option("--service", metavar="SERVICE", help="With --all: only those of a service.")
@pass_session
def drop(session: Session, ids: tuple[int, ...], every: bool, queue: str | None, service: str | None) -> None:
    """Forget tasks that have ended, for good."""
    answer = session.call("drop", **_chosen(ids, every, queue, service))
    if session.json:
        return session.print_json(answer)
    _tell_all(answer["dropped"], every, "dropped", "no dead tasks")


def _chosen(ids: tuple[int, ...], every: bool, queue: str | None, service: str | None) -> dict[str, Any]:
    if bool(ids) == every:
        raise click.UsageError("name tasks by their ids, or give --all")
    if ids and (queue is not None or service is not None):
        raise click.UsageError("--queue and --service go with --all")
    return {"ids": _once(ids) if ids else None, "queue": queue, "service": service}


def _tell_all(ids: list[int], every: bool, done: str, none: str) -> None:
    if every:
        click.echo(f"{len(ids)} task{'s' * (len(ids) != 1)} {done}" if ids else none)
        return
    for id in ids:
        click.echo(f"task {id} {'is ' if done != 'dropped' else ''}{done}")
