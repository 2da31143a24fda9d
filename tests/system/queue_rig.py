"""Lives of a node that works through tasks: started, killed, stopped; and what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psycopg

from raptor.clock import SystemClock
from raptor.config import Config
from raptor.connect import connect
from raptor.state.base import Query
from raptor.state.opening import open_store
from raptor.state.postgres import address
from raptor.task import Task
from raptor.testing.checker import Bounds, Command, Dump, Fault, History, Image, Kept, Life, Line
from raptor.testing.torture.node import LANES
from raptor.testing.torture.services import COMMANDS, FAULTS, LEDGER, LIFE, TASKS
from raptor.testing.torture.writing import append, written
from tests.system.disks import small
from tests.system.states import ROOT, ask, looked_at

PATIENCE_S = 60.0
PENDING = "SELECT count(*) FROM task WHERE state IN ('ready', 'taken') AND timing IS NULL"


class Rig:
    """One state directory and all who touch it. Leaving it ends them.

    With a size it is on a small disk of its own, which ends with the node. On a store there may be several nodes, each
    `at` a state directory of its own.
    """

    def __init__(self, folder: Path, size: str | None = None, store: str | None = None, nodes: int = 1) -> None:
        self.home = folder / "home"
        self.store = store
        self._homes = [self.home, *(folder / f"home{number}" for number in range(1, nodes))]
        self._before = [] if size is None else small(self.home, size)
        self.images: list[Image] = []  # of each death
        self.life = -1
        self._folder = folder
        self._putters: list[subprocess.Popen[str]] = []
        self._nodes: dict[int, subprocess.Popen[str]] = {}
        self._lives: dict[int, Life] = {}
        self._here: dict[int, int] = {}  # which of them is at which place
        self._faults: list[Fault] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self._putters, *self._nodes.values()):
            process.kill()
            process.communicate()

    @property
    def node(self) -> subprocess.Popen[str]:
        return self._nodes[0]

    @property
    def seen(self) -> Path:
        """The state directory, as this process can reach it. SQLite cannot: it follows the link, to another disk."""
        return Path(f"/proc/{self.node.pid}/root{self.home}") if self._before else self.home

    # The node

    def start(
        self, at: int = 0, *, fault: str | None = None, grace_s: float = 30.0, more: Mapping[str, str] | None = None
    ) -> None:
        extra = {"RAPTOR_FAULT": fault} if fault is not None else {}
        self.launch(at, grace_s=grace_s, more={**extra, **(more or {})})
        if fault is None:
            self.await_start(at)

    def launch(self, at: int = 0, *, grace_s: float = 30.0, more: Mapping[str, str] | None = None) -> None:
        """Start it, and do not wait until it works."""
        self.life += 1
        self._here[at] = self.life
        self._lives[self.life] = Life(life=self.life, node=str(at), at=time.time())
        self._nodes[at] = self._spawn("work", str(grace_s), [self._homes[at]], more or {}, self._before)

    def await_start(self, at: int = 0) -> None:
        out = self._nodes[at].stdout
        assert out is not None
        line = out.readline()
        assert line == "ready\n", f"it did not start: {line}"

    def kill(self, after_s: float = 0.0, at: int = 0) -> None:
        """kill -9, unless it has done that itself before."""
        try:
            self._nodes[at].wait(after_s)
        except subprocess.TimeoutExpired:
            self._nodes[at].kill()
        code = self.end(at)
        assert code == -signal.SIGKILL, f"life {self._here[at]} ended with {code}"
        self.note_death(at)

    def note_death(self, at: int = 0) -> None:
        """What it had been doing is as it is."""
        life = self._here[at]
        self._lives[life] = msgspec.structs.replace(self._lives[life], killed=True)
        self.images.append(self._look(life))

    def freeze(self, at: int = 0) -> None:
        """Let it stand still for good, unless it is thawed."""
        self._nodes[at].send_signal(signal.SIGSTOP)
        self._faults.append(Fault(what="freeze", at=time.time(), life=self._here[at]))
        self.images.append(self._look(self._here[at]))

    def thaw(self, at: int = 0) -> None:
        (frozen,) = [fault for fault in self._faults if fault.life == self._here[at] and fault.until is None]
        self._faults[self._faults.index(frozen)] = msgspec.structs.replace(frozen, until=time.time())
        self._nodes[at].send_signal(signal.SIGCONT)

    def await_death(self) -> None:
        """It kills itself, at the point that it was told of."""
        self.node.wait(PATIENCE_S)
        self.kill()

    def stop(self, at: int = 0) -> int:
        """SIGTERM; -> the exit code."""
        self._nodes[at].send_signal(signal.SIGTERM)
        return self.end(at)

    def end(self, at: int = 0) -> int:
        """Wait for its end; -> the exit code."""
        self._nodes[at].communicate(timeout=PATIENCE_S)
        life = self._here[at]
        self._lives[life] = msgspec.structs.replace(self._lives[life], ended=time.time())
        return self._nodes[at].returncode

    def drain(self) -> None:
        """Wait until all tasks have ended but those that repeat."""
        self.wait(lambda: self.count(PENDING) == 0, "tasks are left")

    def wait(self, until: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < end, f"{otherwise}: {[] if self._before else self.states()}"
            time.sleep(0.02)
            ended = [code for node in self._nodes.values() if (code := node.poll()) is not None]
            assert not ended, f"the node ended with {ended}"

    # Those who put

    def start_putting(self, seed: int) -> None:
        (self._folder / "enough").unlink(missing_ok=True)
        self._putters.append(self._spawn("put", str(seed), self._homes, {}))

    def stop_putting(self) -> None:
        (self._folder / "enough").touch()
        for putter in self._putters:
            assert putter.wait(PATIENCE_S) == 0
            putter.communicate()
        self._putters.clear()

    def put_alone(self, service: str, count: int = 1) -> list[int]:
        """Put from this process, through the node or, where none runs, as the owner of the state."""
        flags = {"home": str(self.seen)} if self.store is None else {"home": str(self.home), "store": self.store}
        connection = connect(Config.load(flags), TASKS)
        answers = [connection.call("put", service=service) for _ in range(count)]
        self._acknowledge((answer["id"], answer["new"]) for answer in answers)
        return [answer["id"] for answer in answers]

    def put_many(self, service: str, count: int) -> None:
        """Put so many at once, on a store."""
        connection = connect(Config.load({"home": str(self.home), "store": self.store}), TASKS)
        ids = connection.call("put", service=service, many=[None] * count)["ids"]
        self._acknowledge((id, True) for id in ids)

    def _acknowledge(self, puts: Iterable[tuple[int, bool]]) -> None:
        now = time.time()
        for id, new in puts:
            append(self._folder / "acks", Command(what="put", at=now, acked=now, task=id, new=new))

    # What is there

    def lines(self) -> list[Line]:
        return list(written(self._folder / "ledger", Line))

    def acks(self) -> list[Command]:
        return [command for command in self._commands() if command.acked is not None]

    def _commands(self) -> list[Command]:
        return list(written(self._folder / "acks", Command))

    def count(self, query: str) -> int:
        ((number,),) = self._ask(query)
        assert isinstance(number, int)
        return number

    def states(self) -> list[tuple[object, ...]]:
        return self._ask("SELECT service, state, suspect, count(*) FROM task GROUP BY service, state, suspect")

    def tasks(self) -> list[Task]:
        async def read() -> list[Task]:
            async with looked_at(self.home) if self.store is None else open_store(self.store) as store:
                return await store.find(Query(limit=10**6))

        return SystemClock().run(read)

    def history(self) -> History:
        return History(
            lives=tuple(self._lives.values()),
            faults=(*self._faults, *written(self._folder / "faults", Fault)),
            commands=tuple(self._commands()),
            lines=tuple(self.lines()),
            images=tuple(self.images),
            dump=Dump(at=time.time(), tasks=tuple(map(Kept.of, self.tasks()))),
            bounds=Bounds(lanes=LANES, shared=self.store is not None),
        )

    def go(self) -> None:
        """Let those that are held go on."""
        (self._folder / "go").touch()

    def _ask(self, query: str) -> list[tuple[object, ...]]:
        """As anyone may with the shell of the database."""
        if self.store is None:
            return ask(self.home / "raptor.sqlite", query)
        where = address.read(self.store)
        with psycopg.connect(where.url, options=f"-c search_path={where.schema}") as connection:
            return connection.execute(query.encode()).fetchall()

    def _look(self, life: int) -> Image:
        query = "SELECT id, state, owner FROM task WHERE state IN ('done', 'dead', 'taken')"
        ended, taken = set[int](), list[str]()
        is_there = self.store is not None or (self.home / "raptor.sqlite").exists()
        rows = self._ask(query) if is_there else []
        for id, state, owner in rows:
            if state == "taken":
                taken.append(str(owner))
            else:
                assert isinstance(id, int)
                ended.add(id)
        seen = len(self.lines())  # after the look at the store, so that nothing seems to run again
        return Image(at=time.time(), seen=seen, life=life, ended=tuple(sorted(ended)), taken=tuple(taken))

    def _spawn(
        self, role: str, argument: str, homes: Sequence[Path], more: Mapping[str, str], before: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        environ = {key: value for key, value in os.environ.items() if not key.startswith("RAPTOR_")}
        environ |= {
            LEDGER: str(self._folder / "ledger"),
            COMMANDS: str(self._folder / "acks"),
            FAULTS: str(self._folder / "faults"),
            LIFE: str(self.life),
            **({} if self.store is None else {"QUEUE_STORE": self.store}),
            **more,
        }
        command = [*before, sys.executable, "-m", "tests.system.kill_queue", role, argument, *map(str, homes)]
        return subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE)
