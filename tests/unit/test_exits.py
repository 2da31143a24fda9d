"""Reasons as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.exits import Exit, as_reason, is_clean

KINDS = [Exit.NORMAL, Exit.SHUTDOWN, Exit.KILLED, Exit.NOPROC, Exit.FAILED]
TERMS = st.one_of(st.none(), st.integers(), st.text(), st.tuples(st.integers(), st.text()))


def test_reasons_are_compared_by_value() -> None:
    assert Exit.SHUTDOWN("x") == Exit.SHUTDOWN("x") != Exit.SHUTDOWN("y")
    assert Exit.SHUTDOWN("x") != Exit.SHUTDOWN
    assert len(set(KINDS)) == len(KINDS)
    assert hash(Exit.SHUTDOWN("x")) == hash(Exit.SHUTDOWN("x"))


def test_a_term_is_added_to_a_kind_and_does_not_change_it() -> None:
    with_term = Exit.SHUTDOWN("draining")
    assert (with_term.kind, with_term.term) == ("shutdown", "draining")
    assert Exit.SHUTDOWN.term is None


def test_a_reason_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Exit.NORMAL.kind = "abnormal"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Exit.NORMAL, "normal"),
        (Exit.KILLED, "killed"),
        (Exit.SHUTDOWN("draining"), "shutdown('draining')"),
        (Exit.FAILED(0), "failed(0)"),
    ],
)
def test_a_reason_reads_as_in_otp(reason: Exit, text: str) -> None:
    assert repr(reason) == text


@pytest.mark.parametrize(
    ("reason", "clean"),
    [
        (Exit.NORMAL, True),
        (Exit.SHUTDOWN, True),
        (Exit.SHUTDOWN("term"), True),
        (Exit.SHUTDOWN(0), True),
        (Exit.KILLED, False),
        (Exit.NOPROC, False),
        (Exit.FAILED, False),
        (Exit.FAILED("normal"), False),
        (ValueError("normal"), False),
        (SystemExit(0), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_normal_and_shutdown_are_clean_and_nothing_else_is(reason: Exit | BaseException, clean: bool) -> None:
    assert is_clean(reason) is clean


@given(TERMS)
def test_a_shutdown_is_clean_whatever_its_term(term: object) -> None:
    assert is_clean(Exit.SHUTDOWN(term))


@given(TERMS)
def test_any_other_value_is_a_failure_with_that_term(value: object) -> None:
    assert as_reason(value) == Exit.FAILED(value)
    assert not is_clean(as_reason(value))


@pytest.mark.parametrize("reason", [*KINDS, Exit.SHUTDOWN("term"), ValueError(), KeyboardInterrupt()])
def test_a_reason_stays_as_it_is(reason: object) -> None:
    assert as_reason(reason) is reason


def test_an_exception_class_is_a_value_like_any_other() -> None:
    assert as_reason(ValueError) == Exit.FAILED(ValueError)
