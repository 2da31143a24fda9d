"""The output of a run while it runs: the lines that come into its service's log file, whoever runs it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from raptor.cli.chronicle import Tail
from raptor.cli.logs import HEADER
from raptor.cli.words import plain

POLL_S = 0.05


class Live:
    """While it is open, a thread shows the next run that begins in the file; `run` is its id, once it has printed."""

    def __init__(self, path: Path) -> None:
        self.run: str | None = None
        self._tail = Tail(path)
        self._over = False  # another run has begun
        self._problem: OSError | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="raptor-live", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._tail.close()
        if self._problem is not None and error is None:
            raise self._problem  # whoever read has gone

    def _follow(self) -> None:
        try:
            while not self._stopped.wait(POLL_S):
                self._show()
            self._show()
        except OSError as error:
            self._problem = error

    def _show(self) -> None:
        for line in self._tail.lines():
            header = HEADER.fullmatch(line)
            if header is not None and self.run is None:
                self.run = header[1].decode()
            elif header is not None:
                self._over = self._over or header[1].decode() != self.run
            elif self.run is not None and not self._over:  # what comes before its header is of an earlier run
                click.echo(plain(line.decode(errors="replace").replace("\t", "    ")))
