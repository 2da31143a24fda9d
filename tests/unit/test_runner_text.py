"""What services say, made short and harmless."""

from __future__ import annotations

import pytest

from raptor.runners.text import LINE, TRACEBACK, amount, harmless, lines, one_line, raised, returned, stamp


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")

    __repr__ = __str__


class Strange(dict[str, int]):
    def items(self) -> None:  # type: ignore[override]
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcode ✓", "plain, ünïcode ✓"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("nul\0", "nul\\x00"),
        ("right to \u202eleft", "right to \\u202eleft"),
        ("half \ud800", "half \\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_instead(text: str, shown: str) -> None:
    assert harmless(text) == one_line(text) == shown


def test_a_line_is_cut_at_its_limit_and_says_so() -> None:
    assert one_line("x" * LINE) == "x" * LINE
    assert one_line("x" * 10**6) == "x" * (LINE - 3) + "..."
    assert len(one_line("\0" * 10**6)) == LINE


def test_several_lines_keep_their_breaks_and_their_end() -> None:
    assert lines("a\r\nb\rc\td", 100) == "a\nb\nc\td"
    assert lines("x" * 200 + "end", 5) == "xxend"
    assert lines("é" * 10, 5) == "éé"
    assert len(lines("\0" * 4096, 4096).encode()) == 4096


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 KB"), (5 * 10**9, "5.0 GB"), (10**16, "10000.0 TB")],
)
def test_bytes_are_counted_for_people(count: int, shown: str) -> None:
    assert amount(count) == shown


def test_a_time_is_written_in_utc() -> None:
    assert (stamp(0), stamp(1_000_000_000.5)) == ("1970-01-01T00:00:00Z", "2001-09-09T01:46:40.500000Z")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("done", "done"),
        ("two\nlines", "two\\nlines"),
        (7, "7"),
        ({"rows": [1, None, "é"]}, '{"rows": [1, null, "é"]}'),
        (object(), "(a object, which is not JSON)"),
        (Strange(a=1), "(a Strange, which is not JSON)"),
    ],
)
def test_a_return_value_becomes_a_line(value: object, shown: str) -> None:
    assert returned(value) == shown


def test_only_the_beginning_of_a_large_value_is_looked_at() -> None:
    looked = 0

    class Endless(list[int]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked
            while True:
                looked += 1
                yield looked

    assert returned(Endless([1])).endswith("...")
    assert looked < 200


def test_a_value_that_holds_itself_is_named_by_its_type() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert returned(loop) == "(a list, which is not JSON)"


def test_an_error_becomes_a_line_and_a_traceback() -> None:
    try:
        raise ValueError("bad\nthing")
    except ValueError as error:
        line, whole = raised(error)
    assert line == "ValueError: bad\\nthing"
    assert whole.startswith("Traceback (most recent call last):\n")
    assert "in test_an_error_becomes_a_line_and_a_traceback" in whole
    assert whole.endswith("ValueError: bad\nthing")


def test_an_error_whose_message_fails_is_still_told() -> None:
    line, whole = raised(Unprintable())
    assert line == "Unprintable: (its message cannot be shown)"
    assert "Unprintable" in whole


def test_a_long_error_is_cut() -> None:
    line, whole = raised(ValueError("x" * 10**6))
    assert len(line) == LINE
    assert len(whole) == TRACEBACK
