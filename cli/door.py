"""The way to a state directory that costs least: the running node's socket first, and raptor.connect only without one.

raptor.control imports the whole engine; a status that a node answers needs none of it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raptor.errors import RaptorError, RefusedState

if TYPE_CHECKING:
    from raptor.config import Config

LONGEST_PATH = 107  # bytes that a socket address holds
PATIENCE_S, PAUSE_S = 5.0, 0.05  # for a node that is just starting


class Told(RaptorError):
    """The node refused; `code` is what to exit with."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


class Nobody(Exception):
    """No node answers."""


def socket_path(home: Path) -> Path:
    """As raptor.control has it; a test holds the two together."""
    path = home / "control.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"raptor-{os.getuid()}" / f"{digest}.sock"


def ask(home: Path, command: str, params: dict[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
    """Have the running node perform a command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.fspath(socket_path(home)))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise Nobody from None
        except PermissionError:
            raise Told(f"{home} belongs to another user: run as its owner, or choose another with --home", 6) from None
        try:
            request = {"jsonrpc": "2.0", "id": 1, "method": command, "params": params}
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
        except TimeoutError:
            raise Told(f"the node does not answer within {timeout_s:g} s: `raptor doctor` looks why", 124) from None
        except ConnectionError:
            line = b""
    if not line:
        raise Told("the node closed the connection: it is stopping, or allows this user nothing", 3)
    answer = msgspec.json.decode(line)
    if "error" in answer:
        raise Told(answer["error"]["message"], answer["error"]["data"]["exit_code"])
    result: dict[str, Any] = answer["result"]
    return result


def listens(home: Path) -> bool:
    """Whether a node answers on the state directory."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(socket_path(home)))
        except OSError:
            return False
    return True


def owner_pid(home: Path) -> int | None:
    """The process that owns the directory, by its lock file; it may be dead."""
    try:
        pid = msgspec.json.decode((home / "lock").read_bytes())["pid"]
    except (OSError, msgspec.DecodeError, TypeError, KeyError):
        return None
    return pid if isinstance(pid, int) else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def call(config: Config, command: str, **params: Any) -> dict[str, Any]:
    """Perform a command: on the running node if there is one, else by ourselves."""
    for patience in range(int(PATIENCE_S / PAUSE_S), -1, -1):
        try:
            return ask(config.home, command, params)
        except Nobody:
            from raptor.connect import connect
        try:
            return connect(config).call(command, **params)
        except RefusedState as refused:
            # A state directory that is just being made looks absent, or damaged, to whoever reads it.
            pid = owner_pid(config.home)
            if not patience or refused.kind not in ("absent", "damaged") or pid is None or not is_alive(pid):
                raise
            time.sleep(PAUSE_S)
    raise AssertionError("the last round returns or raises")
