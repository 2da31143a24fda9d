"""Places where the real command is given, all on one store: each a folder with the same services."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.system.cli import RAPTOR, SERVICES, Process, Project

LEASE_S = 6.0  # of the rights of a place whose lease is short
BRIEF = [
    sys.executable,
    "-c",
    f"import raptor.rows\nraptor.rows.LEASE_S = {LEASE_S}\nfrom raptor.cli.main import main\nmain()",
]


class Place(Project):
    """Every command that is given here names the store."""

    def __init__(self, folder: Path, store: str, *, brief: bool = False, services: str = SERVICES) -> None:
        super().__init__(folder, services=services)
        self.store = store
        self._command = BRIEF if brief else RAPTOR

    def run(self, *words: str, check: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
        return super().run(*words, "--store", self.store, check=check, **env)

    def begin(self, *words: str, **env: str) -> Process:
        """A command that stays."""
        process = Process([*self._command, *words, "--store", self.store], self.folder, env)
        self.processes.append(process)
        return process

    def start(self, *words: str, **env: str) -> Process:
        return self.begin("start", *words, **env)

    def work(self, *words: str) -> Process:
        process = self.begin("work", *words)
        process.wait_for("tasks at a time")
        return process

    def scheduler(self, name: str = "main") -> dict[str, Any]:
        (found,) = self.json("status", name)["schedulers"]
        return dict(found)

    def go(self) -> None:
        """Let what is gated go on."""
        (self.folder / "gate").touch()


class Places:
    """Leaving them ends whatever runs there."""

    def __init__(self, folder: Path, store: str, *, brief: bool = False) -> None:
        self._folder = folder
        self._brief = brief
        self.store = store
        self.all: list[Place] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self.all:
            place.close()

    def place(self, name: str, *, services: str = SERVICES) -> Place:
        place = Place(self._folder / name, self.store, brief=self._brief, services=services)
        self.all.append(place)
        return place
