"""One suite for every store: a backend is done when it passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from raptor.clock import Clock
from raptor.state.base import Store
from raptor.state.files import FileStore
from raptor.state.home import Home
from raptor.state.memory import MemoryStore


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path, system_clock: Clock) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    home = Home.open(tmp_path / "state", system_clock)
    files = FileStore(home)
    yield files
    asyncio.run(files.close())
    home.close()
