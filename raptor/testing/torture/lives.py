"""The lives that a server of forks has started: begun, signalled, waited for, and remembered."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from raptor.testing.torture.forks import Birth, Signal, Told, Work


class Lost(Exception):
    """The server of forks has ended by itself."""


@dataclass
class Lived:
    """One process."""

    life: int
    work: Work
    log: Path
    pid: int | None = None
    began: float = 0.0
    ready: asyncio.Event = field(default_factory=asyncio.Event)  # or it has ended before
    was_ready: bool = False
    stopping: float | None = None  # when it was told to stop in order
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: float | None = None
    code: int | None = None


class Lives:
    """`async with Lives(folder) as lives:`; leaving it ends all of them."""

    def __init__(self, folder: Path, env: Mapping[str, str], rights_s: float | None = None) -> None:
        self.all: list[Lived] = []
        self._folder = folder
        self._env = dict(env)
        self._rights_s = rights_s
        self._rest = b""
        self._told: msgspec.json.Decoder[Told] = msgspec.json.Decoder(Told)

    async def __aenter__(self) -> Lives:
        # Everything takes the length of a lease from there, once.
        brief = "" if self._rights_s is None else f"import raptor.rows\nraptor.rows.LEASE_S = {self._rights_s}\n"
        program = f"{brief}from raptor.testing.torture.forks import main\nmain()"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAPTOR_")}
        with (self._folder / "forks.log").open("ab") as log:
            self._server = subprocess.Popen(  # noqa: ASYNC220 - nobody else waits yet
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env={**environ, **self._env}, start_new_session=True,
            )  # fmt: skip
        assert self._server.stdout is not None
        os.set_blocking(self._server.stdout.fileno(), False)
        asyncio.get_running_loop().add_reader(self._server.stdout.fileno(), self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()  # it kills all that live, and goes
        for lived in self.all:
            await lived.over.wait()
        asyncio.get_running_loop().remove_reader(self._server.stdout.fileno())
        self._server.stdout.close()
        self._server.wait()

    def begin(self, work: Work, env: Mapping[str, str] | None = None) -> Lived:
        life = len(self.all)
        lived = Lived(life, work, self._folder / "logs" / f"{life}.log")
        self.all.append(lived)
        env = {**self._env, "TORTURE_LIFE": str(life), **(env or {})}
        self._ask(Birth(life=life, work=work, env=env, log=str(lived.log)))
        return lived

    def signal(self, lived: Lived, number: int) -> None:
        self._ask(Signal(life=lived.life, number=number))

    def _ask(self, request: Birth | Signal) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(msgspec.json.encode(request) + b"\n")
        self._server.stdin.flush()

    def _read(self) -> None:
        assert self._server.stdout is not None
        data = os.read(self._server.stdout.fileno(), 65536)
        if not data:
            self._lose()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(self._told.decode(line))

    def _hear(self, told: Told) -> None:
        lived = self.all[told.life]
        match told.what:
            case "born":
                lived.pid, lived.began = told.value, told.at
            case "ready":
                lived.was_ready = True
                lived.ready.set()
            case _:
                lived.code, lived.ended = told.value, told.at
                lived.ready.set()
                lived.over.set()

    def _lose(self) -> None:
        """Nobody tells any more: whoever lived has ended with it."""
        assert self._server.stdout is not None
        asyncio.get_running_loop().remove_reader(self._server.stdout.fileno())
        for lived in self.all:
            lived.ready.set()
            lived.over.set()
