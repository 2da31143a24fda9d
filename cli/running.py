"""Commands that make things run, or stop: start, schedule, stop, pause, resume, run, reload."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raptor.cli import door
from raptor.cli.session import NOT_RECORDED, Session, command, pass_session, talk
from raptor.client import Refused, is_listening
from raptor.state.lock import is_alive

if TYPE_CHECKING:
    from raptor.cli.chronicle import Tail
    from raptor.cli.live import Live

LAST_WORDS_S = 1.0  # for those of a node that has ended; one inside another program says none


@command("start")
@click.argument("name", required=False)
@click.option("--interval", metavar="10s|auto", help="How often to check; auto wakes when something is due.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="A Python module of services.")
@click.option("--detach", is_flag=True, help="Run in the background; returns when it runs.")
@click.option("--cycles", type=click.IntRange(min=1), metavar="N", help="Stop after N cycles; exit 1 if one failed.")
@click.option("--grace", default="30s", show_default=True, metavar="30s", help="How long a service may finish.")
@click.option("--all", "every", is_flag=True, help="Every scheduler that is defined.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Lines for people or for programs.")
@click.option("--metrics", metavar="HOST:PORT", help="Answer GET /metrics there, for Prometheus.")
@click.option("--no-standby", is_flag=True, help="Exit 5 where another node of the store has the scheduler.")
@click.option("--detached", is_flag=True, hidden=True)
@pass_session
def start(
    session: Session,
    name: str | None,
    interval: str | None,
    modules: tuple[str, ...],
    detach: bool,
    cycles: int | None,
    grace: str,
    every: bool,
    log_format: str | None,
    metrics: str | None,
    no_standby: bool,
    detached: bool,
) -> int:
    """Run a scheduler in the foreground.

    Where a node already runs on the state directory, the scheduler is started there and its lines are followed; Ctrl-C
    leaves it running. On a store that nodes share, one of them runs the scheduler and the others stand by for it.
    SIGTERM and Ctrl-C stop in order, a second one at once; SIGHUP reads the settings anew.
    """
    from raptor.cli.starting import begin

    if (name is None) == (not every):
        raise click.UsageError("name one scheduler, or give --all")
    given = {"module": list(modules), "log.format": log_format, "metrics.listen": metrics}
    session.flags |= {name: value for name, value in given.items() if value not in (None, [])}
    return begin(
        session,
        name,
        interval=interval,
        every=every,
        cycles=cycles,
        grace=grace,
        detach=detach,
        detached=detached,
        standby=not no_standby,
    )


@command("schedule", reading=True)
@click.argument("name")
@click.argument("services", nargs=-1, metavar="SERVICE[=24h|='cron 30 2 * * *']...")
@click.option("--add", is_flag=True, help="Add to the list, or change an interval.")
@click.option("--remove", is_flag=True, help="Take from the list.")
@click.option("--force", is_flag=True, help="Names need not be known yet.")
@pass_session
def schedule(session: Session, name: str, services: tuple[str, ...], add: bool, remove: bool, force: bool) -> None:
    """Set the services of a scheduler, in the order in which they run.

    A running scheduler looks at once; otherwise the list is kept for the next start.
    """
    if add and remove:
        raise click.UsageError("either --add or --remove")
    if not services and (add or remove):
        raise click.UsageError("name at least one service")
    answer = session.call("schedule", name=name, services=list(services), add=add, remove=remove, force=force)
    if session.json:
        return session.print_json(answer)
    from raptor.cli.screens import show_outlook

    owner = answer.get("owner") or f"pid {door.owner_pid(session.config.home)}"
    show_outlook(session, answer, owner if answer["running"] else None)


@command("stop")
@click.argument("name", required=False)
@click.option("--now", is_flag=True, help="Break off what runs.")
@click.option("--grace", default="30s", show_default=True, metavar="30s", help="How long a service may finish.")
@pass_session
def stop(session: Session, name: str | None, now: bool, grace: str) -> int:
    """Stop a scheduler after its current service, or the whole node."""
    from raptor.cli.chronicle import NAME, Tail
    from raptor.duration import seconds

    grace_s = 0.0 if now else seconds(grace)
    home, pid = session.config.home, door.owner_pid(session.config.home)
    tail = Tail(home / NAME)
    answer: dict[str, Any] = {}
    try:
        answer = session.call("stop", name=name, grace_s=grace_s)
    except Refused as told:
        # The last scheduler takes the node with it, sometimes before the answer is out.
        if name is None or told.code != 3 or "closed the connection" not in str(told):
            raise
    if name is None:
        _wait_for_end(home, pid, grace_s + 20.0)
    if answer.get("ended") is False:
        raise Refused(f"{name} was told to stop, but {answer['owner']} still runs it: raptor status shows it", 1)
    where = f" on {answer['owner']}, and wherever it stands by" if answer.get("owner") else ""
    talk(f"stopped {name}{where}" if name is not None else f"stopped the node (pid {pid})")
    return _last_words(session, tail, pid) if name is None else 0


def _last_words(session: Session, tail: Tail, pid: int | None) -> int:
    """Say what the node could not record, by its last words, which come when it has let go of the directory."""
    import time

    from raptor.cli.chronicle import decode
    from raptor.cli.narrator import Narrator

    narrator, code, pause = Narrator(session.zone), 0, 0.02
    for patience in range(int(LAST_WORDS_S / pause), -1, -1):
        over = not patience or pid is None or not is_alive(pid)
        for record in map(decode, tail.lines()):
            if record is not None and record["event"] == "not_recorded":
                code = NOT_RECORDED
                talk(narrator.line(record) or "")
            over = over or (record is not None and record["event"] == "stopped")
        if over:
            break
        time.sleep(pause)
    return code


def _wait_for_end(home: Any, pid: int | None, patience_s: float) -> None:
    """The node answers before it has ended."""
    import time

    from raptor.errors import CallTimeout

    pause = 0.02
    for _ in range(int(patience_s / pause)):
        if door.owner_pid(home) != pid or pid is None or not is_alive(pid):
            return
        time.sleep(pause)
    raise CallTimeout(f"process {pid} has not ended after {patience_s:g} s: `raptor stop --now`, or kill it")


@command("pause")
@click.argument("name")
@click.option("--queue", is_flag=True, help="It is a queue, whatever else has that name.")
@click.option("--note", default="", metavar="TEXT", help="Why, for whoever looks.")
@pass_session
def pause(session: Session, name: str, queue: bool, note: str) -> None:
    """Hold a scheduler, a service wherever it is listed, or a queue.

    Slots meanwhile are skipped, not made up for; the tasks of a queue wait.
    """
    answer = _hold(session, name, queue, paused=True, note=note)
    talk(f"paused {name}{_within(name, answer)}: raptor resume {name} lets it go on")


@command("resume")
@click.argument("name")
@click.option("--queue", is_flag=True, help="It is a queue, whatever else has that name.")
@pass_session
def resume(session: Session, name: str, queue: bool) -> None:
    """Let a held scheduler or service run again, from its next slot on, or a queue."""
    answer = _hold(session, name, queue, paused=False, note="")
    talk(f"resumed {name}{_within(name, answer)}")


def _hold(session: Session, name: str, queue: bool, *, paused: bool, note: str) -> dict[str, Any] | None:
    """Hold what has that name, or let it go; None: it is a queue."""
    from raptor.errors import NoSuchName, did_you_mean

    if not queue:
        try:
            return session.call("pause", name=name, note=note) if paused else session.call("resume", name=name)
        except (NoSuchName, Refused) as error:
            if getattr(error, "code", 4) != 4:
                raise
            known = [one["queue"] for one in session.call("queues")["queues"]]
            if name not in known:
                if not did_you_mean(name, known):
                    raise
                raise NoSuchName("scheduler, service or queue", name, known) from None
    session.call("queue", name=name, paused=paused, note=note)
    return None


def _within(name: str, answer: dict[str, Any] | None) -> str:
    if answer is None:
        return " (a queue)"
    where = [scheduler for scheduler in answer["schedulers"] if scheduler != name]
    return f" in {', '.join(where)}" if where else ""


@command("run", reading=True)
@click.argument("service")
@pass_session
def run(session: Session, service: str) -> int:
    """Run a service once, now, and show what it prints. Its timing is left alone."""
    from raptor.cli.screens import show_run
    from raptor.runners.printed import leading_prints

    try:
        with leading_prints(), _following(session, service) as live:
            answer = session.call("run", service=service)
    except KeyboardInterrupt:
        if is_listening(session.config.home):
            talk(f"{service} goes on in the node: raptor history {service} shows its result")
        else:
            talk(f"interrupted {service}")
        return 130
    if session.json:
        session.print_json(answer)
    else:
        seen = live is not None and live.run == answer["id"]
        show_run(session, {**answer, "tail": ""} if seen else answer)
    return {"ok": 0, "timed_out": 124, "interrupted": 130}.get(answer["outcome"], 1)


def _following(session: Session, service: str) -> AbstractContextManager[Live | None]:
    # A name that would be a path elsewhere is refused by whoever runs it.
    if session.json or Path(service).name != service or not service.isprintable():
        return nullcontext()
    from raptor.cli.live import Live

    return Live(session.config.home / "logs" / f"{service}.log")


@command("reload")
@pass_session
def reload(session: Session) -> None:
    """Have the node read raptor.toml and the modules anew. A wrong one changes nothing."""
    answer = session.call("reload")
    talk(f"reloaded: {len(answer['services'])} services")
