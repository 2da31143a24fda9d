"""Numbers, the targets they are held against, and how both are printed."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

RAPTOR = "Raptor"
RAPTOR_ASYNC = "Raptor, async"
QUEUE = "Queue actor"
PYKKA = "Pykka, 1 core"
PYKKA_APART = "Pykka, 2 cores"
OTP = "OTP"
RAW = "raw writes"
APS_SQLITE = "APScheduler, SQLite"
APS_LATE = "APScheduler, SQLite, coalescing"
APS_MEMORY = "APScheduler, memory"
IMPORTS = "import click, rich"
HEAP = "heapq"
RAPTOR_BLOCKING = "Raptor, blocking"
RAW_SQLITE = "raw SQLite"
HUEY = "Huey"
POOL = "concurrent.futures"
BARE = "bare process"
RAW_PG = "raw PostgreSQL"
PGQUEUER = "pgqueuer"
PROCRASTINATE = "Procrastinate"
GRAPHILE = "graphile-worker"
PG_BOSS = "pg-boss"
ACTORS = (RAPTOR, RAPTOR_ASYNC, QUEUE, PYKKA, PYKKA_APART, OTP)
QUEUES = (RAPTOR_BLOCKING, RAW_SQLITE, HUEY)
ON_POSTGRES = (RAW_PG, PGQUEUER, PROCRASTINATE, GRAPHILE, PG_BOSS)
CONTESTANTS = (*ACTORS, RAW, *QUEUES, *ON_POSTGRES, APS_SQLITE, APS_LATE, APS_MEMORY, IMPORTS, HEAP, POOL, BARE)

Value: TypeAlias = float | str | None
"""A number, the reason why there is none, or None where none was meant to be."""

Printer: TypeAlias = Callable[[str, Sequence[str], Iterable[Sequence[str]]], None]

_UNITS: dict[str, Callable[[float], str]] = {
    "x": lambda value: f"{value:.2f}x" if value < 10 else f"{value:.1f}x",
    "/s": lambda value: f"{value / 1000:,.1f}k/s" if value < 1e5 else f"{value / 1000:,.0f}k/s",
    "runs/s": lambda value: f"{value:,.0f} runs/s",
    "%": lambda value: f"{value:.0f}%",
    "us": lambda value: f"{value:,.1f} us" if value < 100 else f"{value:,.0f} us",
    "ms": lambda value: f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms",
    "s": lambda value: f"{value:.2f} s",
    "kB": lambda value: f"{value:.2f} kB",
    "tasks": lambda value: f"{value:,.0f} tasks",
    "slots": lambda value: f"{value:,.0f} slots",
    "MB": lambda value: f"{value:,.1f} MB",
    "statements": lambda value: f"{value:,.0f} statements",
}


def spec(*ids: str) -> tuple[str, ...]:
    """The lines of docs/spec that a target stands for; `make spec` reads these calls."""
    return ids


@dataclass(frozen=True, kw_only=True)
class Target:
    """What Raptor is held to. `middle` is where half of the rounds lay, `otp` the same quantity of Erlang/OTP."""

    subject: str
    what: str
    loop: str = ""
    value: Value
    middle: tuple[float, float] | None = None
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    otp: Value = None
    spec: tuple[str, ...] = ()

    @property
    def limit(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:g} {self.unit}".replace(" x", "x")
        return f"at most {self.at_most:g} {self.unit}".replace(" x", "x")

    @property
    def verdict(self) -> str:
        if not isinstance(self.value, float | int):
            return "not measured"
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        return "met" if low and high else "MISSED"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One quantity, of each contestant."""

    subject: str
    what: str
    loop: str = ""
    unit: str
    values: dict[str, Value]


@dataclass(kw_only=True)
class Result:
    """What one subject found, or why nothing."""

    targets: list[Target] = field(default_factory=list[Target])
    figures: list[Figures] = field(default_factory=list[Figures])
    absent: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class Report(Result):
    """What all of them found, and on what."""

    machine: dict[str, str]
    quick: bool

    def add(self, result: Result) -> None:
        self.targets += result.targets
        self.figures += result.figures
        self.absent |= result.absent

    def as_json(self) -> str:
        targets = [asdict(target) | {"limit": target.limit, "verdict": target.verdict} for target in self.targets]
        figures = [asdict(figures) for figures in self.figures]
        whole = {
            "machine": self.machine, "quick": self.quick, "targets": targets, "figures": figures,
            "absent": self.absent,
        }  # fmt: skip
        return json.dumps(whole, indent=2) + "\n"

    def show(self) -> None:
        """A table for eyes, or Markdown for a pipe."""
        table = _rich if sys.stdout.isatty() else _markdown
        table("", ("run on", ""), self.machine.items())
        table(
            "Targets",
            ("what", "loop", RAPTOR, "half the rounds", "target", "verdict", OTP),
            [_cells(row) for row in self.targets],
        )
        for subject, rows in groupby(self.figures, key=lambda row: row.subject):
            _show_figures(table, subject, list(rows))
        if self.absent:
            table("Not measured", ("what", "why"), self.absent.items())
        print(self._closing())

    def _closing(self) -> str:
        missed = [f"{_named(row)} {row.loop}".strip() for row in self.targets if row.verdict == "MISSED"]
        verdict = f"MISSED: {'; '.join(missed)}." if missed else "No target was missed."
        return verdict + (" A quick run is not to be quoted." if self.quick else "")


def _show_figures(table: Printer, subject: str, rows: list[Figures]) -> None:
    taking_part = [who for who in CONTESTANTS if any(row.values.get(who) is not None for row in rows)]
    cells = [(row.what, row.loop, *(_text(row.values.get(who), row.unit) for who in taking_part)) for row in rows]
    table(f"Figures: {subject}", ("what", "loop", *taking_part), cells)


def _named(target: Target) -> str:
    return f"{target.what} ({', '.join(target.spec)})" if target.spec else target.what


def _cells(row: Target) -> tuple[str, ...]:
    half = "" if row.middle is None else " to ".join(_text(edge, row.unit) for edge in row.middle)
    value, otp = _text(row.value, row.unit), _text(row.otp, row.unit)
    return _named(row), row.loop, value, half, row.limit, row.verdict, otp


def _text(value: Value, unit: str) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return _UNITS[unit](value)


def _rich(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(title=title or None, title_justify="left", show_header=bool(title))
    for column in head:
        table.add_column(column, justify="left" if column in ("what", "loop", "target", "verdict") else "right")
    colours = {"met": "[green]met", "MISSED": "[bold red]MISSED", "not measured": "[yellow]not measured"}
    for row in rows:
        table.add_row(*(colours.get(cell, cell) for cell in row))
    Console().print(table)


def _markdown(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    if title:
        print(f"## {title}\n")
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()
