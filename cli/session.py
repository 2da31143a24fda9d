"""What holds for every command: the global options, the settings they lead to, and where output goes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from raptor.config import Config

NOT_RECORDED = 7
"""The exit code for a node that stopped in order, and could not record all that had ended."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Session:
    """One invocation. Settings are read when they are first needed."""

    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    json: bool = False
    _config: Config | None = None

    @property
    def config(self) -> Config:
        if self._config is None:
            from raptor.config import Config

            self._config = Config.load(self.flags)
        return self._config

    @property
    def zone(self) -> tzinfo | None:
        from raptor.cli.words import zone_of

        return zone_of(self.config.tz)

    @property
    def colour(self) -> bool:
        """Whether standard output is coloured."""
        match self.config.color:
            case "always":
                return True
            case "never":
                return False
            case _:
                return sys.stdout.isatty()

    def call(self, command: str, **params: Any) -> dict[str, Any]:
        from raptor.cli import door

        return door.call(self.config, command, **params)

    def print_json(self, answer: dict[str, Any]) -> None:
        """The answer with its version, on a terminal with line breaks."""
        import json

        from raptor.cli.words import public

        text = json.dumps({"v": 1, **public(answer)}, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)
        click.echo(text)


def talk(text: str) -> None:
    """What is not data goes to standard error."""
    from raptor.cli.words import plain_lines

    click.echo(plain_lines(text), err=True)


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is None or value is False or parameter.name is None:
        return
    session = context.ensure_object(Session)
    if parameter.name == "json":
        session.json = True
    else:
        session.flags[parameter.name] = value


def shared_options(*, reading: bool, zone: bool = True) -> list[click.Option]:
    """The global options. They may stand before the command or after it."""
    options = [
        click.Option(["--home"], metavar="DIR", help="The state directory.", expose_value=False, callback=_remember),
        click.Option(
            ["--store"],
            metavar="URL",
            help="A store instead of the files in the state directory; nodes may share it.",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            help="Settings, instead of the nearest raptor.toml.",
            expose_value=False,
            callback=_remember,
        ),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            help="Colours; NO_COLOR is heeded.",
            expose_value=False,
            callback=_remember,
        ),
    ]
    if zone:
        options.append(
            click.Option(
                ["--tz"],
                metavar="ZONE",
                help="The time zone to show times in.",
                expose_value=False,
                callback=_remember,
            )
        )
    if reading:
        options.append(
            click.Option(
                ["--json"],
                is_flag=True,
                default=None,
                help="Data for programs: RFC 3339 times in UTC, durations as *_s.",
                expose_value=False,
                callback=_remember,
            )
        )
    return options


class Command(click.Command):
    """A command with the global options after its own."""

    reading = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = {option for parameter in self.params for option in parameter.opts}
        self.params += [
            option for option in shared_options(reading=self.reading) if not known.intersection(option.opts)
        ]


class Reading(Command):
    """A command that answers with data."""

    reading = True


def command(name: str, *, reading: bool = False) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of the group."""
    return click.command(
        name, cls=Reading if reading else Command, context_settings={"help_option_names": ["-h", "--help"]}
    )


pass_session = click.make_pass_decorator(Session, ensure=True)
