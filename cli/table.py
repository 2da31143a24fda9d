"""Rows under a head: plain and aligned, or with rich where a terminal is too narrow for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from raptor.cli.paint import Paint, ansi, no_paint
from raptor.cli.session import Session
from raptor.cli.words import plain


class Cell(NamedTuple):
    """A text and its colour, which never says more than the text."""

    text: str
    colour: str = ""


GAP = "   "
GOOD, BAD, DIM, WARN = "green", "red", "dim", "yellow"
RESULTS = {
    "ok": Cell("✓ ok", GOOD),
    "failed": Cell("✗ failed", BAD),
    "timed_out": Cell("✗ timed out", BAD),
    "interrupted": Cell("◌ interrupted", WARN),
    None: Cell("▶ running", "cyan"),
}


def table(session: Session, head: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> None:
    """Print rows under a head."""
    cells = [[Cell(title, "bold") for title in head]]
    cells += [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = [max(len(plain(row[column].text)) for row in cells) for column in range(len(head))]
    if sys.stdout.isatty() and sum(widths) + len(GAP) * (len(head) - 1) > _columns():
        return _rich(session, head, cells[1:])  # it knows how to fold; what fits does without its import
    for row in cells:
        click.echo(_aligned(row, widths, ansi if session.colour else no_paint), color=session.colour)


def _columns() -> int:
    import shutil  # slow to import, and only a terminal has columns

    return shutil.get_terminal_size().columns


def _aligned(row: Sequence[Cell], widths: Sequence[int], paint: Paint) -> str:
    made = ""
    for cell, width in zip(row, widths, strict=True):
        text = plain(cell.text)
        made += (paint(text, cell.colour) if cell.colour and text else text) + " " * (width - len(text)) + GAP
    return made.rstrip()


def _rich(session: Session, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in head:
        made.add_column(Text(title), overflow="fold")
    for row in rows:
        # Text, not markup: a name is shown as it is, whatever it holds.
        made.add_row(*(Text(plain(cell.text), style=cell.colour) for cell in row))
    console(session).print(made)


def console(session: Session) -> Any:
    from rich.console import Console

    return Console(no_color=not session.colour, markup=False, highlight=False, emoji=False)
