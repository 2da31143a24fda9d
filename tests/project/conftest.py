"""The repository, as files: where it is, and copies of it to break."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres import own_server, pg_address, server_url

__all__ = ["own_server", "pg_address", "server_url"]

Run = Callable[..., subprocess.CompletedProcess[str]]

# What a machine leaves beside the sources.
LEFTOVERS = shutil.ignore_patterns(
    ".git", ".venv", ".raptor", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist"
)


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    """The sources in a folder of their own, its links kept as links and a space in its path."""
    return shutil.copytree(root, tmp_path / "a copy", symlinks=True, ignore=LEFTOVERS)


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a program to its end, away from the make that may have started these tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def run(*words: str | Path, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(word) for word in words], cwd=cwd, env=clean | env, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run
