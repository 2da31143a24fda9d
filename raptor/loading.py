"""What a workshop knows of the tables: definitions of schedulers, how queues are set, and what others do."""

from __future__ import annotations

from collections.abc import Iterable

from raptor.rows import Definition, Line
from raptor.timetable import ELSEWHERE, Claim
from raptor.workshop import Workshop

SERVICE = "service:"
"""How the keys of rights to services begin."""


async def load_definitions(workshop: Workshop) -> None:
    for row in (await workshop.timetable.store.load("definitions")).values():
        if isinstance(row, Definition):
            learn(workshop, row)


def learn(workshop: Workshop, definition: Definition) -> None:
    """What was read may be older than what is known: this node may have changed it meanwhile."""
    known = workshop.definitions.get(definition.name)
    if known is None or known.version < definition.version:
        workshop.definitions[definition.name] = definition


async def load_lines(workshop: Workshop, defined: Iterable[Line]) -> None:
    """`defined` are those of raptor.toml: what was set by a command wins."""
    stored = await workshop.timetable.store.load("lines")
    given = {line.name: line for line in defined}
    workshop.lines = given | {name: row for name, row in stored.items() if isinstance(row, Line)}


async def look_around(workshop: Workshop) -> None:
    """On a shared store: rows and definitions as others left them, and the services that others run."""
    timetable = workshop.timetable
    await timetable.load()
    await load_definitions(workshop)
    timetable.release_all(ELSEWHERE)
    for key, grant in (await timetable.store.holders(SERVICE)).items():
        if grant.owner != workshop.owner:
            timetable.claim(key.removeprefix(SERVICE), Claim(ELSEWHERE, grant.owner, 0.0))
