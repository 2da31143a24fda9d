"""Commands that look at tasks and queues: tasks, task, dead, queues. The last can set a queue as well."""

from __future__ import annotations

from typing import Any

import click

from raptor.cli.session import Session, command, pass_session
from raptor.cli.tasks import ID
from raptor.client import is_listening

STATES = ("ready", "delayed", "taken", "done", "dead", "cancelled")


@command("tasks", reading=True)
@click.option("--state", type=click.Choice(STATES), help="Only those; delayed are ready, but not due yet.")
@click.option("--queue", metavar="QUEUE", help="Only those of a queue.")
@click.option("--service", metavar="SERVICE", help="Only those of a service.")
@click.option("--key", metavar="KEY", help="Only those with a key.")
@click.option("-n", "count", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many tasks.")
@pass_session
def tasks(
    session: Session, state: str | None, queue: str | None, service: str | None, key: str | None, count: int
) -> None:
    """Tasks, newest first."""
    from raptor.cli.task_screens import show_tasks

    answer = session.call("tasks", state=state, queue=queue, service=service, key=key, limit=count)
    if session.json:
        return session.print_json(answer)
    show_tasks(session, answer, is_cut=len(answer["tasks"]) == count)


@command("task", reading=True)
@click.argument("id", type=ID)
@pass_session
def task(session: Session, id: int) -> None:
    """The whole life of a task: put, tries, result, error, and the tasks that it put."""
    from raptor.cli.task_life import show_task

    answer = session.call("task", id=id)
    if session.json:
        return session.print_json(answer)
    show_task(session, answer)


@command("dead", reading=True)
@click.option("--queue", metavar="QUEUE", help="Only those of a queue.")
@click.option("--service", metavar="SERVICE", help="Only those of a service.")
@click.option("-n", "count", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many tasks.")
@pass_session
def dead(session: Session, queue: str | None, service: str | None, count: int) -> None:
    """Tasks that are not tried any more, and why."""
    from raptor.cli.task_screens import show_dead

    answer = session.call("tasks", state="dead", queue=queue, service=service, limit=count)
    if session.json:
        return session.print_json(answer)
    show_dead(session, answer)


@command("queues", reading=True)
@click.argument("name", required=False)
@click.option("--concurrency", metavar="N|none", help="How many of its tasks run at a time.")
@click.option("--rate", metavar="100/s|none", help="How many of its tasks start in a time.")
@click.option("--processors", metavar="N|none", help="How many places of a worker it may fill.")
@click.option("--batch-size", metavar="N", help="How many tasks it gives before the next queue has its turn.")
@click.option("--lease", metavar="60s", help="How long a task is somebody's before that is renewed.")
@click.option("--max-attempts", metavar="N|unlimited", help="Of tasks that say nothing themselves.")
@click.option("--pause", "--resume", "hold", is_flag=True, hidden=True)
@pass_session
def queues(session: Session, /, name: str | None, hold: bool, **settings: str | None) -> None:
    """Queues, how they are set, and how many tasks each has. With options it sets one, for good."""
    from raptor.cli.task_screens import show_queues
    from raptor.cli.task_words import read_count
    from raptor.errors import NoSuchName

    if hold:
        whose = name or "NAME"
        raise click.UsageError(f"`raptor pause {whose}` holds a queue, `raptor resume {whose}` lets it go on")
    given: dict[str, Any] = {key: value for key, value in settings.items() if value is not None}
    given = {key: value if key in ("rate", "lease") else read_count(value) for key, value in given.items()}
    if given and name is None:
        raise click.UsageError("name the queue that is to be set")
    if given:
        session.call("queue", name=name, **given)
    answer = session.call("queues")
    if name is not None:
        known = [one["queue"] for one in answer["queues"]]
        if name not in known:
            raise NoSuchName("queue", name, known, hint="`raptor queues` lists them")
        answer["queues"] = [one for one in answer["queues"] if one["queue"] == name]
    if session.json:
        return session.print_json(answer)
    show_queues(session, answer, running=is_listening(session.config.home))
