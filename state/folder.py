"""The folder of a state directory: ours alone, and on a file system whose locks hold."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from raptor.errors import RefusedState

# statfs(2): file systems whose locks or shared memory do not reach other machines, or do not hold.
NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "CIFS",
    0x564C: "NCP",
    0x5346414F: "AFS",
    0x73757245: "Coda",
    0x00C36400: "Ceph",
    0x01021997: "9p",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x7461636F: "OCFS2",
    0x01161970: "GFS2",
}


def make(path: Path) -> None:
    """Create it for its owner alone; one that is there already stays as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        advice = "choose another with --home or RAPTOR_HOME"
        raise RefusedState("unwritable", path, f"cannot be created: {error.strerror}", advice) from error


def settle(path: Path) -> None:
    """Make its name durable, and those of its parents: one that was just made may be gone with the power."""
    for parent in path.parents:
        try:
            sync(parent)
        except OSError:
            pass  # not ours to read: then it was not ours to make either


def sync(path: Path) -> None:
    """Make the names in it durable."""
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def check(path: Path, *, allow_network_fs: bool = False) -> None:
    """Raise RefusedState where others could change it, or where locks do not hold."""
    status = path.stat()
    if status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
        raise RefusedState("insecure", path, problem, f"run as its owner, or `chown -R {os.geteuid()}` it")
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise RefusedState("insecure", path, "can be written by others", f"`chmod 700 {path}`")
    if not allow_network_fs and (kind := NETWORK.get(magic(path) or 0)):
        problem = f"lies on a network file system ({kind}), whose locks cannot be trusted"
        raise RefusedState("network", path, problem, "use a local disk, or allow_network_fs at your own risk")


def magic(path: Path) -> int | None:
    """Which file system, by the number that the kernel gives it; None where it cannot be asked."""
    if sys.platform != "linux":
        return None
    import ctypes  # slow to import, and only an owner asks

    words = (ctypes.c_long * 64)()  # struct statfs is smaller; f_type comes first
    if ctypes.CDLL(None).statfs(os.fsencode(path), words) != 0:
        return None
    return int(words[0]) & 0xFFFFFFFF
