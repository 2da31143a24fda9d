"""How `start` begins: as a node of its own, on the node that already runs, or in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raptor.cli import door
from raptor.cli.session import Session, talk
from raptor.client import Refused, Unanswered, ask, is_listening
from raptor.errors import NotRunning
from raptor.state.lock import is_alive

if TYPE_CHECKING:
    from raptor.cli.chronicle import Record, Tail

PATIENCE_S = 10.0  # for a node that is just beginning, or ending
PAUSE_S = 0.05
LOOK_S = 0.2  # between two looks at what a node tells


def begin(
    session: Session,
    name: str | None,
    *,
    interval: str | None,
    every: bool,
    cycles: int | None,
    grace: str,
    detach: bool,
    detached: bool,
    standby: bool = True,
) -> int:
    from raptor.duration import seconds
    from raptor.service import read_interval
    from raptor.timing import check_name

    # Whatever is wrong with the words is said before anything is touched.
    if name is not None:
        check_name(name)
    interval_s = None if interval is None else read_interval(interval)
    grace_s = seconds(grace)
    join = partial(_join, session, name, interval, detach=detach or detached, standby=standby)
    if (code := joined(session, join)) is not None:
        return code
    if detach:
        return _in_background(session, name, interval, every, cycles, grace, standby)
    from raptor.cli.firstprocess import step_aside

    step_aside()
    from raptor.cli.foreground import Wanted, live

    wanted = Wanted(
        name=name,
        interval=interval,
        interval_s=interval_s,
        every=every,
        cycles=cycles,
        grace_s=grace_s,
        detached=detached,
        standby=standby,
    )
    return live_or_join(session, partial(live, session, wanted), join)


def joined(session: Session, join: Callable[[], int]) -> int | None:
    """Have the node that runs do it; -> None where there is none, or it ends before it can."""
    if not is_listening(session.config.home):
        return None
    try:
        return join()
    except (NotRunning, Unanswered):
        return None


def live_or_join(session: Session, live: Callable[[], int], join: Callable[[], int]) -> int:
    """Be the node; one that was quicker is joined as soon as it answers, and one that ends is waited for."""
    from raptor.errors import AlreadyRunning

    for patience in range(int(PATIENCE_S / PAUSE_S), -1, -1):
        try:
            return live()
        except AlreadyRunning:
            if not patience:
                raise
        if (code := joined(session, join)) is not None:
            return code
        time.sleep(PAUSE_S)
    raise AssertionError


def _join(session: Session, name: str | None, interval: str | None, *, detach: bool, standby: bool = True) -> int:
    """Start the scheduler on the running node, and follow it; NotRunning if that has just ended."""
    home = session.config.home
    pid = door.owner_pid(home)
    from raptor.cli.chronicle import NAME, Tail

    tail = Tail(home / NAME)
    check_metrics(session, pid)
    modules = {"modules": list(session.flags.get("module") or ()), "folder": os.getcwd()}
    names = [name] if name is not None else _stopped(session)
    for one in names:
        try:
            ask(home, "start", {"name": one, "interval": interval, "standby": standby, **modules})
        except Refused as told:
            if told.code == 5 and standby:
                advice = f"raptor status {one} shows it, raptor stop {one} stops it"
                raise Refused(f"scheduler {one} already runs (pid {pid}): {advice}", 5) from None
            raise
    if not names:
        raise Refused(f"every scheduler already runs (pid {pid}): raptor status shows them", 5)
    talk(f"started {', '.join(names)} on the node that runs here (pid {pid})")
    if detach:
        return 0
    return follow(
        session,
        pid,
        tail,
        wants=lambda record: record.get("scheduler") in (None, *names),
        several=len(names) > 1,
        again=f"raptor start {names[0]} takes up where it was",
        bye=f"{', '.join(names)} goes on in process {pid}; raptor stop {names[0]} stops it",
    )


def check_metrics(session: Session, pid: int | None) -> None:
    """A door for metrics is opened when its node starts: another one is refused, with the way to it."""
    if session.flags.get("metrics.listen") is None:
        return
    settings = ask(session.config.home, "config", {})["settings"]
    has = next(one["value"] for one in settings if one["name"] == "metrics.listen")
    if has != str(session.config.metrics.listen):
        where = "answers for no metrics" if has == "-" else f"answers for metrics on {has}"
        raise Refused(f"the node that runs here (pid {pid}) {where}: `raptor stop`, and start it again", 6)


def _stopped(session: Session) -> list[str]:
    answer = ask(session.config.home, "status", {})
    return [one["name"] for one in answer["schedulers"] if one["state"] in ("stopped", "interrupted")]


def follow(
    session: Session,
    pid: int | None,
    tail: Tail,
    *,
    wants: Callable[[Record], bool],
    over: Callable[[], int | None] = lambda: None,
    stopped: Callable[[], int] = lambda: 0,
    gone: Callable[[], int | None] = lambda: None,
    several: bool = False,
    again: str,
    bye: str,
) -> int:
    """Show what the node tells, until it ends, or `over` has an exit code, or Ctrl-C.

    `stopped` has that of an orderly end of the node, `gone` that of another, where it does not matter.
    """
    from raptor.cli.chronicle import decode, encode
    from raptor.cli.narrator import Narrator
    from raptor.cli.paint import ansi, no_paint

    home = session.config.home
    narrator = Narrator(session.zone, ansi if session.colour else no_paint)
    narrator.several = several
    as_json = session.config.log.format == "json"
    patience = int(PATIENCE_S / LOOK_S)
    try:
        while True:
            code, silent = over(), not is_listening(home)  # before the last lines are read
            # It closes its door first, then its store, and says that it has stopped as the last thing it does.
            has_ended = silent and (pid is None or not is_alive(pid) or patience <= 0)
            patience -= silent and door.owner_pid(home) != pid  # it may take any time to close the store
            for line in tail.lines():
                record = decode(line)
                if record is None or not wants(record):
                    continue
                if record["event"] == "stopped":
                    talk(f"the node (pid {pid}) has stopped")
                    return stopped()
                shown = encode(record).decode().rstrip() if as_json else narrator.line(record)
                if shown is not None:
                    print(shown, flush=True)
            if code is not None:
                return code
            if has_ended:
                code = gone()
                if code is None:
                    talk(f"the node (pid {pid}) has ended: {again}")
                return 1 if code is None else code
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        talk(f"\ndetached: {bye}")
        return 0


def _in_background(
    session: Session,
    name: str | None,
    interval: str | None,
    every: bool,
    cycles: int | None,
    grace: str,
    standby: bool,
) -> int:
    words = ["start", "--grace", grace]
    words += [name] if name is not None else []
    words += ["--all"] if every else []
    words += [] if standby else ["--no-standby"]
    words += ["--interval", interval] if interval is not None else []
    words += ["--cycles", str(cycles)] if cycles is not None else []
    return detach_as(session, words, name if name is not None else "all schedulers")


def detach_as(session: Session, command: list[str], what: str) -> int:
    """A process of its own session; this one returns when it runs, or says why it does not."""
    flags = session.flags
    words = [sys.executable, "-m", "raptor"]
    # Not as a word of the command line, which others can read.
    environ = {**os.environ, "RAPTOR_STORE": str(flags["store"])} if flags.get("store") else None
    for option in ("home", "config", "tz", "color"):
        if flags.get(option):
            words += [f"--{option}", str(flags[option])]
    words += [*command, "--detached"]
    words += ["--log-format", flags["log.format"]] if flags.get("log.format") else []
    words += ["--metrics", flags["metrics.listen"]] if flags.get("metrics.listen") else []
    for module in flags.get("module", ()):
        words += ["-m", module]
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            words,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert child.stdout is not None
        with child.stdout:
            told = child.stdout.readline()
        if told == b"ready\n":
            home = session.config.home
            talk(f"started {what} in the background (pid {child.pid}) · raptor status · raptor logs · state {home}")
            child.returncode = 0  # it is nobody's to wait for
            return 0
        code = child.wait()
        errors.seek(0)
        sys.stderr.write(errors.read().decode(errors="replace"))
        return code if code >= 0 else 1  # 0: another was quicker, and does it
