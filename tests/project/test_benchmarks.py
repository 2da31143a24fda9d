"""The benchmarks run, with or without what they compare with. How fast anything is, no test says."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.project.conftest import Run


@pytest.fixture
def bench(root: Path, run: Run, tmp_path: Path) -> Any:
    """Run a quick benchmark, of calls unless told; -> what it printed and what it wrote."""

    def bench(only: str = "call", **env: str) -> tuple[str, dict[str, Any]]:
        told = tmp_path / "numbers.json"
        done = run(sys.executable, "benchmarks/run.py", "--quick", "--only", only, "--json", told, cwd=root, **env)
        return done.stdout, json.loads(told.read_text(encoding="utf-8"))

    return bench


def test_a_quick_run_prints_and_writes_every_row(bench: Any) -> None:
    printed, numbers = bench()
    assert numbers["quick"] is True
    assert {"machine", "Python", "uvloop", "Pykka", "OTP", "commit"} <= numbers["machine"].keys()
    rows = {(row["what"], row["loop"]): row for row in numbers["targets"]}
    for kind in ("plain", "async"):
        row = rows[f"call, {kind} handler / Queue actor", "asyncio"]
        assert row["value"] > 0
        assert row["limit"] == "at least 0.8x"
        assert row["verdict"] in ("met", "MISSED")
        assert (f"call, {kind} handler / Pykka, 1 core", "asyncio") in rows
    for row in rows.values():
        assert f"| {row['what']} | {row['loop']} |" in printed
    figures = numbers["figures"][0]
    assert {"Raptor", "Raptor, async", "Queue actor", "Pykka, 1 core", "OTP"} <= figures["values"].keys()
    assert figures["values"]["Raptor"] > 0
    assert "A quick run is not to be quoted." in printed


def test_without_an_erlang_all_else_is_measured(bench: Any, tmp_path: Path) -> None:
    printed, numbers = bench(PATH=str(tmp_path))
    assert numbers["machine"]["OTP"] == "run make servers"
    assert {row["otp"] for row in numbers["targets"]} == {"run make servers"}
    assert all(row["values"]["Raptor"] > 0 for row in numbers["figures"])
    assert "run make servers" in printed


def test_a_tick_over_many_services_is_measured(bench: Any) -> None:
    printed, numbers = bench("tick")
    (row,) = numbers["targets"]
    assert row["what"] == "tick over 10,000 services, none due"
    assert row["value"] > 0
    assert row["limit"] == "at most 2 ms"
    assert row["verdict"] in ("met", "MISSED")
    assert f"| {row['what']} |" in printed
    figures = {row["what"]: row["values"]["Raptor"] for row in numbers["figures"]}
    weight = figures["registered service, memory"]
    assert weight == "run make bench" or weight > 0
