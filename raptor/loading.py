"""What a workshop knows of the tables: definitions of schedulers, and how queues are set."""

from __future__ import annotations

from collections.abc import Iterable

from raptor.rows import Definition, Line
from raptor.workshop import Workshop


async def load_definitions(workshop: Workshop) -> dict[str, Definition]:
    stored = await workshop.timetable.store.load("definitions")
    workshop.definitions = {name: row for name, row in stored.items() if isinstance(row, Definition)}
    return workshop.definitions


async def load_lines(workshop: Workshop, defined: Iterable[Line]) -> None:
    """`defined` are those of raptor.toml: what was set by a command wins."""
    stored = await workshop.timetable.store.load("lines")
    given = {line.name: line for line in defined}
    workshop.lines = given | {name: row for name, row in stored.items() if isinstance(row, Line)}
