"""Commands: an argument list without a shell, in a process group of its own."""

from __future__ import annotations

import errno
import os
import shutil

from raptor.clock import Clock
from raptor.errors import BadInput
from raptor.runners import Context, time_limit
from raptor.runners.group import Ended, Group, environment, how_it_ended, how_it_timed_out
from raptor.runners.output import Recording, RunLog
from raptor.runners.text import one_line
from raptor.service import Service
from raptor.task import Outcome, Result


class CommandRunner:
    """Exit status 0 is success. Whatever the command leaves running is killed when it ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def run(self, service: Service, context: Context, log: RunLog) -> Result:
        async with Recording(log, context, self._clock):
            env = environment(context, service.env)
            try:
                group = Group(self._clock, service.argv, log=log, env=env, cwd=service.cwd)
            except (OSError, ValueError, IndexError) as error:
                why = _why_not_started(service, error, env)
                return Result(outcome=Outcome.FAILED, info=one_line(why), error=why)
            limit_s = time_limit(service)
            return _result(await group.live(limit_s), limit_s, log.tail())


def check(service: Service) -> None:
    """Refuse a command that could never be started."""
    where = f"service {service.name!r}"
    if not service.argv or not service.argv[0]:
        raise BadInput(f"{where}: command: is empty: give the program and its arguments as a list")
    for word in (*service.argv, *service.env.keys(), *service.env.values(), service.cwd or ""):
        if "\0" in word:
            raise BadInput(f"{where}: {word[:80]!r} holds a NUL, which no command line, environment or path can")
    for name in service.env:
        if not name or "=" in name:
            raise BadInput(f"{where}: env: {name!r} is no name of a variable")


def _result(ended: Ended, limit_s: float | None, tail: str) -> Result:
    last = tail.rstrip("\n").rpartition("\n")[2]
    if ended.timed_out:
        why = how_it_timed_out(limit_s, ended)
        return Result(outcome=Outcome.TIMED_OUT, info=why, error=why, tail=tail)
    if ended.status == 0:
        return Result(outcome=Outcome.OK, info=one_line(last), tail=tail)
    why = how_it_ended(ended)
    info = one_line(f"{why}: {last}" if last else why)
    died = ended.status is None or ended.status < 0
    return Result(outcome=Outcome.FAILED, info=info, error=why, tail=tail, died=died)


def _why_not_started(service: Service, error: Exception, env: dict[str, str]) -> str:
    program = service.argv[0] if service.argv else ""
    if service.cwd is not None and isinstance(error, OSError) and not _usable(service.cwd):
        return f"the working directory {service.cwd!r} cannot be used: {os.strerror(error.errno or 0)}"
    match error:
        case FileNotFoundError() if os.path.exists(os.path.join(service.cwd or "", program)) and "/" in program:
            return f"{program!r} is there, but the interpreter that its first line names is not"
        case FileNotFoundError():
            return f"{program!r} was not found: give its full path, or add its folder to PATH"
        case PermissionError():
            found = shutil.which(program, mode=os.F_OK, path=env.get("PATH")) or program
            return f"{found!r} may not be executed: chmod +x it, or name its interpreter first"
        case OSError(errno=errno.ENOEXEC):
            return f"{program!r} is not a program: begin it with a #! line, or name its interpreter first"
        case _:
            return f"{program!r} could not be started: {error}"


def _usable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.X_OK)
