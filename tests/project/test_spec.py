"""`make spec`: what it reads, what it counts, what it refuses."""

from pathlib import Path

import pytest

from tests.spec import compact, examine, main, read_designs, render

CHECKLIST = """# 009 A design

- **009-01** test: one
- **009-02** test: two
- **009-03** bench: three
- **009-04** note: four
- **X9-1** test: a bug
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("docs/spec", "tests/deep", "benchmarks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/spec/009-a.md").write_text(CHECKLIST)
    (tmp_path / "docs/spec/README.md").write_text("# How to read\n\nNo lines here, though [009-04] is named.\n")
    return tmp_path


def said(project: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main([str(project)])
    out, err = capsys.readouterr()
    return code, out, err


def test_nothing_is_proven_by_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(project, capsys) == (
        0,
        "009 A design: 0 of 5 proven\n"
        "  to test: 009-01..02, X9-1\n"
        "  to bench: 009-03\n"
        "  to answer: 009-04\n"
        "total: 0 of 5 proven\n",
        "",
    )


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.spec("009-01", "X9-1")\ndef test_it(): ...',
        '@pytest.mark.spec("X9-1")\n@pytest.mark.spec("009-01")\nasync def test_it(): ...',
        'pytestmark = pytest.mark.spec("009-01", "X9-1")',
        'pytestmark = [pytest.mark.slow, pytest.mark.spec("009-01", "X9-1")]',
        'CASES = [pytest.param(1, marks=pytest.mark.spec("009-01")), pytest.param(2, marks=[mark.spec("X9-1")])]',
        'class TestIt:\n    @pytest.mark.spec("009-01", "X9-1")\n    def test_it(self): ...',
    ],
)
def test_marks_are_found_in_every_place_where_pytest_takes_them(project: Path, source: str) -> None:
    (project / "tests/deep/test_it.py").write_text(source)
    report = examine(project)
    assert report.proven == {"009-01", "X9-1"}
    assert report.errors == []


@pytest.mark.parametrize(
    "source", ['spec("009-03")(print)', '@spec("009-03")\ndef bench(): ...', 'floors.spec("009-03")']
)
def test_a_benchmark_bears_its_mark_as_a_call_or_a_decorator(project: Path, source: str) -> None:
    (project / "benchmarks/run.py").write_text(source)
    assert examine(project).proven == {"009-03"}


def test_a_test_may_prove_a_bench_line_but_no_benchmark_a_test_line(project: Path) -> None:
    (project / "tests/test_it.py").write_text('pytestmark = pytest.mark.spec("009-03")')
    (project / "benchmarks/run.py").write_text('spec("009-01")')
    assert examine(project).proven == {"009-03"}


def test_a_spec_that_is_not_a_mark_proves_nothing(project: Path) -> None:
    (project / "tests/test_it.py").write_text('child.spec("009-01"); spec("009-02"); "pytest.mark.spec(\'X9-1\')"')
    assert examine(project).proven == set()


def test_a_note_is_answered_by_its_id_in_brackets_on_a_page(project: Path) -> None:
    page = project / "docs/comparison.md"
    page.write_text("009-04 without brackets\n")
    assert examine(project).proven == set()
    page.write_text("Cron has no seconds [009-03, 009-04].\n")
    assert examine(project).proven == {"009-04"}


def test_an_unknown_id_is_an_error_that_names_its_place(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests/test_it.py").write_text('\npytestmark = pytest.mark.spec("009-99")\n')
    code, out, err = said(project, capsys)
    assert code == 1
    assert err == "tests/test_it.py:2: no line 009-99 in docs/spec\n"
    assert "total: 0 of 5 proven" in out


def test_a_computed_id_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests/test_it.py").write_text("MARKS = [pytest.mark.spec(f'009-0{n}') for n in (1, 2)]")
    code, _, err = said(project, capsys)
    assert code == 1
    assert "tests/test_it.py:1: an id must be a plain string" in err


def test_a_source_that_cannot_be_parsed_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests/test_it.py").write_text("\ndef test_it(:\n")
    code, _, err = said(project, capsys)
    assert code == 1
    assert err.startswith("tests/test_it.py:2: ")


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("- **009-01** test: again", "009-a.md:8: 009-01 stands there twice"),
        ("- **009-05** hope: five", "009-a.md:8: not of the form"),
        ("- **009-05** five", "009-a.md:8: not of the form"),
    ],
)
def test_a_checklist_out_of_form_is_an_error(project: Path, row: str, complaint: str) -> None:
    (project / "docs/spec/009-a.md").write_text(CHECKLIST + row + "\n")
    (error,) = examine(project).errors
    assert error.startswith(complaint)


def test_neighbours_are_shown_as_ranges() -> None:
    ids = ["004-01", "004-02", "004-03", "004-09", "004-10", "004-12", "otp-9", "otp-10", "otp-D1", "otp-D2"]
    assert compact(ids) == ["004-01..03", "004-09..10", "004-12", "otp-9..10", "otp-D1..2"]
    assert compact([]) == []


def test_a_terminal_gets_wrapped_rows_and_a_pipe_whole_ones(root: Path) -> None:
    report = examine(root)
    report.proven = set()
    wrapped = list(render(report, width=60, bold=False))
    assert max(map(len, wrapped)) <= 60
    assert len(list(render(report, width=None, bold=False))) < len(wrapped)


def test_the_checklists_of_the_project_are_whole(root: Path) -> None:
    designs, errors = read_designs(root / "docs/spec")
    assert errors == []
    counts = {design.title: len(design.lines) for design in designs}
    assert counts == {
        "000 AT": 44 + 8,
        "001 Task scheduler": 73 + 7,
        "002 pg_task": 69 + 14,
        "003 Queue system": 52 + 8,
        "004 Raptor scheduler": 38 + 15 + 10,
        "Erlang/OTP": 82 + 10,
    }


def test_the_marks_of_the_project_are_known_lines(root: Path) -> None:
    assert examine(root).errors == []
