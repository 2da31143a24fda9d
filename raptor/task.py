"""The records of planned and done work: Slot, Run, Task, their verdicts, and the states and moves of a task.

Those of which there is one for every run hold nothing that leads back to them, and are kept from the collector.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec


class Outcome(StrEnum):
    """How one run ended."""

    OK = "ok"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class Result(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a runner says of one execution. A service that fails is data, not an exception of ours."""

    outcome: Outcome
    info: str = ""  # one line for people: the return value, or the error
    error: str | None = None  # the whole error, with its traceback or exit status
    tail: str = ""  # the end of what it printed
    died: bool = False  # its own process was killed or crashed, rather than the work failing
    value: Any = None  # what the function returned
    decision: Verdict | None = None  # what it asked for itself: to be run again, or to end


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
    """Not run on purpose: paused, overlap, removed, rescheduled, claimed elsewhere, interrupted."""

    reason: str


class Missed(msgspec.Struct, frozen=True, tag="missed"):
    """Not run because nobody could: the node was down, or the slot went into another run."""

    reason: str


Verdict: TypeAlias = Done | Retry | Again | Dead | Skipped | Missed
VERDICTS: dict[type[Verdict], str] = {
    Done: "done", Retry: "retry", Again: "again", Dead: "failed", Skipped: "skipped", Missed: "missed"
}  # fmt: skip
"""The tag of each kind of verdict."""


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

    def extends(self, other: Slot) -> bool:
        """Of two that begin at the same time: whether this is the other range, with more at its end."""
        return self.verdict == other.verdict and self.last > other.last


class State(StrEnum):
    """Where a task stands. Delayed is `ready` with a due time ahead: computed, never stored."""

    READY = "ready"
    TAKEN = "taken"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


MOVES: dict[State, dict[str, State]] = {
    State.READY: {"take": State.TAKEN, "cancel": State.CANCELLED},
    State.TAKEN: {
        "done": State.DONE,
        "retry": State.READY,
        "again": State.READY,
        "failed": State.DEAD,
        "skipped": State.CANCELLED,
        "missed": State.DEAD,
    },
    State.DONE: {"revive": State.READY},
    State.DEAD: {"revive": State.READY},
    State.CANCELLED: {"revive": State.READY},
}
"""What may become of a task: from a state, by a verb or the tag of a verdict, to a state. There are no other moves."""

READY = State.READY  # looked up once: an enum's members are slow to find
PENDING = (State.READY, State.TAKEN)
ENDED = (State.DONE, State.DEAD, State.CANCELLED)


class Try(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A line in the life of a task: a run that was not its last, or that it ended and its next was put."""

    start: float | None
    end: float
    verdict: str
    info: str = ""


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One asked-for run of a service, in a queue."""

    id: int = 0  # 0: not stored yet
    queue: str = "default"
    service: str
    data: str | bytes = "null"  # JSON as text, msgpack as bytes
    state: State = State.READY
    priority: int = 5  # 0 to 9, 0 first
    due: float
    created: float = 0.0
    attempts: int = 0  # runs that failed or lapsed
    max_attempts: int | None = 3  # runs in all; None: no limit
    key: str | None = None  # one pending task of a service for each
    key_until: float | None = None  # the key is held until then, whatever became of the task
    parent: int | None = None  # the task that put it, or that it repeats
    active_s: float | None = None  # not run when it is later than that
    timeout_s: float | None = None  # None: the service's
    timing: str | None = None  # of one that repeats, as JSON
    started: float | None = None  # of its last run
    previous: float | None = None  # when it was due before it came back
    ended: float | None = None
    output: str | None = None  # what it returned, as JSON
    error: str | None = None
    reason: str = ""  # of dead and cancelled
    history: tuple[Try, ...] = ()  # of runs before the last
    fence: int = 0  # + 1 with every take
    owner: str | None = None  # the process that runs it
    lease: float | None = None  # until when nobody else may
    deaths: int = 0  # of its own process, in a row
    suspect: bool = False  # its node died with it: it runs apart from now on
    unwanted: bool = False  # cancelled while it runs

    @property
    def overdue(self) -> float | None:
        """When it is too late to run it."""
        return None if self.active_s is None else self.due + self.active_s


Ended: TypeAlias = tuple[Task, Result, Verdict, bool]
"""A task, what came of its run, what that means, and whether it ran at all."""


class Move(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a settled task becomes: the columns that change. Refused if the fence has moved on."""

    id: int
    fence: int
    queue: str
    state: State
    due: float | None = None  # when it is ready again; None: as it was
    attempts: int
    previous: float | None = None
    started: float | None = None
    ended: float | None = None
    output: str | None = None
    error: str | None = None
    reason: str = ""
    deaths: int = 0
    suspect: bool = False
    history: tuple[Try, ...] = ()
    keep: bool = True  # False: the row goes at once
    successor: Task | None = None  # its next repetition, put together with it

    def given_up(self, now: float) -> Move:
        """Of a task that would come back, and was cancelled meanwhile."""
        return msgspec.structs.replace(self, state=State.CANCELLED, due=None, ended=now, reason="cancelled")

    @property
    def ready(self) -> list[tuple[str, float]]:
        """Queue and due time of what may be taken by it."""
        back = [(self.queue, self.due)] if self.state is READY and self.due is not None else []
        return back if self.successor is None else [*back, (self.successor.queue, self.successor.due)]
