"""All that is known of some lives of nodes: what the checker judges. Records that can be written as lines of JSON.

A history is put together by whoever disturbs the nodes. The ledger is written by the services, the lives, faults and
commands by those who started, disturbed and asked. Raptor's own word is the dump, and what nodes said that they could
not record, which excuses nothing by itself.

Every `at` is in seconds by a clock that is never set. Planned times, and all times of the dump, are by the wall clock
of the nodes. That is the same clock unless there are faults that set it ("step"): then it shows `at` plus all steps up
to then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from raptor.rows import Definition, SchedulerState, ServiceTiming
from raptor.service import Anchor, MissedPolicy, OnCrash, Overlap, Service
from raptor.task import Run, Slot, State, Task, Try

What: TypeAlias = Literal["start", "end", "fail", "cut"]
"""A run began; returned; raised; was cancelled, and could say so. One that was killed says nothing."""

Asked: TypeAlias = Literal["", "done", "retry", "again", "failed", "skipped", "missed"]
"""The tag of the verdict that a service returned, where it decided itself (`ctx.again()` and the like)."""

Trouble: TypeAlias = Literal["kill", "child", "freeze", "step", "partition", "outage"]
"""Kinds of faults.

- kill: a life ended without a word (kill -9, a crash, power)
- child: the process of an isolated service was killed, or ended by itself, and its node did not
- freeze: a life stood still (SIGSTOP) from `at` to `until`
- step: the wall clock was set forward or back `by` so many seconds
- partition: a node did not reach the store from `at` to `until`
- outage: the store failed everybody from `at` to `until`: down, full, or slow beyond measure
"""

Asking: TypeAlias = Literal["put", "cancel", "revive", "define", "run"]
"""Kinds of commands: on tasks, on a scheduler (whatever changes its definition), and a service run by hand."""


class Declared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="service"):
    """A service: what it promises does not change in a history. Its timing may, by a scheduler's definition."""

    name: str
    every_s: float | None = None  # None: what the definition says, or the interval of its scheduler
    cron: str | None = None
    timezone: str | None = None
    anchor: Anchor = "slot"
    missed: MissedPolicy = "once"
    missed_limit: int = 10
    overlap: Overlap = "skip"
    on_crash: OnCrash = "rerun"
    max_attempts: int | None = None
    timeout_s: float | None = None  # a run is ended then; None: none takes that long

    @classmethod
    def of(cls, service: Service) -> Declared:
        """The same of a service as Raptor knows it."""
        return cls(**{name: getattr(service, name) for name in cls.__struct_fields__})


class Life(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="life"):
    """One process of a node, from its start to its end."""

    life: int  # its number: no two lives of a history have the same
    node: str = ""  # which place it lived at; several on a shared store
    at: float  # it was started
    ended: float | None = None  # None: it lived when the dump was read
    killed: bool = False  # it ended without a word; otherwise by an orderly stop
    stopping: float | None = None  # when it was told to stop in order, though it may have been killed before it had
    pid: int | None = None  # lines of another process are of a service's own; None: not known


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="fault"):
    """One disturbance that somebody caused on purpose."""

    what: Trouble
    at: float
    until: float | None = None  # None: it is over at once (kill, child, step), or was not over when the dump was read
    life: int | None = None  # whom it met; None: everybody
    by: float = 0.0  # of a step: seconds forward, or back
    pid: int | None = None  # of a child, which writes it into its lines; None: not known


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="command"):
    """Something that was asked of Raptor. It took effect between `at` and `acked`, if at all."""

    what: Asking
    at: float  # it was sent
    acked: float | None = None  # success was returned; None: its fate is not known
    task: int | None = None  # of a put that was acknowledged, a cancel or a revive
    service: str = ""  # of a put or a run
    due: float | None = None  # of a put: it may run then at the earliest, by the wall clock; None: not known
    new: bool = True  # of a put: not an older task with the same key
    definition: Definition | None = None  # of a define: the whole definition as it is afterwards


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="line"):
    """A line of the ledger: one event of one run, told by the service itself."""

    what: What
    run: str  # the run's id; of a task "<task>.<fence>"
    service: str
    task: int | None = None  # None: a run for a slot, or by hand
    fence: int = 0  # of a task
    scheduler: str | None = None  # of a slot; None for a task, and for a run by hand
    cycle: str = ""  # of a slot, where it is known
    attempt: int = 1  # as the context says: of a slot 1 for the first run, of a task how many failed before
    life: int = 0  # in which it ran
    pid: int = 0
    planned: float = 0.0  # the slot, or when the task was due
    at: float
    wall: float | None = None  # what the wall clock showed; None: `at`
    asked: Asked = ""  # of an end

    @property
    def shown(self) -> float:
        """The time by the wall clock."""
        return self.at if self.wall is None else self.wall


class Unrecorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="unrecorded"):
    """A life that had stopped in order said that it could not record the end of a run."""

    life: int
    run: str
    at: float


class Image(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="image"):
    """What the store had at a moment on the way, as after a kill: what is recorded there must not run again."""

    at: float
    seen: int  # how many lines the ledger had by then
    life: int | None = None  # whose end it was looked at for
    ended: tuple[int, ...] = ()  # tasks that were done or dead
    taken: tuple[str, ...] = ()  # the owner of each task that was taken
    recorded: tuple[str, ...] = ()  # ids of runs for slots whose success was in service_timing (last_run_id)


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as the store has it, without its data: what there is to judge."""

    id: int
    service: str
    queue: str = "default"
    state: State = State.READY
    priority: int = 5
    due: float
    created: float = 0.0
    attempts: int = 0
    max_attempts: int | None = 3
    key: str | None = None
    parent: int | None = None
    active_s: float | None = None
    timing: str | None = None
    started: float | None = None
    previous: float | None = None
    ended: float | None = None
    reason: str = ""
    history: tuple[Try, ...] = ()
    fence: int = 0
    owner: str | None = None
    lease: float | None = None
    deaths: int = 0
    unwanted: bool = False

    @classmethod
    def of(cls, task: Task) -> Kept:
        return cls(**{name: getattr(task, name) for name in cls.__struct_fields__})


class Dump(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="dump"):
    """The store at the end."""

    at: float  # when it was read
    tasks: tuple[Kept, ...] = ()
    timing: dict[str, ServiceTiming] = {}
    states: dict[str, SchedulerState] = {}
    definitions: dict[str, Definition] = {}
    slots: tuple[Slot, ...] = ()  # the ledger of Raptor
    runs: tuple[Run, ...] = ()


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="bounds"):
    """What the nodes were set to, and how patient the judge is."""

    lanes: int = 100  # runs of tasks at a time, in one life
    shared: bool = False  # several lives may be there at a time
    late_s: float = 1.0  # a slot has begun by then if nothing disturbs it and nobody runs before it
    recover_s: float = 10.0  # after a fault is over, or a life began, slots are on time again
    settle_s: float = 10.0  # after the last fault, whatever was due has its end
    run_s: float = 60.0  # no run takes longer


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A whole history."""

    services: tuple[Declared, ...] = ()
    lives: tuple[Life, ...] = ()
    faults: tuple[Fault, ...] = ()
    commands: tuple[Command, ...] = ()
    lines: tuple[Line, ...] = ()  # in the order they were written
    unrecorded: tuple[Unrecorded, ...] = ()
    images: tuple[Image, ...] = ()
    dump: Dump
    bounds: Bounds = Bounds()

    @classmethod
    def of(cls, records: Iterable[Record]) -> History:
        """Of records in any order, but lines in theirs. The last dump and the last bounds count."""
        kinds: dict[type, list[Record]] = {}
        for record in records:
            kinds.setdefault(type(record), []).append(record)
        lists = {
            name: tuple(kinds.get(kind, ()))
            for name, kind in (
                ("services", Declared), ("lives", Life), ("faults", Fault), ("commands", Command), ("lines", Line),
                ("images", Image), ("unrecorded", Unrecorded),
            )
        }  # fmt: skip
        (dump, *_), (bounds, *_) = reversed(kinds[Dump]), reversed(kinds.get(Bounds, [Bounds()]))
        return msgspec.convert({**lists, "dump": dump, "bounds": bounds}, cls)

    @property
    def records(self) -> Iterator[Record]:
        yield from self.services
        yield from self.lives
        yield from self.faults
        yield from self.commands
        yield from self.lines
        yield from self.unrecorded
        yield from self.images
        yield self.bounds
        yield self.dump


Record: TypeAlias = Declared | Life | Fault | Command | Line | Unrecorded | Image | Dump | Bounds
R = TypeVar("R", Declared, Life, Fault, Command, Line, Unrecorded, Image, Dump, Bounds)
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """One line of a file, with its end: to be written at once, so that lines of several processes do not mix."""
    return msgspec.json.encode(record) + b"\n"


def write(path: Path, records: Iterable[Record]) -> None:
    path.write_bytes(b"".join(map(encode, records)))


def read(path: Path) -> list[Record]:
    """The records of a file, none where there is no file. The last line may be torn, as a crash leaves it; no other."""
    return [_DECODER.decode(line) for line in _whole_lines(path)]


def read_as(kind: type[R], path: Path) -> list[R]:
    """The records of a file that has only those of one kind."""
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().rpartition(b"\n")[0].splitlines() if path.exists() else []
