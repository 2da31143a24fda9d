"""Lives of a node that works through tasks: started, killed, stopped; and what they left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from raptor.clock import SystemClock
from raptor.config import Config
from raptor.connect import connect
from raptor.state.base import Query
from raptor.task import Task
from tests.system.disks import small
from tests.system.kill_queue import LANES, SERVICES
from tests.system.queue_judge import Ack, Death, Line, Story
from tests.system.states import ROOT, ask, looked_at

PATIENCE_S = 60.0
PENDING = "SELECT count(*) FROM task WHERE state IN ('ready', 'taken') AND timing IS NULL"


class Rig:
    """One state directory and all who touch it. Leaving it ends them.

    With a size it is on a small disk of its own, which ends with the node.
    """

    def __init__(self, folder: Path, size: str | None = None) -> None:
        self.home = folder / "home"
        self._before = [] if size is None else small(self.home, size)
        self.deaths: list[Death] = []
        self.life = -1
        self._folder = folder
        self._putters: list[subprocess.Popen[str]] = []
        self._node: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._putters, *([self._node] if self._node is not None else [])):
            process.kill()
            process.communicate()

    @property
    def node(self) -> subprocess.Popen[str]:
        assert self._node is not None
        return self._node

    @property
    def seen(self) -> Path:
        """The state directory, as this process can reach it. SQLite cannot: it follows the link, to another disk."""
        return Path(f"/proc/{self.node.pid}/root{self.home}") if self._before else self.home

    # The node

    def start(self, *, fault: str | None = None, grace_s: float = 30.0, more: Mapping[str, str] | None = None) -> None:
        self.life += 1
        extra = {"RAPTOR_FAULT": fault} if fault is not None else {}
        self._node = self._spawn("work", str(grace_s), {**extra, **(more or {})}, self._before)
        if fault is None:
            assert self.node.stdout is not None
            line = self.node.stdout.readline()
            assert line == "ready\n", f"it did not start: {line}"

    def kill(self, after_s: float = 0.0) -> None:
        """kill -9, unless it has done that itself before."""
        try:
            self.node.wait(after_s)
        except subprocess.TimeoutExpired:
            self.node.kill()
        code = self.end()
        assert code == -signal.SIGKILL, f"life {self.life} ended with {code}"
        self.note_death()

    def note_death(self) -> None:
        """What it had been doing is as it is."""
        self.deaths.append(self._look())

    def await_death(self) -> None:
        """It kills itself, at the point that it was told of."""
        self.node.wait(PATIENCE_S)
        self.kill()

    def stop(self) -> int:
        """SIGTERM; -> the exit code."""
        self.node.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        """Wait for its end; -> the exit code."""
        self.node.communicate(timeout=PATIENCE_S)
        return self.node.returncode

    def drain(self) -> None:
        """Wait until all tasks have ended but those that repeat."""
        self.wait(lambda: self.count(PENDING) == 0, "tasks are left")

    def wait(self, until: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < end, f"{otherwise}: {[] if self._before else self.states()}"
            try:
                code = self.node.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"the node ended with {code}")

    # Those who put

    def start_putting(self, seed: int) -> None:
        (self._folder / "enough").unlink(missing_ok=True)
        self._putters.append(self._spawn("put", str(seed), {}))

    def stop_putting(self) -> None:
        (self._folder / "enough").touch()
        for putter in self._putters:
            assert putter.wait(PATIENCE_S) == 0
            putter.communicate()
        self._putters.clear()

    def put_alone(self, service: str, count: int = 1) -> list[int]:
        """Put from this process, through the node or, where none runs, as the owner of the state."""
        connection = connect(Config.load({"home": str(self.seen)}), SERVICES)
        answers = [connection.call("put", service=service) for _ in range(count)]
        with (self._folder / "acks").open("a") as acks:
            for answer in answers:
                acks.write(json.dumps([answer["id"], None, answer["new"]]) + "\n")
        return [answer["id"] for answer in answers]

    # What is there

    def lines(self) -> list[Line]:
        ledger = self._folder / "ledger"
        return [Line.read(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []

    def acks(self) -> list[Ack]:
        acks = self._folder / "acks"
        return [Ack(*json.loads(line)) for line in acks.read_text().splitlines()] if acks.exists() else []

    def count(self, query: str) -> int:
        ((number,),) = ask(self.home / "raptor.sqlite", query)
        assert isinstance(number, int)
        return number

    def states(self) -> list[tuple[object, ...]]:
        query = "SELECT service, state, suspect, count(*) FROM task GROUP BY service, state, suspect"
        return ask(self.home / "raptor.sqlite", query)

    def tasks(self) -> list[Task]:
        async def read() -> list[Task]:
            async with looked_at(self.home) as store:
                return await store.find(Query(limit=10**6))

        return SystemClock().run(read)

    def story(self) -> Story:
        return Story(acks=self.acks(), lines=self.lines(), tasks=self.tasks(), deaths=self.deaths, lanes=LANES)

    def go(self) -> None:
        """Let those that are held go on."""
        (self._folder / "go").touch()

    def _look(self) -> Death:
        query = "SELECT id, state, owner FROM task WHERE state IN ('done', 'dead', 'taken')"
        ended, taken = set[int](), list[str]()
        rows = ask(self.home / "raptor.sqlite", query) if (self.home / "raptor.sqlite").exists() else []
        for id, state, owner in rows:
            if state == "taken":
                taken.append(str(owner))
            else:
                assert isinstance(id, int)
                ended.add(id)
        return Death(self.life, frozenset(ended), tuple(taken))

    def _spawn(
        self, role: str, argument: str, more: Mapping[str, str], before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("RAPTOR_")}
        environ |= {
            "QUEUE_LEDGER": str(self._folder / "ledger"),
            "QUEUE_ACKS": str(self._folder / "acks"),
            "QUEUE_LIFE": str(self.life),
            **more,
        }
        command = [*before, sys.executable, "-m", "tests.system.kill_queue", role, str(self.home), argument]
        return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE)
