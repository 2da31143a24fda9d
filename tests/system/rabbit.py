"""A real RabbitMQ on loopback, one for all test processes: it lives until the last of them has let go of it.

Each holds a pipe's end open. `python rabbit.py FOLDER` is the guard: it keeps the server while anybody does, so that
a test process that is killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"
START_S = 50


@contextmanager
def shared(folder: Path) -> Generator[str]:
    """The URL of the server that the processes of this folder share."""
    missing = "there is no RabbitMQ: run `make servers`"
    assert os.path.exists(SERVER), missing
    assert shutil.which("epmd"), missing
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        hold, facts = _join(folder) or _begin(folder)
    try:
        yield facts["url"]
    finally:
        os.close(hold)


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _join(folder: Path) -> tuple[int, dict[str, str]] | None:
    """Hold on to the server that there is."""
    try:
        hold = os.open(folder / "held", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    return hold, json.loads((folder / "facts").read_text())


def _begin(folder: Path) -> tuple[int, dict[str, str]]:
    (folder / "held").unlink(missing_ok=True)
    os.mkfifo(folder / "held")
    with open(folder / "log", "wb") as log:
        guard = subprocess.Popen(
            [sys.executable, __file__, folder], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    hold = os.open(folder / "held", os.O_WRONLY)  # waits for the guard
    assert guard.stdout is not None
    with guard.stdout as told:
        line = told.readline()
    guard.returncode = 0  # it outlives whoever started it, and is nobody's to wait for
    if not line:
        os.close(hold)
        raise AssertionError(f"RabbitMQ did not start:\n{(folder / 'log').read_text(errors='replace')[-4000:]}")
    (folder / "facts").write_bytes(line)
    return hold, json.loads(line)


def _guard(folder: Path) -> None:
    held = os.open(folder / "held", os.O_RDONLY)
    scratch = Path(subprocess.check_output(["mktemp", "-d", "/tmp/raptor-rabbit.XXXXXX"], text=True).strip())
    processes: list[subprocess.Popen[bytes]] = []
    try:
        facts = _start(scratch, processes)
        print(json.dumps(facts), flush=True)
        os.close(1)
        while True:
            while os.read(held, 1):
                pass
            with _locked(folder):
                os.set_blocking(held, False)
                try:
                    os.read(held, 1)  # nothing: nobody holds on to it
                except BlockingIOError:
                    os.set_blocking(held, True)
                    continue  # somebody came in the meantime
                (folder / "held").unlink(missing_ok=True)
                break
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _start(scratch: Path, processes: list[subprocess.Popen[bytes]]) -> dict[str, str]:
    ports = [str(port) for port in _ports(3)]
    password = secrets.token_hex(8)
    user = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    (scratch / "rabbitmq.conf").write_text(
        f"default_user = raptor\ndefault_pass = {password}\nlog.console = true\nlog.console.level = warning\n"
        "loopback_users = none\nvm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 10MB\n"
    )
    (scratch / "plugins").write_text("[].")
    for path in (scratch, *scratch.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    env = {
        "PATH": os.environ["PATH"] + ":/usr/sbin", "HOME": str(scratch), "LANG": "C.UTF-8",
        "ERL_EPMD_PORT": ports[0], "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"raptor{os.getpid()}@localhost", "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": ports[1], "RABBITMQ_DIST_PORT": ports[2],
        "RABBITMQ_CONFIG_FILE": str(scratch / "rabbitmq.conf"), "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(scratch / "plugins"), "RABBITMQ_MNESIA_BASE": str(scratch / "mnesia"),
        "RABBITMQ_LOG_BASE": str(scratch / "log"), "RABBITMQ_SCHEMA_DIR": str(scratch / "schema"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(scratch / "config"), "RABBITMQ_ADVANCED_CONFIG_FILE": "/dev/null",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }  # fmt: skip
    who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    for words in (["epmd"], [SERVER]):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": 2, "start_new_session": True}
        processes.append(subprocess.Popen(words, env=env, cwd=scratch, **quiet, **who))
    _listening(int(ports[1]), processes[-1])
    return {"url": f"amqp://raptor:{password}@127.0.0.1:{ports[1]}/"}


def _listening(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait for the port: it is the last that the server opens."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the server does not listen")


def _ports(count: int) -> list[int]:
    """Numbers that nobody listens on at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return numbers


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
