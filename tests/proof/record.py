"""The record of the proof: what each run of a part counted, added up. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

MOST, LONGEST = 20, 500  # violations of a run that are kept, and characters of one
BEGIN, END = "<!-- counted -->", "<!-- /counted -->"


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one part, as it wrote it itself."""

    part: str
    commit: str
    seed: int
    seconds: float
    counts: dict[str, int]
    violations: list[str]


class Past(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run as it is remembered."""

    part: str
    commit: str
    seed: int
    seconds: float
    counts: dict[str, int]
    violations: int
    told: tuple[str, ...] = ()  # the first of them in its own words, for who looks into them


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """reliability.json: the runs, oldest first, and their sums."""

    totals: dict[str, dict[str, int]]
    runs: list[Past]


def past(report: Report) -> Past:
    told = tuple(violation[:LONGEST] for violation in report.violations[:MOST])
    return Past(**{**msgspec.structs.asdict(report), "violations": len(report.violations), "told": told})


def recorded(runs: Sequence[Past]) -> Record:
    totals: dict[str, Counter[str]] = {}
    for run in runs:
        totals.setdefault(run.part, Counter()).update(run.counts)
    return Record(totals={part: dict(counts) for part, counts in totals.items()}, runs=list(runs))


def table(record: Record) -> str:
    """For people: a line for each part, then one for each run."""
    return "\n".join([*_parts(record), "", *_runs(record)])


def _parts(record: Record) -> Iterator[str]:
    yield "| part | runs | minutes | counted in all | violations |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for part, counts in record.totals.items():
        runs = [run for run in record.runs if run.part == part]
        # Those with a colon are details of another, for who looks into reliability.json.
        told = {name.replace("_", " "): count for name, count in counts.items() if ": " not in name}
        counted = ", ".join(f"{count:,} {name}" for name, count in told.items())
        minutes = sum(run.seconds for run in runs) / 60
        yield f"| {part} | {len(runs)} | {minutes:.1f} | {counted} | {sum(run.violations for run in runs)} |"


def _runs(record: Record) -> Iterator[str]:
    yield "| part | commit | seed | minutes | violations |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for run in record.runs:
        yield f"| {run.part} | {run.commit[:7] or '-'} | {run.seed} | {run.seconds / 60:.1f} | {run.violations} |"


def written_into(page: str, record: Record) -> str:
    """The page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, f"the page has no {BEGIN}"
    return f"{before}{BEGIN}\n\n{table(record)}\n\n{END}{after}"
