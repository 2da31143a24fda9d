"""What is fuzzed: a function of an input that raises whatever must not be raised."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    """One thing that reads. `check` gives how many cases an input was; None is one."""

    name: str
    check: Callable[[bytes], int | None]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()  # that it knows: an input made of them gets further
    inputs: Callable[[int], Iterator[bytes]] | None = None  # of a seed, where changed bytes would be none
    slow_s: float = 0.05  # of the processor, for one input

    def corpus(self) -> list[bytes]:
        """The seeds, and the inputs of runs before, found worth keeping."""
        kept = sorted((CORPUS / self.name).glob("*")) if (CORPUS / self.name).is_dir() else []
        return [*self.seeds, *(path.read_bytes() for path in kept)]


def must(holds: bool, what: str) -> None:
    """A property of an answer. Not an assert: those of the code under test are surprises, too."""
    if not holds:
        raise Wrong(what)


class Wrong(Exception):
    """An answer that is not true."""


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="raptor-fuzz-", dir=memory if memory.is_dir() else None)


def scratch() -> Path:
    """A folder for what is only read from files: in memory, where there is such a place. It goes with the process."""
    return Path(_scratch().name)
