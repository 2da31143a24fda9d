"""What a node did, as records: made from its events, kept in home/raptor.log as JSON lines, read back from there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import msgspec

from raptor.cli.words import TIMES, public

if TYPE_CHECKING:
    from raptor.events import Event
    from raptor.rows import Recorded
    from raptor.task import Run, Slot

NAME = "raptor.log"
LARGEST = 5 * 2**20  # bytes of one file
FILES = 4

Record: TypeAlias = dict[str, Any]

HEARD = (
    "checked", "service_started", "service_ended", "service_skipped", "cycle_done", "cycle_resumed", "slot_closed",
    "store_failing", "clock_stepped", "scheduler_stalled", "message_dropped", "message_failed", "command_failed",
    "gave_up", "loop_resumed", "standing_by", "taken_over", "ownership_lost", "write_refused", "node_left",
    "store_lost", "store_back", "not_recorded",
)  # fmt: skip
"""The events that become records."""


def record_of(event: Event) -> Record:
    """An event as plain values."""
    facts: dict[str, Any] = dict(event.facts)
    made: Record = {"at": event.at, "event": event.name}
    run: Run | None = facts.pop("run", None)
    if run is not None:
        made |= {"service": run.service, "run": run.id, "attempt": run.attempt, "planned": run.planned}
        if run.end is not None:
            made |= {"outcome": str(run.outcome), "info": run.info, "took_s": run.end - run.start}
    slot: Slot | None = facts.pop("slot", None) if event.name == "slot_closed" else None
    if slot is not None:
        made |= {"service": slot.service, "planned": slot.planned, "last": slot.last, "count": slot.count}
        made |= {"verdict": slot.verdict, "reason": slot.reason, "scheduler": slot.scheduler}
    results: tuple[Recorded, ...] = facts.pop("results", ())
    if event.name == "cycle_done":
        made |= _counts(results)
    if event.name == "cycle_resumed":
        made["planned"] = facts.pop("slot")
    if event.name == "checked":
        made["planned"] = facts.pop("at")
    return made | {key: _plain(value) for key, value in facts.items()}


def _counts(results: tuple[Recorded, ...]) -> Record:
    """How the services of a cycle fared; a run that a crash cut off is told by the run that replaced it."""
    ended = [result for result in results if result.verdict in ("done", "retry", "failed")]
    return {
        "ok": sum(result.verdict == "done" for result in ended),
        "failed": sum(result.verdict != "done" for result in ended),
        "retried": sum(result.attempt > 1 for result in ended),
        "to_retry": sum(result.verdict == "retry" for result in ended),
        "skipped": sum(result.verdict == "skipped" for result in results),
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool | dict):
        return cast("Any", value)
    if isinstance(value, list | tuple):
        return [one if isinstance(one, int) else str(one) for one in cast("list[object]", value)]
    return str(value)


def encode(record: Record) -> bytes:
    return msgspec.json.encode(public(record)) + b"\n"


def decode(line: bytes) -> Record | None:
    """A record of the file; None for a line that is none, such as one that a crash cut short."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(found, dict) or "event" not in found or "at" not in found:
        return None
    try:
        return {
            key: datetime.fromisoformat(value).timestamp() if key in TIMES and isinstance(value, str) else value
            for key, value in found.items()  # pyright: ignore[reportUnknownVariableType]
        }
    except ValueError:
        return None


class LogFile:
    """A file that is moved aside when it has grown: raptor.log.1 is the one before. A full disk costs lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def write(self, line: bytes) -> None:
        try:
            if self._file is None or self._file.tell() + len(line) > LARGEST:
                self._open(len(line))
            assert self._file is not None
            self._file.write(line)
        except OSError:
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, more: int) -> None:
        self.close()
        if self._path.exists() and self._path.stat().st_size + more > LARGEST:
            for number in range(FILES - 1, 0, -1):
                older = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
                if older.exists():
                    os.replace(older, self._path.with_name(f"{self._path.name}.{number}"))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._path, flags, 0o600), "ab", buffering=0)
        self._file.seek(0, os.SEEK_END)


class Tail:
    """What is added to a file, also when it is moved aside meanwhile."""

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self._open(0 if from_start else os.SEEK_END)

    def lines(self) -> Iterator[bytes]:
        """The whole lines since the last call."""
        if self._file is None:
            self._open(0)
        if self._file is None:
            return
        yield from self._read(self._file)
        if self._moved(self._file):
            yield from self._read(self._file)  # the end of the old one
            self._open(0)
            if self._file is not None:
                yield from self._read(self._file)

    def _read(self, file: BinaryIO) -> list[bytes]:
        *whole, self._rest = (self._rest + file.read()).split(b"\n")
        return whole

    def _moved(self, file: BinaryIO) -> bool:
        try:
            now = os.stat(self._path)
        except OSError:
            return False
        mine = os.fstat(file.fileno())
        return (now.st_ino, now.st_dev) != (mine.st_ino, mine.st_dev)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, where: int) -> None:
        self.close()
        try:
            self._file = self._path.open("rb")
        except OSError:
            self._file = None
        else:
            self._file.seek(0, where)


def records(home: Path, since: float | None = None) -> Iterator[Record]:
    """Everything in the log that is left, oldest first."""
    names = [*(f"{NAME}.{number}" for number in range(FILES - 1, 0, -1)), NAME]
    for name in names:
        try:
            file = (home / name).open("rb")
        except FileNotFoundError:
            continue
        with file:
            for line in file:
                record = decode(line)
                if record is not None and (since is None or record["at"] >= since):
                    yield record
