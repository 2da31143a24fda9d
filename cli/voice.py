"""Where the records of a node go: lines to the terminal, JSON lines into its state directory, and log.file."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from raptor.cli.chronicle import NAME, LogFile, Record, encode
from raptor.cli.narrator import Narrator
from raptor.cli.paint import ansi, no_paint
from raptor.cli.session import Session


class Voice:
    """Where records go: lines to the terminal, JSON lines into the state directory, and log.file."""

    def __init__(self, session: Session, home: Path, names: tuple[str, ...], out: TextIO, *, detached: bool) -> None:
        log = session.config.log
        self._json = log.format == "json"
        self.narrator = Narrator(session.zone, ansi if session.colour and not self._json else no_paint, names)
        self._plain = Narrator(session.zone, names=names)
        self._terminal = not detached
        self._out = out
        self._file = LogFile(home / NAME)
        self._second = None if log.file is None else LogFile(log.file)

    def tell(self, record: Record) -> None:
        line = encode(record)
        self._file.write(line)
        self._plain.several = self.narrator.several
        if self._second is not None:
            shown = line if self._json else (self._plain.line(record) or "").encode()
            if shown:
                self._second.write(shown.rstrip(b"\n") + b"\n")
        if self._terminal:
            self.show(line.decode().rstrip() if self._json else self.narrator.line(record))

    def show(self, line: str | None) -> None:
        if line is None:
            return
        try:
            self._out.write(line + "\n")
            self._out.flush()
        except (OSError, ValueError):
            self._terminal = False  # whoever read has gone; the services have not


class Logged(logging.Handler):
    """Warnings of Python's logging, as records."""

    def __init__(self, put: Callable[[Record], None], level: int) -> None:
        super().__init__(level)
        self._put = put
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        made = {"at": record.created, "event": "log", "level": record.levelname.lower(), "text": self.format(record)}
        try:
            self._loop.call_soon_threadsafe(self._put, made)
        except RuntimeError:
            pass  # the loop has closed


def divert_stdout(printed: Callable[[str], None]) -> TextIO:
    """Have what is printed for the node handed over, a line at a time; -> the real standard output."""
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    loop.call_soon_threadsafe(printed, line.rstrip("\n"))
                except RuntimeError:
                    pass  # the loop has closed; read on, so that nobody waits for us

    threading.Thread(target=read, name="raptor-printed", daemon=True).start()
    return out


def let_go(home: Path, out: TextIO) -> None:
    """Tell whoever started us that all is well, and hold nothing of theirs any more."""
    out.write("ready\n")
    out.close()
    null = os.open(os.devnull, os.O_RDONLY)
    error = os.open(home / "raptor.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(error, 2)
    os.close(null)
    os.close(error)
