"""The real command in real processes: run it to its end, or keep it and wait for its lines."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RAPTOR = [sys.executable, "-m", "raptor"]
PATIENCE_S = 40.0

SERVICES = '''
import asyncio, os, pathlib, time
from raptor import service

HERE = pathlib.Path(__file__).parent

def note(name):
    with open(HERE / "ran", "a") as out:
        out.write(name + "\\n")

@service(every="1h")
def one():
    note("one")
    print("printed by one")
    return "first"

@service(every="1h")
async def two(ctx):
    note("two")
    ctx.log.info("two was here")

@service(every="1h")
async def three():
    note("three")

@service(every="1h")
async def gated():
    """Runs until the file `gate` is there."""
    note("gated")
    while not (HERE / "gate").exists():
        await asyncio.sleep(0.02)

@service(every="1h", max_attempts=2)
def broken():
    note("broken")
    raise ConnectionError("db refused")
'''


def environment(**more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RAPTOR_", "NOTIFY_"))}
    return clean | {"PYTHONUNBUFFERED": "1", "TZ": "UTC", "NO_COLOR": "1"} | more


def squeeze(text: str) -> str:
    """Every line with single spaces: how wide the columns are is no matter."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


class Project:
    """A folder with raptor.toml and services.py."""

    def __init__(self, folder: Path, toml: str = 'module = "services"\n', services: str = SERVICES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.home = folder / ".raptor"
        (folder / "raptor.toml").write_text(toml)
        (folder / "services.py").write_text(services)
        self.processes: list[Process] = []

    def run(self, *words: str, check: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*RAPTOR, *words],
            cwd=self.folder,
            env=environment(**env),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert "cli/main.py" not in done.stderr, done.stderr  # a traceback of ours
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def ok(self, *words: str, **env: str) -> str:
        """What it printed, with single spaces."""
        return squeeze(self.run(*words, check=True, **env).stdout)

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words, "--json", check=True).stdout)
        assert answer["v"] == 1
        return answer

    def start(self, *words: str, **env: str) -> Process:
        process = Process([*RAPTOR, "start", *words], self.folder, env)
        self.processes.append(process)
        return process

    @property
    def ran(self) -> list[str]:
        file = self.folder / "ran"
        return file.read_text().split() if file.exists() else []

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        lock = self.home / "lock"
        if lock.exists() and lock.read_bytes().strip():
            try:
                os.kill(json.loads(lock.read_bytes())["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass


class Process:
    """A running command; its lines, stdout and stderr together, are waited for."""

    def __init__(self, words: list[str], folder: Path, env: dict[str, str]) -> None:
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                self._new.put(squeeze(line))
        self._new.put(None)

    def wait_for(self, text: str) -> str:
        """The next line with the text in it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._new.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {text!r} in:\n" + "\n".join(self.lines)) from None
            if line is None:
                raise AssertionError(f"it ended without a line with {text!r}:\n" + "\n".join(self.lines))
            self.lines.append(line)
            if text in line:
                return line

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; -> the exit code."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(5)
        while not self._new.empty():
            line = self._new.get()
            if line is not None:
                self.lines.append(line)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(5)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def eventually(true: Callable[[], Any], what: str) -> Any:
    """Wait for something that no line tells, with a deadline."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
