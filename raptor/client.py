"""The near end of the control socket: asks a running node, and imports next to nothing for it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec

from raptor.errors import NotRunning, RaptorError

LONGEST_PATH = 107  # bytes that a socket address holds


class Refused(RaptorError):
    """The node refused a command; `code` is the exit code for it."""

    def __init__(self, message: str, code: int) -> None:
        self.code = code
        super().__init__(message)


class Unanswered(Refused):
    """The node closed the connection: whether it did what it was asked is not known."""

    def __init__(self) -> None:
        super().__init__("the node closed the connection: it is stopping, or allows this user nothing", 3)


class _Data(msgspec.Struct):
    exit_code: int


class _Error(msgspec.Struct):
    message: str
    data: _Data


class _Answer(msgspec.Struct):
    result: dict[str, Any] = {}
    error: _Error | None = None


_answers = msgspec.json.Decoder(_Answer)


def socket_path(home: Path) -> Path:
    """The socket of a state directory; a short one elsewhere, for this user alone, where the path is too long."""
    path = home / "control.sock"
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    import hashlib
    import tempfile

    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"raptor-{os.getuid()}" / f"{digest}.sock"


def ask(home: Path, command: str, params: dict[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
    """Have the running node perform a command; NotRunning when there is none. Blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(os.fspath(socket_path(home)))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise NotRunning() from None
        except PermissionError:
            message = f"{home} belongs to another user: run as its owner, or choose another with --home"
            raise Refused(message, 6) from None
        line = _converse(connection, command, params)
    return read_answer(line)


def read_answer(line: bytes) -> dict[str, Any]:
    """What a node answered; Refused where it did not, or with an error."""
    if not line.endswith(b"\n"):
        raise Unanswered
    try:
        answer = _answers.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Refused(f"the node answered nonsense ({error}): is it of another version?", 1) from None
    if answer.error is not None:
        raise Refused(answer.error.message, answer.error.data.exit_code)
    return answer.result


def _converse(connection: socket.socket, command: str, params: dict[str, Any]) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": command, "params": params}
    try:
        connection.sendall(msgspec.json.encode(request) + b"\n")
        with connection.makefile("rb") as answers:
            return answers.readline()
    except TimeoutError:
        raise Refused("the node does not answer in time: `raptor doctor` looks why", 124) from None
    except ConnectionError:
        return b""


def is_listening(home: Path) -> bool:
    """Whether a node runs on the state directory."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.fspath(socket_path(home)))
        except OSError:
            return False
    return True
