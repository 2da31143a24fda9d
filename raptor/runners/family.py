"""The processes of a run, wherever they hide: found in /proc by descent, and by the run's id in their environment.

A process that left its group and session, or lost its parent, still carries the environment it was started with.
Where there is no /proc nobody is found, and only the process group is left to signal.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

RUN_ID = "RAPTOR_RUN_ID"
OWNER = "RAPTOR_OWNER"
MARK = "RAPTOR_MARK"
ROOM = "RAPTOR_ROOM"
ROOM_BYTES = 200
ROUNDS = 10


class Member(NamedTuple):
    """A process, told apart from a later one with its number by when it began."""

    pid: int
    began: int


def marks(run_id: str, owner: str | None = None) -> dict[str, str]:
    """What the processes of a run bear in their environment; the second is new each time, whatever the id is.

    The id of a task's run is a number of its store, so the node that owns it goes along, by a name that no other had.
    """
    return {RUN_ID: run_id, MARK: secrets.token_hex(8), **({} if owner is None else {OWNER: owner})}


def with_room(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with its run's id last, and room behind it to write another in its place: see kept.py."""
    return {name: value for name, value in env.items() if name != RUN_ID} | {
        RUN_ID: env[RUN_ID],
        ROOM: "." * ROOM_BYTES,
    }


def has_room(run_id: str) -> bool:
    return len(run_id.encode(errors="replace")) <= ROOM_BYTES and "\0" not in run_id


def of_run(marks: Mapping[str, str], leader: int | None = None) -> set[Member]:
    """The processes that bear all of a run's marks, and those below its leader, without the leader itself."""
    pids = _pids()
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    chosen = {pid for pid in pids if wanted.issubset(_environment(pid))}
    if leader is not None:
        chosen |= _below(leader, pids)
    began = {pid: _began(pid) for pid in chosen - {os.getpid(), leader}}
    return {Member(pid, when) for pid, when in began.items() if when is not None}


def send(members: Iterable[Member], number: int) -> None:
    for member in members:
        try:
            handle = os.pidfd_open(member.pid)
        except OSError:
            continue
        try:
            # The handle holds the process, so what is compared is what gets the signal.
            if _began(member.pid) == member.began:
                signal.pidfd_send_signal(handle, number)
        except OSError:
            pass  # it has ended, or belongs to another user
        finally:
            os.close(handle)


def sweep(marks: Mapping[str, str], known: Iterable[Member] = ()) -> int:
    """Kill what is left of a run; -> how many there were."""
    targets = set(known)
    killed: set[Member] = set()
    for _ in range(ROUNDS):  # one that is killed may just have started another
        targets |= of_run(marks)
        fresh = {member for member in targets - killed if _began(member.pid) == member.began}
        if not fresh:
            break
        send(fresh, signal.SIGKILL)
        killed |= fresh
    return len(killed)


def sweep_after_crash(run_id: str, owner: str | None = None) -> int:
    """Kill what a dead node left of the run that it had in flight, before it is run again; -> how many there were.

    The id, with the owner of a task, must be one that no other run on this machine has ever had.
    """
    return sweep({RUN_ID: run_id, **({} if owner is None else {OWNER: owner})}) if run_id else 0


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _below(leader: int, pids: Iterable[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid in pids:
        if (fields := _stat(pid)) is not None:
            children.setdefault(int(fields[1]), []).append(pid)
    found: set[int] = set()
    waiting = [leader]
    while waiting:
        fresh = set(children.get(waiting.pop(), ())) - found
        found |= fresh
        waiting.extend(fresh)
    return found


def _environment(pid: int) -> list[bytes]:
    return (_read(pid, "environ") or b"").split(b"\0")


def _began(pid: int) -> int | None:
    """When it began; None for one that has ended, a zombie too."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the state on: state, parent, group, session, ... and the start as number 19."""
    text = _read(pid, "stat")
    # The name before them may hold anything, brackets and spaces too.
    return text.rpartition(b")")[2].split() if text else None


def _read(pid: int, file: str) -> bytes | None:
    try:
        fd = os.open(f"/proc/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = b""
        while more := os.read(fd, 65536):
            data += more
        return data
    except OSError:  # it ended meanwhile
        return None
    finally:
        os.close(fd)
