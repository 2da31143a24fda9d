"""Which modules are broken, all over or in places, and which tests must notice."""

from __future__ import annotations

PURE: dict[str, tuple[str, ...]] = {
    "raptor.judge": ("tests/unit/test_judge.py", "tests/designs/test_004_failure.py"),
    "raptor.due": ("tests/unit/test_due.py", "tests/designs/test_004_slots.py", "tests/designs/test_004_time.py"),
    "raptor.timing": ("tests/unit/test_timing.py",),
    "raptor.wheel": ("tests/unit/test_wheel.py", "tests/unit/test_horizon.py"),
    "raptor.cron": (
        "tests/unit/test_cron.py", "tests/fuzz/test_cron.py",
        "tests/fuzz/test_found.py::test_a_range_of_one_with_a_step_is_that_one",
        "tests/fuzz/test_found.py::test_a_range_of_more_keeps_its_step",
    ),
    "raptor.state.sums": ("tests/unit/test_sums.py", "tests/system/test_state_version_3.py"),
    "raptor.settlement": ("tests/unit/test_settlement.py", "tests/designs/test_001_repeating.py"),
}  # fmt: skip
"""Every mutant."""

CYCLE = (
    "tests/designs/test_004_cycle.py", "tests/designs/test_004_resume.py", "tests/designs/test_004_failure.py",
    "tests/designs/test_004_slots.py", "tests/designs/test_004_accounting.py", "tests/designs/test_004_journal.py",
    "tests/designs/test_004_rest.py", "tests/designs/test_004_commands.py", "tests/designs/test_005_schedulers.py",
    "tests/designs/test_004_time.py", "tests/designs/test_005_nodes.py", "tests/designs/test_metrics.py",
    "tests/designs/test_stop_unwritable.py",
)  # fmt: skip

SAMPLED: dict[str, tuple[str, ...]] = {
    "raptor.supervisor": (
        "tests/actors/test_administration.py", "tests/actors/test_backoff.py", "tests/actors/test_intensity.py",
        "tests/actors/test_restart_loop.py", "tests/actors/test_restart_types.py", "tests/actors/test_shutdown.py",
        "tests/actors/test_significant.py", "tests/actors/test_stall.py", "tests/actors/test_strategies.py",
        "tests/actors/test_supervisor_start.py", "tests/actors/test_tree.py",
    ),
    "raptor.cycle": CYCLE,
    "raptor.closing": CYCLE,
    "raptor.queues": (
        "tests/designs/test_003_taking.py", "tests/designs/test_003_leases.py", "tests/designs/test_003_stopping.py",
        "tests/designs/test_003_failing.py", "tests/designs/test_003_batches.py", "tests/designs/test_000_jobs.py",
        "tests/designs/test_001_repeating.py", "tests/designs/test_metrics.py",
    ),
    "raptor.clerk": (
        "tests/designs/test_003_failing.py", "tests/designs/test_003_leases.py", "tests/designs/test_003_stopping.py",
        "tests/designs/test_003_taking.py", "tests/designs/test_000_jobs.py", "tests/designs/test_metrics.py",
    ),
    "raptor.turn": (
        "tests/unit/test_lanes.py", "tests/designs/test_003_failing.py", "tests/designs/test_003_stopping.py",
        "tests/designs/test_003_taking.py", "tests/designs/test_004_cycle.py", "tests/designs/test_004_rest.py",
        "tests/designs/test_004_time.py",
    ),
    "raptor.state.tasks": (
        "tests/conformance/test_store.py", "tests/conformance/test_files.py", "tests/damage/test_columns.py",
        "tests/fuzz/test_found.py::test_a_task_whose_data_became_a_number_is_given_as_damaged_and_holds_up_nobody",
        "tests/fuzz/test_found.py::test_a_task_in_no_state_that_there_is_is_told_as_damage",
    ),
    "raptor.state.columns": (
        "tests/damage/test_columns.py", "tests/conformance/test_files.py",
        "tests/fuzz/test_found.py::test_a_task_whose_data_became_a_number_is_given_as_damaged_and_holds_up_nobody",
        "tests/fuzz/test_found.py::test_a_task_in_no_state_that_there_is_is_told_as_damage",
    ),
    "raptor.state.amending": ("tests/conformance/test_store.py", "tests/damage/test_columns.py"),
    "raptor.state.settling": ("tests/conformance/test_store.py", "tests/damage/test_columns.py"),
    "raptor.state.transient": ("tests/conformance/test_store.py",),
    "raptor.state.postgres.settling": (
        "tests/conformance/test_postgres.py", "tests/system/test_postgres_nonsense.py",
    ),
    "raptor.state.postgres.taking": (
        "tests/conformance/test_postgres.py", "tests/system/test_postgres_nonsense.py",
    ),
}  # fmt: skip
"""A random sample, of SAMPLE mutants in all; each module as many as its size asks for."""

SAMPLE = 300
