"""`raptor store`: make the schema of a store that nodes share, look at what it promises, print what a role needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from raptor.cli.session import Reading, Session, pass_session
from raptor.cli.words import plain

if TYPE_CHECKING:
    from raptor.state.postgres.address import Address
    from raptor.state.postgres.checking import Looked

HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


@click.group("store", context_settings=HELP)
def store() -> None:
    """Make and look at a store that nodes share."""


@store.command("migrate", cls=Reading, context_settings=HELP)
@pass_session
def migrate(session: Session) -> None:
    """Create the schema, or bring it up to this version, as a role that may. Nodes may go on meanwhile."""
    from raptor.clock import SystemClock
    from raptor.state.postgres.checking import bring_up

    address = address_of(session)
    before, after = SystemClock().run(lambda: bring_up(address))
    if session.json:
        return session.print_json({"store": address.shown, "before": before, "after": after})
    if before == after:
        return click.echo(f"{plain(address.shown)}: nothing to do, the schema has version {after}")
    was = "there was none" if before == 0 else f"before: {before}"
    click.echo(f"{plain(address.shown)}: the schema has version {after} ({was})")


@store.command("check", cls=Reading, context_settings=HELP)
@pass_session
def check(session: Session) -> int:
    """What the server promises of a commit, what a pooler turns off, and what is missing. Exit 1 if anything is."""
    lines = look(session)
    if session.json:
        told = [{"check": one.about, "ok": one.well, "text": one.text} for one in lines]
        session.print_json({"ok": all(one.well for one in lines), "checks": told})
    else:
        for one in lines:
            mark = click.style("✓ ok   ", fg="green") if one.well else click.style("✗ wrong", fg="red")
            click.echo(f"{mark}  {one.about:<8}  {plain(one.text)}", color=session.colour)
    return 0 if all(one.well for one in lines) else 1


@store.command("grants", cls=Reading, context_settings=HELP)
@click.argument("role")
@click.option(
    "--to",
    type=click.Choice(["work", "put", "look"]),
    default="work",
    show_default=True,
    help="What the role is for: to run nodes, to put tasks alone, to look.",
)
@pass_session
def grants(session: Session, role: str, to: Any) -> None:
    """Print the statements that let a role use the store, for its owner to run."""
    from raptor.state.postgres.address import SCHEMA
    from raptor.state.postgres.grants import statements

    schema = SCHEMA if session.config.store is None else address_of(session).schema
    lines = statements(role, schema, to)
    if session.json:
        return session.print_json({"statements": lines})
    click.echo("\n".join(map(plain, lines)))


def look(session: Session) -> list[Looked]:
    from raptor.clock import SystemClock
    from raptor.state.postgres.checking import examine

    clock, address = SystemClock(), address_of(session)
    return clock.run(lambda: examine(address, clock))


def address_of(session: Session) -> Address:
    """Of PostgreSQL: the other stores have nothing to be made, granted or asked."""
    from importlib.util import find_spec

    from raptor.errors import BadInput
    from raptor.masked import masked
    from raptor.state.postgres.address import read

    given = session.config.store
    if given is None:
        raise BadInput("name the store: --store postgresql://user@host/database, or RAPTOR_STORE")
    if not given.startswith(("postgresql:", "postgres:")):
        raise BadInput(f"store {masked(given)!r} needs none of this: it is for postgresql://")
    if find_spec("psycopg") is None:
        raise BadInput("PostgreSQL needs psycopg: pip install 'raptor-scheduler[postgres]'")
    return read(given)
