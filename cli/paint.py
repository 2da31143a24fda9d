"""Colours: of a terminal, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Paint: TypeAlias = Callable[[str, str], str]


def no_paint(text: str, colour: str) -> str:
    return text


def ansi(text: str, colour: str) -> str:
    codes = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}
    return f"\x1b[{codes[colour]}m{text}\x1b[0m"
