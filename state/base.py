"""The store protocol: what survives, as verbs on records. No policy here or behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from raptor.rows import Definition, Line, SchedulerState, ServiceTiming
from raptor.task import Move, Run, Slot, State, Task

if TYPE_CHECKING:
    from raptor.state.prospect import Prospect

Record: TypeAlias = ServiceTiming | SchedulerState | Definition | Line

TABLES: dict[str, type[Record]] = {
    "service_timing": ServiceTiming,
    "scheduler_state": SchedulerState,
    "definitions": Definition,
    "lines": Line,
}

BEAT_S = 5.0
"""How often a node shows itself on a store that others use too."""


class Receipt(NamedTuple):
    """What a put gives. `new` is False if the key was held: then this is the task that holds it."""

    id: int
    new: bool


class Promise(NamedTuple):
    """What a store is, and what a commit of it is worth."""

    store: str  # its address, without a password
    text: str
    is_full: bool  # what is acknowledged outlives a power cut


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of one queue, and the limits that hold for it over all who take."""

    queue: str
    room: int
    suspects: bool = False  # those that run apart, or the others
    concurrency: int | None = None
    rate: int | None = None  # starts in any `per_s`
    per_s: float = 1.0
    lease_s: float = 60.0


class Taken(NamedTuple):
    """What was taken, in the order of its queues and of (priority, due, id), and until when a rate is used up.

    `suspects` are queues of whose other tasks some were wanted, and that have suspects due as well.
    """

    tasks: list[Task]
    spent: Mapping[str, float]
    suspects: frozenset[str] = frozenset()


class Hold(NamedTuple):
    """A taken task, as its owner knows it."""

    id: int
    fence: int


class Held(NamedTuple):
    """What became of leases: those that are somebody else's by now, and those whose task is no longer wanted."""

    stale: frozenset[int]
    unwanted: frozenset[int]


class Right(NamedTuple):
    """The sole right to something, as its owner knows it."""

    key: str  # "scheduler:main", "service:crawl"
    fence: int


class Grant(NamedTuple):
    """Who holds a right: it is granted to whoever is its owner."""

    owner: str
    fence: int
    lease: float  # until when


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as it showed itself last."""

    owner: str  # the incarnation
    name: str  # for people: host:pid
    host: str
    pid: int
    version: str  # of Raptor
    started: float
    seen: float = 0.0
    alive: bool = True  # as the store sees it
    skew_s: float = 0.0  # how far its clock was off the store's
    rights: tuple[Right, ...] = ()  # that it holds
    doing: dict[str, Any] = {}  # JSON: its schedulers, its worker, its tree


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to find. None and empty mean any."""

    ids: tuple[int, ...] = ()
    states: tuple[State, ...] = ()
    queue: str | None = None
    service: str | None = None
    key: str | None = None
    parent: int | None = None
    owner_not: str | None = None  # taken by anybody else
    owners: tuple[str, ...] = ()  # taken by one of these
    lapsed: float | None = None  # taken, with a lease that ended before
    due_from: float | None = None
    due_until: float | None = None
    after: int = 0  # ids above it
    newest: bool = False  # the order: by id, upwards or downwards
    limit: int = 100


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks of a queue there are in each state; `ready` are due, `delayed` are not yet."""

    queue: str
    ready: int = 0
    delayed: int = 0
    taken: int = 0
    done: int = 0
    dead: int = 0
    cancelled: int = 0
    oldest: float | None = None  # the due time of the first that is ready


class Bell(Protocol):
    """Rings when tasks become ready or change their due time, whoever put them."""

    async def ring(self) -> Mapping[str, float]:
        """Wait for the next; -> the earliest due time of each queue since the last."""
        ...

    def close(self) -> None: ...


class Watch(Protocol):
    """News of the tables, for one who watches: whoever changed them, also through this very store."""

    async def ring(self) -> frozenset[tuple[str, str]]:
        """Wait for the next; -> (table, key) of all that changed since the last.

        ("unwanted", id) is a taken task that was cancelled; ("", "") means that anything may have changed.
        """
        ...

    def close(self) -> None: ...


class Tasks(Protocol):
    """The verbs on tasks. Times are judged by the `now` that they are handed, limits by those of the Want."""

    exclusive: bool  # one process at a time: whoever else owned a task is gone

    @property
    def looks_ahead(self) -> bool:
        """Whether a take is worth asking for before it is sure."""
        ...

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        """Store tasks, all or none; -> one answer each. Ids grow, and none is used twice.

        BadInput is raised for a task that could not be taken in its order. Only what asked.py names is taken of each.
        One whose key is held (by a pending task of the service, or until its `key_until`) is not stored; with
        `replace` a ready holder gets its data, due time and options instead, and a taken one loses the key to it.
        """
        ...

    async def take(self, wants: Sequence[Want], *, owner: str, now: float, prospect: Prospect | None = None) -> Taken:
        """Give ready tasks that are due to their new owner, each once: fence + 1, a lease, started now.

        Where there is only a `prospect` of room for them, a store may look for them meanwhile; if it turns out that
        there is none, nothing was given.
        """
        ...

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        """Move taken tasks on, each with its successor; -> the ids of those whose fence was stale: nothing moved.

        A successor is put as by `put`, except that the task it repeats does not keep the key from it. One that was
        cancelled while it was taken does not come back: it ends as cancelled.
        """
        ...

    async def extend(self, holds: Sequence[Hold], *, until: float) -> Held:
        """Prolong leases."""
        ...

    async def cancel(self, ids: Sequence[int], *, now: float, reason: str) -> dict[int, State]:
        """Cancel what is ready, and mark what is taken as unwanted; -> the state of each before. Others stay."""
        ...

    async def revive(self, ids: Sequence[int], *, now: float) -> list[int]:
        """Make ended tasks ready again, from attempt 0, their history kept; -> which were.

        One whose key a pending task holds by now stays as it is.
        """
        ...

    async def find(self, query: Query) -> list[Task]: ...

    async def stat(self, *, now: float) -> list[Counts]:
        """Counts by queue, in the order of their names."""
        ...

    async def queues(self) -> list[str]:
        """The names of queues that have ready tasks."""
        ...

    async def upcoming(self, queues: Sequence[str], *, after: float, limit: int) -> list[tuple[str, float]]:
        """(queue, due) of ready tasks due after a time, the earliest first."""
        ...

    async def drop(self, ids: Sequence[int]) -> int:
        """Delete ended tasks; -> how many."""
        ...

    async def shed(self, *, before: float, limit: int) -> int:
        """Delete done and cancelled tasks that ended before a time, at most so many; -> how many."""
        ...

    def listen(self) -> Bell: ...


@runtime_checkable
class Promising(Protocol):
    """A store whose server may promise less than a disk that was synced."""

    @property
    def promise(self) -> Promise | None: ...


class Store(Tasks, Protocol):
    """Every method returns when what it did is durable; each is called from an event loop and does not block it.

    A write that fails raises NotWritten (nothing was acknowledged, try again) or RefusedState (only a new start helps).
    """

    @property
    def sequence(self) -> int:
        """Grows with every commit: one that stands still needs no tidying."""
        ...

    async def load(self, table: str) -> dict[str, Record]:
        """All records of a table, by key, in the order of their last change."""
        ...

    async def save(self, changes: Sequence[tuple[str, str, Record | None]], *, rights: Sequence[Right] = ()) -> None:
        """Write or delete records, in this order, each durable before the next.

        StaleLease is raised, and nothing written, if one of the rights is not held at its fence any more.
        """
        ...

    async def amend(self, table: str, key: str, seen: Record | None, record: Record) -> bool:
        """Write a record in the place of the one that was seen, or of none; False, and nothing, if that changed."""
        ...

    async def record(self, slots: Iterable[Slot], runs: Iterable[Run], *, rights: Sequence[Right] = ()) -> None:
        """Add lines to the ledger; those that are there already (by run id, or service and planned time) stay.

        But a range of slots that extends one that is there takes its place: a crash came before its plan was saved.
        Rights are asked for as by `save`.
        """
        ...

    async def history(
        self,
        service: str | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
        limit: int = 100,
    ) -> list[Run]:
        """Past runs, newest first; `since` and `until` are of their start, both included."""
        ...

    async def slots(self, service: str, *, since: float, until: float, limit: int = 1000) -> list[Slot]:
        """Closed slots that touch a span of time, both ends included, oldest first."""
        ...

    async def prune(self, *, before: float, keep: int) -> int:
        """Forget runs and slots older than that, and all but the newest `keep` of each service; -> how many."""
        ...

    async def claim(self, keys: Sequence[str], *, owner: str, now: float, lease_s: float) -> dict[str, Grant]:
        """Take or renew rights, all at once; -> who holds each now.

        One goes to this owner where it is free, its own already, lapsed, or its owner is gone. The fence grows by 1
        when it is taken, also after a release, and stays when it is renewed.
        """
        ...

    async def release(self, rights: Sequence[Right], *, owner: str) -> None:
        """Give rights back; those that are somebody else's by now stay."""
        ...

    async def holders(self, prefix: str) -> dict[str, Grant]:
        """The rights that are held by the living, by key, of keys that begin so."""
        ...

    async def appear(self, presence: Presence, *, now: float) -> list[Presence]:
        """Show that a node is alive; -> all that were seen in the last day, in the order of their start.

        Its rights are renewed for the time of a lease; in the answer it has those that it still holds.
        A node is gone when it was not seen for the time of a lease, or when the store knows better: its connection
        is gone and it was not seen for a beat. Where a store has one process at a time, there is no other.
        """
        ...

    async def nodes(self, *, now: float) -> list[Presence]:
        """What `appear` tells, for one who only looks."""
        ...

    async def vanish(self, owner: str) -> None:
        """An orderly end: the presence and its rights go."""
        ...

    def watch(self) -> Watch: ...

    async def close(self) -> None: ...
