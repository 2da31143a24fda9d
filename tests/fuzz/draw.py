"""Choices made by bytes: what a coverage-guided fuzzer changes is then a choice, and every input is a valid one."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any, TypeVar

T = TypeVar("T")

NUMBERS = (
    0, 1, -1, 5, 9, 10, 60, 255, 256, 3600, 2**31 - 1, 2**31, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63),
    1_700_000_000, 1_763_433_600, 253_402_300_800,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 0.001, 0.1, 1.0, 1e-9, 0.5, 60.0, 86400.0, 1e6, 1_700_000_000.25, 1e11, 1e15, 1e18, 1e300, -1.0, -1e11,
    5e-324, 1.7976931348623157e308, nan, inf, -inf,
)  # fmt: skip
TEXTS = (
    "", "a", "default", "ping", "main", "x" * 99, "x" * 101, "x" * 300, "é", "\0", "\n", " ", "\ud800", "\U0001f995",
    "../etc",
    "10s", "1h30m", "0", "none", "null", "auto", "* * * * *", "@daily", "02:30", "now", "Europe/Sofia", "true", "-",
)  # fmt: skip


class Draw:
    """Reads an input from its front; when it is used up, every choice is the first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        return self.take(self.left)

    def below(self, limit: int) -> int:
        width = 1 if limit <= 256 else 2 if limit <= 65536 else 8
        return int.from_bytes(self.take(width), "big") % limit

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def chance(self, one_in: int) -> bool:
        """The rarer one, once in so many."""
        return self.below(one_in) == one_in - 1

    def integer(self) -> int:
        """One that fits into 64 bits."""
        match self.below(3):
            case 0:
                return self.pick(NUMBERS)
            case 1:
                return self.below(256) - 128
            case _:
                return int.from_bytes(self.take(8).ljust(8, b"\0"), "big", signed=True)

    def number(self) -> float:
        match self.below(4):
            case 0:
                return self.pick(FLOATS)
            case 1:
                return self.below(65537) / 16
            case 2:
                return 1_763_433_600 + self.below(65537) / 8
            case _:
                found: float = struct.unpack(">d", self.take(8).ljust(8, b"\0"))[0]
                return found

    def text(self) -> str:
        if self.below(2):
            return self.pick(TEXTS)
        return self.take(self.below(40)).decode("utf-8", "surrogateescape")

    def blob(self) -> bytes:
        return self.take(self.below(60))

    def maybe(self, draw: Callable[[], T]) -> T | None:
        return draw() if self.below(2) else None

    def plain(self, depth: int = 3) -> Any:
        """A JSON value, of any kind and size that JSON allows."""
        match self.below(8 if depth else 6):
            case 0:
                return None
            case 1:
                return bool(self.below(2))
            case 2:
                return self.integer()
            case 3:
                return 10 ** self.below(40)
            case 4:
                return self.number()
            case 5:
                return self.text()
            case 6:
                return [self.plain(depth - 1) for _ in range(self.below(4))]
            case _:
                return {self.text(): self.plain(depth - 1) for _ in range(self.below(4))}
