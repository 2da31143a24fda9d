"""Tasks of a store that forgets everything with the process."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from raptor.state.asked import ASKED, check
from raptor.state.base import Counts, Held, Hold, Query, Receipt, Taken, Want
from raptor.state.bells import Bells, LocalBell
from raptor.state.news import News
from raptor.state.pace import Starts, allowance, started
from raptor.state.prospect import Prospect, is_sure
from raptor.task import ENDED, Move, State, Task

replaced = msgspec.structs.replace

Lane = tuple[str, bool, int]
"""Queue, suspect or not, priority."""


class TransientTasks:
    def __init__(self, *, exclusive: bool) -> None:
        self.exclusive = exclusive
        self.looks_ahead = False
        self._tasks: dict[int, Task] = {}
        self._keyed: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # by service and key
        self._last = 0
        self._changes: int = 0
        self._ready: defaultdict[Lane, list[tuple[float, int]]] = defaultdict(list)  # heaps, with entries of the past
        self._paces: dict[str, Starts] = {}
        self._bells = Bells()
        self._news = News()

    async def put(self, tasks: Sequence[Task], *, now: float, replace: bool = False) -> list[Receipt]:
        check(tasks)
        placed = [self._put(task, now, replace) for task in tasks]
        self._bells.ring((task.queue, task.due) for task, (_, new) in zip(tasks, placed, strict=True) if new or replace)
        return placed

    async def take(self, wants: Sequence[Want], *, owner: str, now: float, prospect: Prospect | None = None) -> Taken:
        if not await is_sure(prospect):
            return Taken([], {})
        tasks: list[Task] = []
        spent: dict[str, float] = {}
        for want in wants:
            room, more_at = self._room(want, now)
            found = [self._give(task, want, owner, now) for task in self._due(want, now, room)]
            if want.rate is not None:
                self._paces[want.queue] = started(self._paces.get(want.queue, []), now, len(found), want.per_s)
            if more_at is not None and len(found) == max(room, 0):
                spent[want.queue] = more_at
            tasks += found
        others = [want for want in wants if not want.suspects]
        return Taken(tasks, spent, frozenset(want.queue for want in others if self._has_suspects(want.queue, now)))

    async def settle(self, moves: Sequence[Move], *, now: float) -> frozenset[int]:
        check(move.successor for move in moves if move.successor is not None)
        stale: set[int] = set()
        moved: list[Move] = []
        for move in moves:
            task = self._tasks.get(move.id)
            if task is None or task.state is not State.TAKEN or task.fence != move.fence:
                stale.add(move.id)
                continue
            if task.unwanted and move.state is State.READY:
                move = move.given_up(now)
            moved.append(move)
            self._store(
                replaced(
                    task, state=move.state, due=task.due if move.due is None else move.due, attempts=move.attempts,
                    previous=move.previous, started=move.started, ended=move.ended, output=move.output,
                    error=move.error, reason=move.reason, deaths=move.deaths, suspect=move.suspect,
                    history=move.history, owner=None, lease=None, unwanted=False,
                )
            )  # fmt: skip
        for move in moved:
            if move.successor is not None:
                self._put(move.successor, now, False, after=move.id)
        for move in moved:
            if not move.keep:
                self._forget(move.id)
        self._bells.ring(entry for move in moved for entry in move.ready)
        return frozenset(stale)

    async def extend(self, holds: Sequence[Hold], *, until: float) -> Held:
        stale: set[int] = set()
        unwanted: set[int] = set()
        for hold in holds:
            task = self._tasks.get(hold.id)
            if task is None or task.state is not State.TAKEN or task.fence != hold.fence:
                stale.add(hold.id)
                continue
            self._tasks[task.id] = replaced(task, lease=until)
            if task.unwanted:
                unwanted.add(task.id)
        return Held(frozenset(stale), frozenset(unwanted))

    async def cancel(self, ids: Sequence[int], *, now: float, reason: str) -> dict[int, State]:
        before = {id: self._tasks[id].state for id in ids if id in self._tasks}
        for id, state in before.items():
            task = self._tasks[id]
            if state is State.READY:
                self._store(replaced(task, state=State.CANCELLED, ended=now, reason=reason))
            elif state is State.TAKEN:
                self._store(replaced(task, unwanted=True))
                self._news.tell([("unwanted", str(id))])
        return before

    async def revive(self, ids: Sequence[int], *, now: float) -> list[int]:
        revived: list[int] = []
        for id in ids:
            task = self._tasks.get(id)
            if task is None or task.state not in ENDED or any(one.state not in ENDED for one in self._sharing(task)):
                continue
            revived.append(id)
            self._store(
                replaced(
                    task, state=State.READY, due=now, attempts=0, deaths=0, ended=None, started=None, reason="",
                    previous=task.due, key_until=None,
                )
            )  # fmt: skip
            self._bells.ring([(task.queue, now)])
        return revived

    async def find(self, query: Query) -> list[Task]:
        found = (task for task in self._tasks.values() if _matches(task, query))
        return sorted(found, key=lambda task: task.id, reverse=query.newest)[: query.limit]

    async def stat(self, *, now: float) -> list[Counts]:
        counts: dict[str, dict[str, int]] = {}
        oldest: dict[str, float] = {}
        for task in self._tasks.values():
            state = "delayed" if task.state is State.READY and task.due > now else str(task.state)
            of_queue = counts.setdefault(task.queue, {})
            of_queue[state] = of_queue.get(state, 0) + 1
            if state == "ready":
                oldest[task.queue] = min(task.due, oldest.get(task.queue, task.due))
        return [Counts(queue=queue, oldest=oldest.get(queue), **of_queue) for queue, of_queue in sorted(counts.items())]

    async def queues(self) -> list[str]:
        return sorted({task.queue for task in self._tasks.values() if task.state is State.READY})

    async def upcoming(self, queues: Sequence[str], *, after: float, limit: int) -> list[tuple[str, float]]:
        found = (
            (task.due, task.queue)
            for task in self._tasks.values()
            if task.state is State.READY and task.due > after and task.queue in queues
        )
        return [(queue, due) for due, queue in heapq.nsmallest(limit, found)]

    async def drop(self, ids: Sequence[int]) -> int:
        gone = [id for id in dict.fromkeys(ids) if id in self._tasks and self._tasks[id].state in ENDED]
        for id in gone:
            self._forget(id)
        return len(gone)

    async def shed(self, *, before: float, limit: int) -> int:
        old = sorted(
            (task.ended, task.id)
            for task in self._tasks.values()
            if task.state in (State.DONE, State.CANCELLED) and task.ended is not None and task.ended < before
            if not _holds_key(task, before)
        )[:limit]
        for _, id in old:
            self._forget(id)
        return len(old)

    def listen(self) -> LocalBell:
        return self._bells.listen()

    def _store(self, task: Task) -> None:
        self._changes += 1
        self._tasks[task.id] = task
        if task.key is not None:
            self._keyed[task.service, task.key].add(task.id)
        if task.state is State.READY:
            heapq.heappush(self._ready[task.queue, task.suspect, task.priority], (task.due, task.id))

    def _forget(self, id: int) -> None:
        task = self._tasks.pop(id)
        if task.key is not None:
            self._keyed[task.service, task.key].discard(id)
            if not self._keyed[task.service, task.key]:
                del self._keyed[task.service, task.key]

    def _put(self, task: Task, now: float, replace: bool, after: int = 0) -> Receipt:
        """`after` is the task that it repeats, which does not keep the key from it."""
        asked = {name: getattr(task, name) for name in ASKED}
        holder = self._holder(task, now, after)
        if holder is not None and not (replace and holder.state not in ENDED):
            return Receipt(holder.id, False)
        if holder is not None and holder.state is State.READY:
            self._store(replaced(holder, **asked))
            return Receipt(holder.id, False)
        if holder is not None:  # it runs: it ends as it began, and the key is the new one's
            self._forget(holder.id)
            self._store(replaced(holder, key=None))
        self._last += 1
        self._store(Task(id=self._last, created=now, **asked))
        return Receipt(self._last, True)

    def _holder(self, task: Task, now: float, after: int) -> Task | None:
        """Who keeps the key from it: the newest that is pending, or else the newest that holds it for a time."""
        held = [one for one in self._sharing(task) if one.state not in ENDED or _holds_key(one, now)]
        others = (one for one in held if one.id != after)
        return max(others, key=lambda one: (one.state not in ENDED, one.id), default=None)

    def _sharing(self, task: Task) -> list[Task]:
        """Those of the same key."""
        ids = () if task.key is None else self._keyed.get((task.service, task.key), ())
        return [self._tasks[id] for id in ids]

    def _room(self, want: Want, now: float) -> tuple[int, float | None]:
        room = want.room
        if want.concurrency is not None:
            running = sum(task.state is State.TAKEN and task.queue == want.queue for task in self._tasks.values())
            room = min(room, want.concurrency - running)
        if want.rate is None:
            return room, None
        allowed = allowance(self._paces.get(want.queue, []), now, want.rate, want.per_s)
        return (allowed.starts, allowed.more_at) if allowed.starts < room else (room, None)

    def _due(self, want: Want, now: float, room: int) -> Iterator[Task]:
        for priority in range(10):
            while room > 0 and (task := self._first(want.queue, want.suspects, priority, now)) is not None:
                heapq.heappop(self._ready[want.queue, want.suspects, priority])
                room -= 1
                yield task

    def _has_suspects(self, queue: str, now: float) -> bool:
        return any(self._first(queue, True, priority, now) is not None for priority in range(10))

    def _first(self, queue: str, suspect: bool, priority: int, now: float) -> Task | None:
        """The first that is due, still in its heap; entries of the past before it go."""
        lane = (queue, suspect, priority)
        heap = self._ready.get(lane, [])
        while heap and heap[0][0] <= now:
            due, id = heap[0]
            task = self._tasks.get(id)
            known = None if task is None else (task.state, task.queue, task.suspect, task.priority, task.due)
            if known == (State.READY, *lane, due):
                return task
            heapq.heappop(heap)
        return None

    def _give(self, task: Task, want: Want, owner: str, now: float) -> Task:
        given = replaced(
            task, state=State.TAKEN, fence=task.fence + 1, owner=owner, lease=now + want.lease_s, started=now
        )
        self._tasks[task.id] = given
        return given


def _holds_key(task: Task, now: float) -> bool:
    return task.key is not None and task.key_until is not None and task.key_until > now


def _matches(task: Task, query: Query) -> bool:
    return (
        (not query.ids or task.id in query.ids)
        and (not query.states or task.state in query.states)
        and query.queue in (None, task.queue)
        and query.service in (None, task.service)
        and query.key in (None, task.key)
        and query.parent in (None, task.parent)
        and (query.owner_not is None or (task.state is State.TAKEN and task.owner != query.owner_not))
        and (not query.owners or (task.state is State.TAKEN and task.owner in query.owners))
        and (query.lapsed is None or (task.state is State.TAKEN and (task.lease or 0.0) < query.lapsed))
        and (query.due_from is None or task.due >= query.due_from)
        and (query.due_until is None or task.due <= query.due_until)
        and task.id > query.after
    )
