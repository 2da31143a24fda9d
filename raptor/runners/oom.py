"""Whether the kernel killed for want of memory: a counter of the memory cgroup that this process is in, if any.

Children are in it too. Nobody says whom it killed; that somebody was, while a child died of SIGKILL, is as much as can
be known.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc/self")
EVENTS = "memory.events"  # cgroup v2
CONTROL = "memory.oom_control"  # cgroup v1


class Mount(NamedTuple):
    """A mounted hierarchy of cgroups; `root` is the cgroup that is seen at `point`."""

    kind: str
    root: str
    point: Path
    options: tuple[str, ...]


def kills() -> int | None:
    """How often it has killed in our cgroup so far; None where nothing counts."""
    file = _own_counter()
    return None if file is None else count(file)


def count(file: Path) -> int | None:
    try:
        with open(file, "rb", buffering=0) as data:
            words = (data.read() or b"").split()
    except OSError:
        return None
    for name, value in zip(words[::2], words[1::2], strict=False):
        if name == b"oom_kill" and value.isdigit():
            return int(value)
    return None


def counter(proc: Path = PROC) -> Path | None:
    """The file that counts the kills of the cgroup that a process is in."""
    for file in _candidates(proc):
        if count(file) is not None:
            return file
    return None


@functools.cache
def _own_counter() -> Path | None:
    return counter()


def _candidates(proc: Path) -> Iterator[Path]:
    try:
        mounts = [mount for line in _lines(proc / "mountinfo") if (mount := _mount(line)) is not None]
        places = [line.split(":", 2) for line in _lines(proc / "cgroup")]
    except (OSError, ValueError):
        return
    for _, controllers, path in (place for place in places if len(place) == 3):
        for mount in mounts:
            if not controllers and mount.kind == "cgroup2":
                yield _folder(mount, path) / EVENTS
            elif "memory" in controllers.split(",") and mount.kind == "cgroup" and "memory" in mount.options:
                yield _folder(mount, path) / CONTROL


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()


def _mount(line: str) -> Mount | None:
    """A line of mountinfo: number, parent, device, root, point, options, ... - kind, source, options."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or len(right) < 3 or right[0] not in ("cgroup", "cgroup2"):
        return None
    return Mount(right[0], left[3], Path(left[4]), tuple(right[2].split(",")))


def _folder(mount: Mount, path: str) -> Path:
    """In a container the root of the mount may be the very cgroup, named as the host names it."""
    inside = path.removeprefix(mount.root) if mount.root != "/" else path
    folder = mount.point / inside.strip("/")
    return folder if folder.is_dir() else mount.point
