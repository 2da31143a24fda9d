"""Which lines of docs/spec are proven: `make spec`.

Reads the ids from the checklists and the marks from the sources of tests and benchmarks, without importing either.
"""

import argparse
import ast
import re
import shutil
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ITEM = re.compile(r"^- \*\*(?P<id>[^*]+\d)\*\* (?P<kind>\w+): ")
KINDS = ("test", "bench", "note")


@dataclass(frozen=True, kw_only=True)
class Line:
    id: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Design:
    title: str
    lines: tuple[Line, ...]


@dataclass(kw_only=True)
class Marks:
    """Where each id is used, and what could not be read."""

    places: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Report:
    designs: list[Design]
    proven: set[str]
    errors: list[str]


def read_designs(folder: Path) -> tuple[list[Design], list[str]]:
    designs, errors, seen = [], [], set[str]()
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        lines = []
        for number, row in enumerate(text.splitlines(), 1):
            if not row.startswith("- **"):
                continue
            match = ITEM.match(row)
            if match is None or match["kind"] not in KINDS:
                errors.append(f"{path.name}:{number}: not of the form '- **ID** {'|'.join(KINDS)}: text'")
            elif match["id"] in seen:
                errors.append(f"{path.name}:{number}: {match['id']} stands there twice")
            else:
                seen.add(match["id"])
                lines.append(Line(id=match["id"], kind=match["kind"]))
        if lines:
            designs.append(Design(title=text.splitlines()[0].lstrip("# "), lines=tuple(lines)))
    return designs, errors


def is_mark(call: ast.Call, *, bare: bool) -> bool:
    """`pytest.mark.spec(...)` or `mark.spec(...)`; with `bare` also any other `spec(...)`."""
    match call.func:
        case ast.Attribute(attr="spec", value=ast.Attribute(attr="mark") | ast.Name(id="mark")):
            return True
        case ast.Attribute(attr="spec") | ast.Name(id="spec"):
            return bare
    return False


def read_marks(root: Path, *folders: str, bare: bool = False) -> Marks:
    marks = Marks()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            marks.unreadable.append(f"{path.relative_to(root)}:{error.lineno}: {error.msg}")
            continue
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and is_mark(call, bare=bare)):
                continue
            place = f"{path.relative_to(root)}:{call.lineno}"
            for argument in call.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    marks.places[argument.value].append(place)
                else:
                    marks.unreadable.append(f"{place}: an id must be a plain string, not {ast.unparse(argument)}")
    return marks


def read_answers(docs: Path) -> set[str]:
    """Ids in square brackets on the pages outside docs/spec."""
    answers = set[str]()
    for path in docs.rglob("*.md"):
        if path.relative_to(docs).parts[0] != "spec":
            for group in re.findall(r"\[([^\]\n]+)\]", path.read_text(encoding="utf-8")):
                answers.update(part.strip(" `") for part in group.split(","))
    return answers


def examine(root: Path) -> Report:
    designs, errors = read_designs(root / "docs/spec")
    tests, benchmarks = read_marks(root, "tests", "raptor/testing"), read_marks(root, "benchmarks", bare=True)
    answers = read_answers(root / "docs")
    known = {line.id: line.kind for design in designs for line in design.lines}
    for marks in (tests, benchmarks):
        errors += marks.unreadable
        errors += [f"{places[0]}: no line {id} in docs/spec" for id, places in marks.places.items() if id not in known]
    proof = {
        "test": tests.places.keys(),
        "bench": tests.places.keys() | benchmarks.places.keys(),
        "note": tests.places.keys() | answers,
    }
    return Report(designs=designs, proven={id for id, kind in known.items() if id in proof[kind]}, errors=errors)


def compact(ids: Iterable[str]) -> list[str]:
    """Neighbours as ranges: 004-01, 004-02, 004-03 become 004-01..03."""
    runs: list[list[str]] = []
    for id in ids:
        if runs and follows(runs[-1][-1], id):
            runs[-1].append(id)
        else:
            runs.append([id])
    return [run[0] if len(run) == 1 else f"{run[0]}..{split(run[-1])[1]}" for run in runs]


def follows(one: str, other: str) -> bool:
    (stem, number), (other_stem, other_number) = split(one), split(other)
    return stem == other_stem and int(other_number) == int(number) + 1


def split(id: str) -> tuple[str, str]:
    stem = id.rstrip("0123456789")
    return stem, id[len(stem) :]


def render(report: Report, *, width: int | None, bold: bool) -> Iterator[str]:
    """The report as rows; without a width each list is one row, good for grep."""
    strong = "\033[1m{}\033[0m".format if bold else str
    for design in report.designs:
        open_lines = [line for line in design.lines if line.id not in report.proven]
        done = len(design.lines) - len(open_lines)
        yield strong(f"{design.title}: {done} of {len(design.lines)} proven")
        for kind in KINDS:
            if ranges := compact(line.id for line in open_lines if line.kind == kind):
                row = f"  to {'answer' if kind == 'note' else kind}: {', '.join(ranges)}"
                yield from textwrap.wrap(row, width, subsequent_indent="    ") if width else [row]
    total = sum(len(design.lines) for design in report.designs)
    yield strong(f"total: {len(report.proven)} of {total} proven")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make spec", description="Say which lines of docs/spec are proven.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    root = parser.parse_args(arguments).root
    report = examine(root)
    terminal = sys.stdout.isatty()
    for row in render(report, width=shutil.get_terminal_size().columns if terminal else None, bold=terminal):
        print(row)
    for error in report.errors:
        print(error, file=sys.stderr)
    return 1 if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
