"""Times, lengths and lines as people read them. Pure, and beside the screens that show them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from raptor.cli.chronicle import LARGEST, LogFile, Tail, decode, encode, records
from raptor.cli.narrator import Narrator
from raptor.cli.words import plain, public, rough, until, when
from raptor.errors import BadInput
from raptor.moment import read_moment

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.004, "4 ms"),
        (0.4, "0.4 s"),
        (3.7, "4 s"),
        (59.6, "1 min"),
        (57 * 60, "57 min"),
        (3600, "1h"),
        (5400, "1h 30m"),
        (86400, "24h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (30 * 86400, "30d"),
    ],
)
def test_a_length_is_as_exact_as_it_is_long(seconds: float, shown: str) -> None:
    assert rough(seconds) == shown


@pytest.mark.parametrize(
    ("offset", "shown"),
    [(60, "12:01:00"), (86400, "tomorrow 12:00"), (-86400, "yesterday 12:00"), (3 * 86400, "2026-11-19 12:00")],
)
def test_a_moment_is_told_from_today(offset: float, shown: str) -> None:
    assert when(NOW + offset, NOW, UTC) == shown


def test_what_is_due_is_now_and_what_never_comes_is_never() -> None:
    assert until(NOW - 5, NOW, UTC) == "now"
    assert until(float("inf"), NOW, UTC) == until(None, NOW, UTC) == "never"
    assert until(NOW + 240, NOW, UTC) == "12:04:00 (in 4 min)"


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("now", 0),
        ("2h ago", -7200),
        ("11:30", -1800),
        ("yesterday 12:00", -86400),
        ("2026-11-16 12:00:01", 1),
        ("2026-11-16T13:00:00Z", 3600),
        ("2026-11-16T12:00:00+02:00", -7200),
    ],
)
def test_a_moment_can_be_written_in_many_ways(text: str, offset: float) -> None:
    assert read_moment(text, NOW, UTC) == NOW + offset


@pytest.mark.parametrize("text", ["", "25:00", "soon", "2026-13-01 00:00", "ago", "12"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_moment(text, NOW, UTC)


def test_no_text_can_speak_to_the_terminal() -> None:
    assert plain("a\x1b[31mb\x07\r") == "a\\x1b[31mb\\x07\\r"
    record = {"at": NOW, "event": "service_ended", "scheduler": "main", "service": "s", "attempt": 1}
    line = Narrator(UTC).line({**record, "outcome": "failed", "info": "[red]\x1b[2J", "took_s": 1, "verdict": "failed"})
    assert line is not None
    assert "[red]\\x1b[2J" in line
    assert "\x1b" not in line


def test_idle_checks_are_told_once() -> None:
    narrator = Narrator(UTC)
    check = {"at": NOW, "event": "checked", "scheduler": "main", "due": [], "waiting": {"a": "runs in 5s"}}
    assert narrator.line(check) == "12:00:00  nothing due: a runs in 5s"
    assert narrator.line(check) is None
    narrator.line({"at": NOW, "event": "cycle_done", "scheduler": "main", "ok": 1, "failed": 0})
    assert narrator.line(check) is not None


def test_a_record_survives_its_file() -> None:
    record = {"at": NOW + 0.25, "event": "cycle_done", "next_check": NOW + 10, "ok": 1, "scheduler": "main"}
    assert b'"at":"2026-11-16T12:00:00.250000Z"' in encode(record)
    assert decode(encode(record)) == record
    assert decode(b'{"at": "2026') is None
    assert decode(b"[]") is None
    assert public({"at": float("inf"), "took_s": 1.5}) == {"at": None, "took_s": 1.5}


def test_a_log_that_has_grown_is_moved_aside_and_still_followed(tmp_path: Path) -> None:
    file, line = LogFile(tmp_path / "raptor.log"), encode({"at": NOW, "event": "log", "text": "x" * 100_000})
    tail = Tail(tmp_path / "raptor.log")
    seen = 0
    for _ in range(LARGEST // len(line) + 10):
        file.write(line)
        seen += len(list(tail.lines()))
    file.close()
    tail.close()
    assert (tmp_path / "raptor.log.1").exists()
    assert (tmp_path / "raptor.log").stat().st_size < LARGEST
    assert seen == LARGEST // len(line) + 10 == len(list(records(tmp_path)))
