"""What the schedulers run here: services that do nothing, in a state directory of their own."""

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raptor.service import Anchor, Service

SCHEDULERS = 10
PAYLOAD = "x" * 98  # 100 bytes of JSON


def services(
    names: Sequence[str], function: Callable[..., Any], every_s: float | None, anchor: Anchor = "slot"
) -> list[Service]:
    return [Service(name=name, function=function, every_s=every_s, anchor=anchor) for name in names]


def named(count: int, prefix: str = "s") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def dealt(names: Sequence[str], schedulers: int) -> dict[str, list[str]]:
    """The services of each of so many schedulers."""
    return {f"scheduler{number}": list(names[number::schedulers]) for number in range(schedulers)}


@contextmanager
def home() -> Generator[Path]:
    """A folder on the disk that temporary files are on, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="raptor-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def nothing() -> None:
    pass


async def swallow(data: str) -> None:
    pass
