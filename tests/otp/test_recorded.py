"""Raptor's supervisors against the recorded answers of a real Erlang/OTP to 2,000 random scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.otp import on_raptor, proof, record
from tests.otp.answers import Divergence, Steps, compare
from tests.otp.author import generate
from tests.otp.coverage import covered
from tests.otp.scripts import RESTARTS, STRATEGIES, Script, from_json, to_json
from tests.otp.shrink import shrink

CHUNKS = 8


@cache
def recorded() -> list[tuple[Script, Steps]]:
    return record.read()[1]


@pytest.mark.spec("otp-5", "otp-6", "otp-7", "otp-8", "otp-9", "otp-10", "otp-14", "otp-18")
@pytest.mark.spec("otp-21", "otp-22", "otp-23", "otp-24", "otp-25", "otp-26", "otp-27", "otp-28", "otp-29")
@pytest.mark.spec("otp-30", "otp-31", "otp-32", "otp-33", "otp-34", "otp-35", "otp-36", "otp-37", "otp-38", "otp-39")
@pytest.mark.spec("otp-41", "otp-42", "otp-45", "otp-46", "otp-47", "otp-48")
@pytest.mark.spec("otp-49", "otp-50", "otp-51", "otp-52", "otp-53", "otp-54", "otp-55", "otp-56", "otp-57", "otp-58")
@pytest.mark.spec("otp-62", "otp-63", "otp-64", "otp-65", "otp-66", "otp-67", "otp-68", "otp-69")
@pytest.mark.spec("otp-71", "otp-72", "otp-73", "otp-74", "otp-75")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_raptor_answers_as_otp_did(chunk: int) -> None:
    found = [compare(script, steps, on_raptor.run(script)) for script, steps in recorded()[chunk::CHUNKS]]
    divergences = [divergence for divergence in found if divergence]
    assert not divergences, f"{len(divergences)} divergences, the first: {divergences[0]}"


@pytest.mark.parametrize(
    ("mistake", "at_least"),
    [
        (lambda tree: {"intensity": tree.intensity + 1}, 40),
        (lambda tree: {"strategy": {"one_for_all": "rest_for_one"}.get(tree.strategy, tree.strategy)}, 20),
        (lambda tree: {"children": tuple(replace(child, significant="false") for child in tree.children)}, 20),
        (lambda tree: {"children": tree.children[::-1]}, 100),
    ],
    ids=["intensity", "strategy", "significant", "order"],
)
def test_a_supervisor_that_is_set_up_wrong_is_found_out(mistake: Any, at_least: int) -> None:
    wrong = [
        (script, steps, replace(script, tree=replace(script.tree, **mistake(script.tree))))
        for script, steps in recorded()[:500]
    ]
    found = [compare(script, steps, on_raptor.run(other)) for script, steps, other in wrong]
    assert sum(divergence is not None for divergence in found) >= at_least


@cache
def counts() -> Counter[str]:
    total: Counter[str] = Counter()
    for script, steps in recorded():
        total += covered(script, steps)
    return total


@pytest.mark.parametrize(
    ("what", "at_least"),
    [
        *[(f"strategy: {strategy}", 300) for strategy in STRATEGIES],
        *[(f"restart: {restart}", 500) for restart in RESTARTS],
        *[(f"auto_shutdown: {auto}", 200) for auto in ("never", "any_significant", "all_significant")],
        *[(f"shutdown: {shutdown}", 100) for shutdown in ("brutal_kill", "infinity", "5000", "0", "1", "2", "4")],
        *[(f"stop: {stop}", 300) for stop in ("obey", "crash", "hang")],
        *[(f"exit: {reason}: ok", 200) for reason in ("normal", "shutdown", "term", "crash", "kill")],
        *[("inner supervisor", 300), ("escalation: restarted", 15), ("escalation: gone", 30)],
        *[("death by intensity", 200), ("death by auto_shutdown", 30)],
        *[("gate", 400), ("gate: ok", 80), ("gate: error", 200), ("gate: ignore", 60)],
        *[(f"start_child: {word}", 10) for word in ("ok", "already_started", "already_present")],
        *[(f"terminate_child: {word}", 10) for word in ("ok", "not_found", "simple_one_for_one", "noproc")],
        *[(f"restart_child: {word}", 10) for word in ("ok", "failed", "running", "not_found", "simple_one_for_one")],
        *[(f"delete_child: {word}", 10) for word in ("ok", "running", "not_found", "simple_one_for_one")],
        *[(f"get_childspec: {word}", 100) for word in ("ok", "not_found")],
        *[("which_children: list", 200), ("count_children: list", 200), ("which_children: noproc", 20)],
        *[("start_dynamic: ok", 500), ("start_dynamic: failed", 10), ("terminate_dynamic: ok", 50)],
        *[("at the gate: which_children: restarting", 50), ("at the gate: delete_child: restarting", 20)],
        *[("at the gate: restart_child: restarting", 20), ("at the gate: start_child: already_present", 10)],
        *[("at the gate: terminate_child: ok", 50), ("at the gate: which_children: shutdown", 5)],
        *[("start refused: failed_to_start_child", 50), ("start refused: invalid_significant", 5)],
        *[("start refused: duplicate_child_name", 3), ("start refused: invalid_strategy", 3)],
    ],
)
def test_the_recorded_scripts_reach(what: str, at_least: int) -> None:
    assert counts()[what] >= at_least


def test_there_are_2000_recorded_answers_of_otp_25() -> None:
    release, rows = record.read()
    assert (release, len(rows)) == ("25", 2000)


def test_the_same_answers_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        record.write(tmp_path / name, "25", recorded()[:50])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_seed_gives_one_script() -> None:
    drawn = [generate(seed) for seed in range(200)]
    assert drawn == [generate(seed) for seed in range(200)]
    assert drawn == [from_json(to_json(script)) for script in drawn]
    assert len({repr(replace(script, seed=0)) for script in drawn}) == 200


def test_the_recorded_scripts_are_those_of_their_seeds() -> None:
    stale = [script.seed for script, _ in recorded() if script != generate(script.seed)]
    assert not stale, f"{len(stale)} scripts are drawn otherwise by now: run python -m tests.otp.record"


def test_a_diverging_script_is_shown_in_its_smallest_form() -> None:
    script = next(s for s, _ in recorded() if any(len(op.during) > 2 for op in s.ops) and len(s.ops) > 5)
    wanted = next(op for op in script.ops if len(op.during) > 2)

    def check(scripts: Sequence[Script]) -> list[Divergence | None]:
        """Whatever has the gate and its first aside."""
        return [
            Divergence(s, len(s.ops), None, None) if any(op.during[:1] == wanted.during[:1] for op in s.ops) else None
            for s in scripts
        ]

    small = shrink(Divergence(script, len(script.ops), None, None), check).script
    assert [op.during for op in small.ops] == [wanted.during[:1]]
    assert not small.tree.children or small.tree.strategy == "simple_one_for_one"
    assert f"seed {script.seed}" in str(Divergence(small, 1, None, None))


def test_the_proof_says_what_to_do_without_an_erlang(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert proof.main(["--count", "1"]) == 2
    assert "run `make servers`" in capsys.readouterr().err
