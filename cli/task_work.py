"""`raptor work`: turn queues, as a node of its own or by the one that runs."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import click

from raptor.cli import door
from raptor.cli.session import Session, command, pass_session, talk
from raptor.client import Refused, ask
from raptor.errors import BadInput, NotRunning

Answer: TypeAlias = dict[str, Any]


@command("work")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@click.option("--processors", type=click.IntRange(1, 100_000), metavar="N", help="How many tasks run at a time.")
@click.option("--burst", is_flag=True, help="Run what is due, and end; exit 1 if a task died.")
@click.option("--grace", default="30s", show_default=True, metavar="30s", help="How long tasks may finish.")
@click.option("-m", "--module", "modules", multiple=True, metavar="MODULE", help="A Python module of services.")
@click.option("--detach", is_flag=True, help="Run in the background; returns when it runs.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Lines for people or for programs.")
@click.option("--metrics", metavar="HOST:PORT", help="Answer GET /metrics there, for Prometheus.")
@click.option("--detached", is_flag=True, hidden=True)
@pass_session
def work(
    session: Session,
    queues: tuple[str, ...],
    processors: int | None,
    burst: bool,
    grace: str,
    modules: tuple[str, ...],
    detach: bool,
    log_format: str | None,
    metrics: str | None,
    detached: bool,
) -> int:
    """Run the tasks of some queues, or of all, in the foreground. No scheduler is started.

    Where a node already runs on the state directory it does the work, and its lines are followed; Ctrl-C leaves it
    running. SIGTERM and Ctrl-C let tasks finish within the grace, a second one returns them to their queues at once.
    """
    from raptor.cli.starting import joined, live_or_join
    from raptor.duration import seconds
    from raptor.timing import check_name

    for name in queues:
        check_name(name)
    grace_s = seconds(grace)
    given: dict[str, Any] = {"worker.queues": list(queues), "worker.processors": processors, "module": list(modules)}
    given |= {"log.format": log_format, "metrics.listen": metrics}
    session.flags |= {name: value for name, value in given.items() if value not in (None, [])}
    join = partial(_join, session, queues, processors, burst=burst, detach=detach or detached)
    if (code := joined(session, join)) is not None:
        return code
    if not session.config.worker.processors:
        raise BadInput("worker.processors is 0: give --processors N")
    if detach:
        return _in_background(session, queues, processors, grace, burst)
    from raptor.cli.firstprocess import step_aside

    step_aside()
    from raptor.cli import task_node

    wanted = task_node.Work(grace_s=grace_s, detached=detached, burst=burst)
    return live_or_join(session, partial(task_node.work, session, wanted), join)


def _in_background(session: Session, queues: tuple[str, ...], processors: int | None, grace: str, burst: bool) -> int:
    from raptor.cli.starting import detach_as

    words = ["work", *queues, "--grace", grace, *(["--burst"] if burst else [])]
    words += ["--processors", str(processors)] if processors is not None else []
    return detach_as(session, words, "work")


def _join(session: Session, queues: tuple[str, ...], processors: int | None, *, burst: bool, detach: bool) -> int:
    """Have the running node do it, and follow; NotRunning if it has just ended."""
    from raptor.cli.chronicle import NAME, Tail
    from raptor.cli.starting import check_metrics, follow

    home = session.config.home
    pid, tail = door.owner_pid(home), Tail(home / NAME)
    answer = ask(home, "queues", {})
    _check(session, answer["worker"], queues, processors, pid)
    check_metrics(session, pid)
    watch = _Burst(session, queues) if burst else None
    talk(f"the node that runs here (pid {pid}) turns {', '.join(queues) or 'the queues'}")
    if detach:
        return 0
    return follow(
        session,
        pid,
        tail,
        wants=lambda record: not queues or record.get("queue") in queues or record["event"] == "stopped",
        over=(lambda: None) if watch is None else watch.over,
        stopped=(lambda: 0) if watch is None else watch.stopped,
        gone=(lambda: None) if watch is None else watch.result,
        again="raptor work takes up where it was",
        bye=f"the queues go on in process {pid}; raptor stop stops it",
    )


def _check(session: Session, worker: Answer, queues: tuple[str, ...], processors: int | None, pid: int | None) -> None:
    """A worker is set when its node starts: what it does not do is refused, with the way to it."""
    node = f"the node that runs here (pid {pid})"
    again = "`raptor stop` ends it; start it again with what it is to do, or with that in [worker] of raptor.toml"
    if not worker["processors"]:
        raise Refused(f"{node} runs no tasks: {again}", 6)
    if processors not in (None, worker["processors"]):
        advice = f"`raptor queues NAME --processors {processors}` limits one queue; else {again}"
        raise Refused(f"{node} runs {worker['processors']} tasks at a time: {advice}", 6)
    others = [name for name in queues if worker["queues"] and name not in worker["queues"]]
    if others:
        raise Refused(f"{node} turns only {', '.join(worker['queues'])}: {again}", 6)
    if session.flags.get("module"):
        raise Refused(f"{node} has its own modules: name them in raptor.toml and `raptor reload`", 6)


class _Burst:
    """Looks whether anything is left to do on the running node."""

    def __init__(self, session: Session, queues: tuple[str, ...]) -> None:
        self._session = session
        self._home = session.config.home
        self._queues = queues
        self._before = _dead(self._ask())

    def over(self) -> int | None:
        """The exit code, when nothing is left."""
        try:
            found = self._ask()
        except (NotRunning, Refused):
            return None  # it is ending, which is told elsewhere
        return None if has_work(found) else self._code(found)

    def stopped(self) -> int:
        """The exit code when the node has stopped in order."""
        code = self.result()
        if code is None:
            talk("tasks are left: raptor work --burst takes them up")
        return 3 if code is None else code

    def result(self) -> int | None:
        """The exit code when the node is gone, if nothing is left: the last look may have been before its last task."""
        found = of(self._queues, self._session.call("queues")["queues"])
        return None if has_work(found) else self._code(found)

    def _code(self, found: list[Answer]) -> int:
        return int(_dead(found) > self._before)

    def _ask(self) -> list[Answer]:
        return of(self._queues, ask(self._home, "queues", {})["queues"])


def _dead(queues: list[Answer]) -> int:
    return sum(one["dead"] for one in queues)


def of(names: tuple[str, ...], queues: list[Answer]) -> list[Answer]:
    """Those of these names; without any, all."""
    return [one for one in queues if not names or one["queue"] in names]


def has_work(queues: list[Answer]) -> bool:
    """Whether something runs, or is due and may run."""
    return any(one["taken"] or (one["ready"] and not one["paused"]) for one in queues)
