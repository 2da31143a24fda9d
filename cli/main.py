"""The command `raptor`: its group, and what holds for every command under it.

A command's module is imported when it is asked for, so that each starts as fast as it can.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import Any, cast

import click

from raptor import __version__
from raptor.cli.session import Session, shared_options

COMMANDS = {
    "init": "project",
    "start": "running",
    "schedule": "running",
    "status": "looking",
    "stop": "running",
    "pause": "running",
    "resume": "running",
    "run": "running",
    "put": "tasks",
    "work": "task_work",
    "tasks": "task_looking",
    "task": "task_looking",
    "wait": "tasks",
    "cancel": "tasks",
    "retry": "tasks",
    "dead": "task_looking",
    "drop": "tasks",
    "queues": "task_looking",
    "next": "looking",
    "history": "looking",
    "logs": "logs",
    "why": "looking",
    "tree": "looking",
    "doctor": "doctor",
    "config": "looking",
    "state": "mending",
    "store": "storing",
    "reload": "running",
    "torture": "torturing",
    "systemd-unit": "project",
    "completion": "project",
}
"""Where each command lives, in the order of the help."""


REFUSALS = (errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EDQUOT)
"""A place that cannot be used, whatever is tried."""


class Group(click.Group):
    """Finds commands by name, and turns every error into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"raptor.cli.{COMMANDS[cmd_name]}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from raptor.errors import did_you_mean

            advice = did_you_mean(args[0], COMMANDS) or "`raptor --help` lists them"
            raise click.UsageError(f"no command named {args[0]!r}: {advice}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Any = None, prog_name: Any = None, *more: Any, **options: Any) -> Any:
        if not options.get("standalone_mode", True):
            return super().main(args, prog_name, *more, **options)
        options["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or "raptor", *more, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read has seen enough. The interpreter would complain once more when it flushes.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except click.exceptions.Exit as stop:
            code = stop.exit_code
        except (KeyboardInterrupt, click.Abort):
            code = 130
        except Exception as error:
            code = _complain(error)
        sys.exit(code if isinstance(code, int) else 0)


def _complain(error: Exception) -> int:
    """Say what went wrong in a line; what Raptor did not foresee is raised on, with its traceback."""
    from raptor.errors import RaptorError

    if isinstance(error, click.UsageError):
        hint = "" if error.ctx is None else f"; see `{error.ctx.command_path} --help`"
        message = error.format_message().rstrip(".")
        return _tell(message[:1].lower() + message[1:] + ("" if "`" in message or "?" in message else hint), 2)
    if isinstance(error, click.ClickException):
        return _tell(error.format_message(), error.exit_code)
    cause = _cause(error)
    if isinstance(cause, PermissionError):
        where = f"{cause.filename}: " if cause.filename else ""
        return _tell(f"{where}permission denied: run as its owner, or choose another place with --home", 6)
    if isinstance(cause, OSError) and not isinstance(cause, RaptorError):  # ours may be a TimeoutError as well
        where = f"{cause.filename}: " if cause.filename else ""
        refused = cause.errno in REFUSALS
        return _tell(f"{where}{cause.strerror or cause}: `raptor doctor` looks what is wrong", 6 if refused else 1)
    if not isinstance(cause, RaptorError):
        raise error
    code = getattr(cause, "code", None)
    if code is None:
        from raptor.commands import exit_code

        code = exit_code(cause)
    return _tell(str(cause), code)


def _cause(error: object) -> object:
    """The error at the bottom: a tree that did not start wraps the reason once for each floor."""
    from raptor.errors import StartFailed

    whole, inner = error, list[object]()
    if isinstance(error, tuple):
        inner = list(cast("tuple[object, ...]", error))
    elif isinstance(error, StartFailed) or not isinstance(error, BaseException):
        # An Exit has a term, the failure of a child a reason.
        inner = [getattr(error, "reason", None), getattr(error, "term", None)]
        inner = [one for one in inner if one is not None]
    for one in inner:
        found = _cause(one)
        if isinstance(found, BaseException):
            return found
    return whole


def _tell(message: str, code: int) -> int:
    from raptor.cli.session import talk

    talk(f"raptor: {message}")
    return code


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=list[click.Parameter](shared_options(reading=True)),
    epilog="The first five minutes: raptor init, raptor start main --interval 10s, and raptor status in a second "
    "terminal. Exit codes: 0 ok, 1 failed, 2 usage, 3 not running, 4 no such name, 5 already running, 6 refused, "
    "7 stopped and not all was recorded, 124 timed out, 130 interrupted.",
)
@click.version_option(__version__, "-V", "--version", message="raptor %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """Run services on time and keep them running, the way Erlang/OTP would."""
    context.ensure_object(Session)
