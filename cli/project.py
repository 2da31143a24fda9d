"""Commands about a project: init, systemd-unit, completion."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from raptor.cli.session import Session, command, pass_session, talk

TOML = """\
# Settings of Raptor. `raptor config --explain` shows what is in force, and where it came from.

module = "services"          # Python functions with @service, in services.py

[schedulers.main]            # raptor start main
services = ["hello", "report", "disk"]

[services.disk]              # any program can be a service
command = ["df", "-h", "."]
every = "1m"
"""

SERVICES = '''\
"""Two services. Raptor calls each when it is due, one after another, and remembers what became of it."""

from raptor import service


@service(every="10s")
def hello():
    """A plain function, called in a thread."""
    print("hello, world")


@service(every="30s", timeout="1m", max_attempts=3)
async def report(ctx):
    """An async one, with the context of its run: raptor logs report. When it raises it is tried again, twice."""
    ctx.log.info("attempt %s of run %s", ctx.attempt, ctx.run_id)
    return "3 rows"
'''


@command("init")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path))
@pass_session
def init(session: Session, folder: Path) -> None:
    """Write an example project: raptor.toml and services.py. Nothing is overwritten."""
    from raptor.client import Refused

    files = {folder / "raptor.toml": TOML, folder / "services.py": SERVICES}
    for file in files:
        if os.path.lexists(file):
            raise Refused(f"{file} is there already, and is left alone: choose another folder", 6)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
        click.echo(f"wrote {file}")
    inside = "" if folder == Path() else f"cd {folder} && "
    talk(f"next: {inside}raptor start main --interval 10s, and raptor status in a second terminal")


@command("systemd-unit")
@click.argument("name")
@click.option("--interval", metavar="10s|auto", help="As in start.")
@click.option("--grace", default="30s", show_default=True, metavar="30s", help="As in start.")
@pass_session
def systemd_unit(session: Session, name: str, interval: str | None, grace: str) -> None:
    """Print a unit for systemd that runs a scheduler of this project."""
    from raptor.cli.systemd import UNIT
    from raptor.duration import seconds
    from raptor.service import read_interval
    from raptor.timing import check_name

    check_name(name)
    if interval is not None:
        read_interval(interval)
    config = session.config
    words = [sys.executable, "-m", "raptor", "--home", str(config.home)]
    words += ["--config", str(config.file)] if config.file is not None else []
    words += ["start", name, "--grace", grace, *(["--interval", interval] if interval else [])]
    # In a unit a percent sign begins a specifier, and a dollar sign a variable.
    line = shlex.join(words).replace("%", "%%").replace("$", "$$")
    folder = str(config.file.parent if config.file is not None else Path.cwd())
    root = os.getuid() == 0
    click.echo(
        UNIT.format(
            name=name,
            folder=folder.replace("%", "%%"),
            command=line,
            stop_s=int(seconds(grace)) + 15,
            target="multi-user.target" if root else "default.target",
        ),
        nl=False,
    )
    place = f"/etc/systemd/system/raptor-{name}.service" if root else f"~/.config/systemd/user/raptor-{name}.service"
    user = "" if root else " --user"
    talk(f"raptor systemd-unit {name} > {place} && systemctl{user} enable --now raptor-{name}")


@command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_session
def completion(session: Session, shell: str) -> None:
    """Print the completion script of a shell: eval "$(raptor completion bash)"."""
    from click.shell_completion import get_completion_class

    from raptor.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "raptor", "_RAPTOR_COMPLETE").source())
