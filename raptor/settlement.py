"""What a result means for a task: its verdict, the move that records it, and the next of one that repeats. Pure."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec

from raptor.due import rounded
from raptor.duration import LONGEST_S
from raptor.errors import BadInput
from raptor.judge import backoff_s
from raptor.service import Anchor, Service
from raptor.task import (
    MOVES,
    VERDICTS,
    Again,
    Dead,
    Done,
    Missed,
    Move,
    Outcome,
    Result,
    Retry,
    Skipped,
    State,
    Task,
    Try,
    Verdict,
)
from raptor.timing import Every, Timing, parse_cron

DONE = Done()
ENDS = MOVES[State.TAKEN]
DONE_STATE, READY_STATE, OK = State.DONE, State.READY, Outcome.OK  # looked up once: an enum's members are slow to find
DEATHS = 3  # of its own process, in a row, that make a task poison
LIVES = 20  # earlier runs that a task remembers
OUTPUT = 64 * 1024  # characters of what it returned
ERROR = 16 * 1024
REASON = 200
LAST = 1e11  # seconds: a time that is no mistake

CANCELLED = "cancelled"
REPEATED = "repeated"
"""A line in the life of a task: it ended, and its next was put."""
LAPSED = Result(outcome=Outcome.INTERRUPTED, info="its lease lapsed: whoever ran it is gone, or hangs")


class Repeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a task comes again, as its row keeps it."""

    every_s: float | None = None
    anchor: Anchor = "grid"
    cron: str | None = None
    timezone: str | None = None
    origin: float  # when the first of them was due

    @property
    def timing(self) -> Timing:
        if self.cron is not None:
            return parse_cron(self.cron, self.timezone)
        assert self.every_s is not None
        return Every(self.every_s, self.anchor)


def plan_of(text: str) -> tuple[Repeat, Timing] | None:
    """How a row says that it comes again; None for what makes no sense: on a shared store anybody may write it."""
    try:
        plan = msgspec.json.decode(text, type=Repeat)
        lasting = plan.cron is not None or (plan.every_s is not None and 0 < plan.every_s <= LONGEST_S)
        return (plan, plan.timing) if lasting and 0 <= plan.origin < LAST else None
    except (msgspec.MsgspecError, BadInput):
        return None


def judge_task(task: Task, service: Service, result: Result, now: float, rng: random.Random) -> Verdict:
    """Done, another try, or the end of the tries. What the function asked for itself comes first."""
    if result.decision is not None and (asked := _asked(task, result.decision, now)) is not None:
        return asked
    if result.outcome is OK and result.decision is None:
        return DONE
    if result.died and task.max_attempts is not None and task.deaths + 1 >= DEATHS:
        return Dead("poison")
    return _exhausted(task, "failed") or Retry(rounded(now + _backoff_s(service, task.attempts + 1, rng)))


def lapsed(task: Task, now: float) -> Verdict:
    """Nobody runs it any more: it comes back at once, unless that was its last try."""
    return _exhausted(task, "lapsed") or Retry(now)


def as_after_a_crash(task: Task, service: Service | None, now: float) -> Verdict:
    """What becomes of one whose run was broken off without a word."""
    if task.unwanted:
        return Skipped(CANCELLED)
    if service is not None and service.on_crash == "skip":
        return Skipped("interrupted")
    return lapsed(task, now)


def move(task: Task, verdict: Verdict, result: Result, now: float, *, keep_done: bool = True, ran: bool = True) -> Move:
    """The row after a verdict: one table for every end of a run, and of a task that never ran."""
    tag = VERDICTS[type(verdict)]
    state = ENDS[tag]
    if state is DONE_STATE:
        successor = None if task.timing is None else _next(task, task.timing, now)
        return Move(
            id=task.id, fence=task.fence, queue=task.queue, state=state, attempts=task.attempts,
            previous=task.previous, started=task.started, ended=now, output=_output(result.value),
            history=task.history if successor is None else _lived(task, Try(start=None, end=now, verdict=REPEATED)),
            keep=keep_done, successor=successor,
        )  # fmt: skip
    over = state is READY_STATE or verdict == Skipped(CANCELLED)
    repeat = None if over else task.timing
    failed = ran and tag in ("retry", "failed") and not result.died and result is not LAPSED
    came_back = state is READY_STATE
    successor = None if repeat is None else _next(task, repeat, now)
    history = _remembered(task, tag, result, now) if came_back and ran else task.history
    if successor is not None:
        history = _lived(task, Try(start=None, end=now, verdict=REPEATED))
    error = _plain(result.error or result.info)[:ERROR] or None
    return Move(
        id=task.id,
        fence=task.fence,
        queue=task.queue,
        state=state,
        due=verdict.at if isinstance(verdict, Retry | Again) else None,
        attempts=task.attempts + (ran and tag in ("retry", "failed")),
        previous=task.due if came_back and ran else task.previous,
        started=task.started if ran and tag != "again" else None,
        ended=None if came_back else now,
        error=None if tag == "again" else error,
        reason="" if isinstance(verdict, Done | Retry | Again) else _plain(verdict.reason)[:REASON],
        deaths=0 if failed else task.deaths + result.died,
        suspect=result is LAPSED or result.died or (task.suspect and not failed),
        history=history,
        successor=successor,
    )


def is_late(task: Task, now: float) -> Verdict | None:
    """The end of a task that is taken too late to be of use."""
    return Missed("expired") if task.overdue is not None and now > task.overdue else None


def _asked(task: Task, decision: Verdict | None, now: float) -> Verdict | None:
    """What the function decided, as far as it makes sense: it is a user's, and may hold anything."""
    match decision:
        case Retry(at=at) if _is_time(at):
            return _exhausted(task, "failed") or Retry(rounded(max(at, now)))
        case Again(at=at) if _is_time(at):
            return Again(rounded(max(at, now)))
        case Dead(reason=reason) | Skipped(reason=reason) | Missed(reason=reason):
            return type(decision)(_plain(str(reason)) or "no reason given")
        case Done():
            return decision
        case _:
            return None


def _is_time(at: object) -> bool:
    return isinstance(at, int | float) and math.isfinite(at) and at < LAST


def _backoff_s(service: Service, failures: int, rng: random.Random) -> float:
    """A wait of the user's that fails, or gives no number, is as good as none."""
    try:
        wait_s = backoff_s(service, None, failures, rng)
    except Exception:
        wait_s = math.nan
    if service.backoff is not None and not math.isfinite(wait_s):
        return backoff_s(msgspec.structs.replace(service, backoff=None), None, failures, rng)
    return max(wait_s, 0.0)


def _exhausted(task: Task, reason: str) -> Dead | None:
    last = task.max_attempts is not None and task.attempts + 1 >= task.max_attempts
    return Dead(reason) if last else None


def _remembered(task: Task, tag: str, result: Result, now: float) -> tuple[Try, ...]:
    return _lived(task, Try(start=task.started, end=now, verdict=tag, info=_plain(result.info)[:REASON]))


def _lived(task: Task, line: Try) -> tuple[Try, ...]:
    """The latest lines of its life. That it has repeated is not forgotten."""
    known = (*task.history, line)
    if len(known) <= LIVES:
        return known
    kept = [one for one in known[:-LIVES] if one.verdict == REPEATED][-1:]
    return (*kept, *known[len(kept) - LIVES :])


def once_repeated(task: Task) -> Task:
    """One that was revived has its next already: it repeats no more, whatever becomes of it."""
    if task.timing is None or all(line.verdict != REPEATED for line in task.history):
        return task
    return msgspec.structs.replace(task, timing=None)


def _next(task: Task, repeat: str, now: float) -> Task | None:
    """The next repetition: a new row, whose parent is this one. Slots that have passed are one."""
    found = plan_of(repeat)
    if found is None:
        return None
    plan, timing = found
    due = timing.after(slot=task.due, end=now, origin=plan.origin)
    if due <= now:
        last, count = timing.latest(due, now)
        due = timing.after(slot=last, end=now, origin=plan.origin) if count else due
    return Task(
        queue=task.queue, service=task.service, data=task.data, priority=task.priority, due=rounded(due),
        max_attempts=task.max_attempts, key=task.key, parent=task.id, active_s=task.active_s, timeout_s=task.timeout_s,
        timing=repeat,
    )  # fmt: skip


def _output(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = msgspec.json.encode(value).decode()
    except Exception:  # whatever a user's object does when it is looked at
        text = msgspec.json.encode(_described(value)[:OUTPUT]).decode()
    return text if len(text) <= OUTPUT else msgspec.json.encode(f"{text[:1000]}...").decode()


def _described(value: object) -> str:
    try:
        return _plain(repr(value))
    except Exception:
        return f"an object of {type(value).__name__}"


def _plain(text: str) -> str:
    """A text that every store takes."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
