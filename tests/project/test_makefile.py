"""The Makefile: every target is documented, none needs more than it says, refusals say what to do."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.project.conftest import Run

TARGETS = {
    "run", "test", "check", "bench", "spec", "servers", "proof-otp", "torture", "simulate", "fuzz", "mutate",
    "proof", "clean", "help",
}  # fmt: skip


def program(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def only(folder: Path, *names: str) -> str:
    """A PATH on which only these programs are found."""
    folder.mkdir(exist_ok=True)
    for name in names:
        found = shutil.which(name)
        assert found, name
        os.symlink(found, folder / name)
    return str(folder)


def test_help_lists_every_target(root: Path, run: Run) -> None:
    listed = set(re.findall(r"^  make ([a-z-]+) +\S", run("make", "help", cwd=root).stdout, re.M))
    assert listed == TARGETS
    assert run("make", cwd=root).stdout == run("make", "help", cwd=root).stdout
    # The one without a comment only serves another.
    phony = set(re.findall(r"^\.PHONY: (\S+)", (root / "Makefile").read_text(), re.M))
    assert phony - listed == {"links"}


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_target_can_be_rehearsed_in_a_fresh_clone(copy: Path, run: Run, target: str) -> None:
    run("make", "-n", target, cwd=copy)
    assert not (copy / ".venv").exists()


def test_an_old_python_is_refused_before_anything_is_made(copy: Path, tmp_path: Path, run: Run) -> None:
    old = program(tmp_path / "python3.9", '[ "$1" = --version ] && echo Python 3.9.2 && exit 0', "exit 1")
    for target in ("run", "test", "check", "spec"):
        refused = run("make", target, f"PYTHON={old}", cwd=copy, check=False)
        assert refused.returncode != 0
        assert f"Raptor needs Python 3.11 or newer, and {old} is Python 3.9.2" in refused.stderr
    assert not (copy / ".venv").exists()


def test_servers_says_so_when_all_is_there(root: Path, tmp_path: Path, run: Run) -> None:
    path = only(tmp_path / "bin", "make", "sh")
    for name in ("erl", "rabbitmq-server", "openssl", "pg_ctlcluster", "pgbouncer"):
        program(tmp_path / "bin" / name)
    assert run("make", "servers", "SBIN=", cwd=root, PATH=path).stdout == "servers: all there\n"


def test_servers_installs_only_what_is_missing(root: Path, tmp_path: Path, run: Run) -> None:
    path = only(tmp_path / "bin", "make", "sh", "env")
    program(tmp_path / "bin/id", "echo 1000")
    program(tmp_path / "bin/sudo", f'echo "$@" >> {tmp_path}/asked', 'exec "$@"')
    program(tmp_path / "bin/apt-get", "exit 0")
    program(tmp_path / "bin/openssl")
    run("make", "servers", "SBIN=", cwd=root, PATH=path)
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update == "apt-get update -qq"
    assert install.endswith("--no-install-recommends erlang-base rabbitmq-server postgresql pgbouncer")


def test_servers_explains_itself_where_there_is_no_apt(root: Path, tmp_path: Path, run: Run) -> None:
    refused = run("make", "servers", "SBIN=", cwd=root, check=False, PATH=only(tmp_path / "bin", "make", "sh"))
    assert refused.returncode != 0
    missing = "erlang-base rabbitmq-server openssl postgresql pgbouncer"
    assert f"missing: {missing}. There is no apt-get here" in refused.stderr


def test_ci_runs_servers_check_and_test(root: Path) -> None:
    script = root / ".ci/run"
    assert os.access(script, os.X_OK)
    lines = script.read_text().splitlines()
    assert [line for line in lines if line.startswith("make ")] == ["make servers", "make check", "make test"]
    assert "set -euo pipefail" in lines


def test_tests_never_install_system_packages(root: Path, run: Run) -> None:
    assert "apt-get" not in run("make", "-n", "test", cwd=root).stdout
