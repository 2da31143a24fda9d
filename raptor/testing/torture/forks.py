"""A server of forks: everything is imported once, so that a node begins in a few hundredths of a second.

It reads requests on its standard input, a line each, and tells on its standard output what becomes of those that it
started. When nobody asks any more it ends, and all of them with it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TypeAlias

import msgspec

from raptor.commands import load_all
from raptor.cron import system_zone
from raptor.testing.torture.client import Client, put
from raptor.testing.torture.node import Place, live
from raptor.testing.torture.pulse import Pulse, beat
from raptor.testing.torture.services import now

PR_SET_PDEATHSIG = 1

Work: TypeAlias = Place | Client | Pulse


class Birth(msgspec.Struct, frozen=True, kw_only=True, tag="birth"):
    """Start one of them."""

    life: int
    work: Work
    env: Mapping[str, str]
    log: str  # where its output goes


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag="signal"):
    """Send it a signal, if it lives."""

    life: int
    number: int


class Told(msgspec.Struct, frozen=True):
    """What became of one."""

    what: str  # born, ready, ended
    life: int
    value: int  # its process, or its exit code
    at: float


Request = Birth | Signal


class Forks:
    """The server's side."""

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}  # the life of each process
        self._requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)

    def serve(self) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(read, selectors.EVENT_READ)
            rest = b""
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if read in ready:
                    os.read(read, 4096)
                    self._reap()
                if 0 in ready:
                    data = os.read(0, 65536)
                    if not data:
                        break
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._perform(self._requests.decode(line))
        for pid in self._alive:
            os.kill(pid, signal.SIGKILL)

    def _perform(self, request: Request) -> None:
        match request:
            case Birth():
                self._fork(request)
            case Signal(life=life, number=number):
                for pid, alive in self._alive.items():
                    if alive == life:
                        os.kill(pid, number)  # not reaped yet, so it is nobody else's number

    def _fork(self, birth: Birth) -> None:
        pid = os.fork()
        if not pid:
            _begin(birth)
        self._alive[pid] = birth.life
        tell("born", birth.life, pid)

    def _reap(self) -> None:
        while self._alive:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            tell("ended", self._alive.pop(pid), os.waitstatus_to_exitcode(status))


def _wake(number: int, frame: object) -> None:
    """The wakeup of the selector is enough."""


def tell(what: str, life: int, value: int, to: int = 1) -> None:
    os.write(to, msgspec.json.encode(Told(what, life, value, now())) + b"\n")


def _begin(birth: Birth) -> None:
    """From here on in a process of its own, which never returns."""
    code = 70
    try:
        os.setsid()  # Ctrl-C is not for it
        _end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        told = os.dup(1)
        _redirect(birth.log)
        os.environ.update(birth.env)
        code = _work(birth, lambda: tell("ready", birth.life, 0, told))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _work(birth: Birth, ready: Callable[[], None]) -> int:
    match birth.work:
        case Place():
            return live(birth.work, ready)
        case Client():
            ready()
            return put(birth.work)
        case Pulse():
            ready()
            beat(birth.work)


def _redirect(log: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, onto in ((null, 0), (out, 1), (out, 2)):
        os.dup2(number, onto)
    os.close(null)
    os.close(out)


def _end_with_parent() -> None:
    with suppress(AttributeError, OSError):  # not Linux: there the end of the input is the only one
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def prepare() -> None:
    """Import what a node imports when it is first used."""
    load_all()
    system_zone()
    for kind in ("python", "command", "http", "publish"):
        import_module(f"raptor.runners.{kind}")
    for extra in ("uvloop", "raptor.state.postgres.opening"):
        with suppress(ImportError):
            import_module(extra)


def main() -> None:
    prepare()
    gc.collect()
    gc.freeze()
    Forks().serve()


if __name__ == "__main__":
    main()
