"""The command `raptor`: its group, and what holds for every command under it."""

import click

from raptor import __version__


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="This release is the ground floor, actors and supervisors; the commands come with the "
    "scheduler. See them at work in a clone of the project: make run",
)
@click.version_option(__version__, "-V", "--version", message="raptor %(version)s")
def main() -> None:
    """Run services on time and keep them running, the way Erlang/OTP would."""
