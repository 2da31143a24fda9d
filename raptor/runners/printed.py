"""What services print inside the node, led into the output of their run.

A process asks for it with `leading_prints()`: nothing is replaced at import, and what is printed outside a run goes
where it always went. A run is known by its context, which its tasks and `asyncio.to_thread` inherit. A thread that a
service starts by itself does not, and a subprocess writes to the file descriptor: those print for the node.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from raptor.runners.output import RunLog

OUTPUT: ContextVar[RunLog | None] = ContextVar("raptor_output", default=None)
"""The output of the run that the code at hand belongs to."""


def _output() -> RunLog | None:
    """None for what outlives its run, too: printed for the node, rather than lost."""
    log = OUTPUT.get()
    return None if log is None or log.over else log


class _Text:
    """A text stream that looks, at each write, for the run that writes."""

    def __init__(self, real: TextIO) -> None:
        self._real = real
        self.buffer = _Bytes(real)  # one for all runs: libraries keep it

    def write(self, text: str) -> int:
        log = _output()
        if log is None:
            return self._real.write(text)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - services are not type-checked
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        log.text(text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _output() is None:
            self._real.flush()

    def close(self) -> None:
        """The stream is the node's: a run that closes it has closed nothing."""
        if _output() is None:
            self._real.close()

    def isatty(self) -> bool:
        return _output() is None and self._real.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Bytes:
    """The same, for those who write bytes."""

    def __init__(self, text: TextIO) -> None:
        self._text = text

    def write(self, data: Any) -> int:
        log = _output()
        if log is None:
            return self._text.buffer.write(data)
        taken = bytes(memoryview(data))
        log.write(taken)
        return len(taken)

    def flush(self) -> None:
        if _output() is None:
            self._text.buffer.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._text.buffer, name)


@contextmanager
def leading_prints() -> Generator[None]:
    """While it is open, what a run writes to sys.stdout and sys.stderr goes into its output."""
    real = {name: cast("TextIO | None", getattr(sys, name)) for name in ("stdout", "stderr")}
    ours = {name: _Text(stream) for name, stream in real.items() if stream is not None}
    for name, stream in ours.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in ours.items():
            if getattr(sys, name) is stream:  # somebody else may have put in their own since
                setattr(sys, name, real[name])
