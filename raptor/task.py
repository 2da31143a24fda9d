"""The records of planned and done work: Slot, Run, and the verdicts that close them."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec


class Outcome(StrEnum):
    """How one run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner says of one execution. A service that fails is data, not an exception of ours."""

    outcome: Outcome
    info: str = ""  # one line for people: the return value, or the error
    error: str | None = None  # the whole error, with its traceback or exit status
    tail: str = ""  # the end of what it printed
    died: bool = False  # its own process was killed or crashed, rather than the work failing


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a service. Small on disk: a cycle's state row carries all of its runs."""

    id: str
    service: str
    scheduler: str | None  # None: run by hand
    planned: float  # the slot it is for
    attempt: int  # 1 for the first run of a slot
    start: float
    end: float | None = None
    outcome: Outcome | None = None  # None while it runs
    info: str = ""
    error: str | None = None
    tail: str = ""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The slot has its result; timing advances."""


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """The run failed and is tried again at a time; the slot stays open."""

    at: float


class Again(msgspec.Struct, frozen=True, tag="again"):
    """Not run, or asked to come back: at a time, and it costs no attempt."""

    at: float


class Dead(msgspec.Struct, frozen=True, tag="failed"):
    """No more tries; timing does not advance."""

    reason: str


class Skipped(msgspec.Struct, frozen=True, tag="skipped"):
    """Not run on purpose: paused, overlap, removed, claimed elsewhere, interrupted."""

    reason: str


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """Not run because nobody could: the node was down, or the slot went into another run."""

    reason: str


Verdict: TypeAlias = Done | Retry | Again | Dead | Skipped | Missed


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One planned moment of a service, or a range of them, and what became of it: a line of the ledger."""

    service: str
    planned: float
    last: float  # the end of a range; `planned` itself for a single one
    count: int = 1
    verdict: str  # done, failed, skipped, missed, coalesced
    reason: str = ""
    scheduler: str | None = None
    run: str | None = None  # the run that closed it
    recorded: float
