"""A store in a process of its own, on a disk that fails when told to, or on one that is small."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.system.states import ROOT

SOURCE = Path(__file__).with_name("faults.c")

# Reads a command a line, answers a line: what came of it.
STORE = """
import asyncio, json, sys
from pathlib import Path
from raptor.clock import SystemClock
from raptor.errors import RaptorError
from tests.system.states import DEFINITION, STARTED, STATE, opened, run, slot, timing

async def obey(store, command, number):
    match command:
        case "save":
            await store.save([("service_timing", f"s{number}", timing(number))])
        case "big":
            await store.save([("scheduler_state", "main", None), ("service_timing", "big", timing(10**number))])
        case "start":
            await store.save([("scheduler_state", "main", STARTED)])
        case "journal":
            await store.save([("scheduler_state", "main", STATE)])
        case "define":
            await store.save([("definitions", "main", DEFINITION)])
        case "prune":
            await store.prune(before=1e9, keep=0)
        case "record":
            await store.record([slot(number)], [run(number)])
        case "checkpoint":
            await store.checkpoint()
        case "count":
            return len(await store.load("service_timing"))

async def main():
    async with opened(Path(sys.argv[1]), SystemClock()) as store:
        print("ready", flush=True)
        for line in sys.stdin:
            command, number = line.split()
            try:
                answer = ["ok", await obey(store, command, int(number))]
            except RaptorError as error:
                answer = [type(error).__name__, str(error), getattr(error, "reason", None)]
            print(json.dumps(answer), flush=True)

try:
    SystemClock().run(main)
except RaptorError as error:
    print(type(error).__name__, error.kind, flush=True)
"""


class Disk:
    """A store in a process whose disk fails when told to."""

    def __init__(self, folder: Path, *before: str, shim: Path | None = None) -> None:
        self._plan = folder.with_name("plan")
        self.home = folder
        environment = dict(os.environ) if shim is None else faulty(folder, shim)
        command = [*before, sys.executable, "-c", STORE, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)  # type: ignore[call-overload]
        assert self._line() == "ready"

    def fails(self, call: str, error: int) -> None:
        unfinished = self._plan.with_name("plan.tmp")
        unfinished.write_text(f"{call} {error}")
        unfinished.replace(self._plan)

    def works(self) -> None:
        self._plan.unlink()

    def told(self, command: str, number: int = 0) -> list[object]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command} {number}\n")
        self.process.stdin.flush()
        answer: list[object] = json.loads(self._line())
        return answer

    def end(self) -> int:
        self.process.communicate(timeout=20)
        code: int = self.process.returncode
        return code

    def _line(self) -> str:
        assert self.process.stdout is not None
        line: str = self.process.stdout.readline()
        return line.strip()


def build(folder: Path) -> Path:
    """The library that makes calls fail."""
    built = folder / "faults.so"
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler, "these tests need a C compiler: apt-get install gcc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(built), str(SOURCE), "-ldl"], check=True)
    return built


def faulty(folder: Path, shim: Path) -> dict[str, str]:
    """The environment of a process whose calls on files of a folder fail as the plan beside it says."""
    plan = folder.with_name("plan")
    return os.environ | {"LD_PRELOAD": str(shim), "FAULTS_FOLDER": str(folder), "FAULTS_PLAN": str(plan)}


def small(folder: Path, size: str) -> list[str]:
    """The words before a command that give it a disk of its own, of that size, mounted on the folder."""
    folder.mkdir()
    script = f'mount -t tmpfs -o size={size},mode=700 none "$0" && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder)]


def can_mount() -> bool:
    words = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
