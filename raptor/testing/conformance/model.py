"""What the verbs on tasks mean, in the plainest form: a dict that is searched from end to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from raptor.state.asked import ASKED
from raptor.state.base import Counts, Held, Hold, Query, Receipt, Want
from raptor.task import ENDED, PENDING, Move, State, Task

MOVED = (
    "state", "due", "attempts", "previous", "started", "ended", "output", "error", "reason", "deaths", "suspect",
    "history",
)  # fmt: skip


class Model:
    """Which ids new tasks get is the store's affair: it says them, in the order of putting."""

    def __init__(self, last: int) -> None:
        self.tasks: dict[int, Task] = {}
        self.last = last  # the highest id so far

    def rows(self) -> list[Task]:
        return [self.tasks[id] for id in sorted(self.tasks)]

    def put(self, tasks: Sequence[Task], now: float, replace: bool, ids: Iterator[int]) -> list[Receipt]:
        return [self._put(task, now, replace, ids, repeats=0) for task in tasks]

    def take(self, wants: Sequence[Want], owner: str, now: float) -> list[Task]:
        given: list[Task] = []
        for want in wants:
            ready = [one for one in self.rows() if one.state is State.READY and one.due <= now]
            mine = [one for one in ready if (one.queue, one.suspect) == (want.queue, want.suspects)]
            running = sum(one.state is State.TAKEN and one.queue == want.queue for one in self.rows())
            limit = want.room if want.concurrency is None else min(want.room, want.concurrency - running)
            for one in sorted(mine, key=lambda one: (one.priority, one.due, one.id))[: max(limit, 0)]:
                lease = now + want.lease_s
                given.append(
                    self._change(one.id, state=State.TAKEN, fence=one.fence + 1, owner=owner, lease=lease, started=now)
                )
        return given

    def settle(self, moves: Sequence[Move], now: float, ids: Iterator[int]) -> frozenset[int]:
        moved: list[Move] = []
        stale: set[int] = set()
        for move in moves:
            if self._holds(move.id, move.fence):
                what, task = {name: getattr(move, name) for name in MOVED}, self.tasks[move.id]
                if task.unwanted and move.state is State.READY:  # it was cancelled, and does not come back
                    what |= {"state": State.CANCELLED, "ended": now, "reason": "cancelled", "due": task.due}
                self._change(move.id, **what, owner=None, lease=None, unwanted=False)
                moved.append(move)
            else:
                stale.add(move.id)
        for move in moved:
            if move.successor is not None:
                self._put(move.successor, now, False, ids, repeats=move.id)
        for move in moved:
            if not move.keep:
                del self.tasks[move.id]
        return frozenset(stale)

    def extend(self, holds: Sequence[Hold], until: float) -> Held:
        held = [hold.id for hold in holds if self._holds(*hold)]
        for id in held:
            self._change(id, lease=until)
        unwanted = frozenset(id for id in held if self.tasks[id].unwanted)
        return Held(frozenset(hold.id for hold in holds) - set(held), unwanted)

    def cancel(self, ids: Sequence[int], now: float, reason: str) -> dict[int, State]:
        before = {id: self.tasks[id].state for id in ids if id in self.tasks}
        for id, state in before.items():
            if state is State.READY:
                self._change(id, state=State.CANCELLED, ended=now, reason=reason)
            elif state is State.TAKEN:
                self._change(id, unwanted=True)
        return before

    def revive(self, ids: Sequence[int], now: float) -> list[int]:
        revived: list[int] = []
        for id in ids:
            task = self.tasks.get(id)
            if task is None or task.state not in ENDED or any(one.state in PENDING for one in self._sharing(task)):
                continue
            self._change(
                id, state=State.READY, due=now, attempts=0, deaths=0, ended=None, started=None, reason="",
                previous=task.due, key_until=None,
            )  # fmt: skip
            revived.append(id)
        return revived

    def drop(self, ids: Sequence[int]) -> int:
        gone = {id for id in ids if id in self.tasks and self.tasks[id].state in ENDED}
        for id in gone:
            del self.tasks[id]
        return len(gone)

    def shed(self, before: float, limit: int) -> int:
        old = [
            (one.ended, one.id)
            for one in self.rows()
            if one.state in (State.DONE, State.CANCELLED) and one.ended is not None and one.ended < before
            if one.key is None or one.key_until is None or one.key_until <= before
        ]
        for _, id in sorted(old)[:limit]:
            del self.tasks[id]
        return min(len(old), limit)

    def find(self, query: Query) -> list[Task]:
        given = {"queue": query.queue, "service": query.service, "key": query.key, "parent": query.parent}
        same = {name: value for name, value in given.items() if value is not None}
        found = [one for one in self.rows() if all(getattr(one, name) == value for name, value in same.items())]
        found = [one for one in found if one.id > query.after and (not query.states or one.state in query.states)]
        if query.owner_not is not None:
            found = [one for one in found if one.state is State.TAKEN and one.owner != query.owner_not]
        if query.lapsed is not None:
            found = [one for one in found if one.lease is not None and one.lease < query.lapsed]
        return (found[::-1] if query.newest else found)[: query.limit]

    def stat(self, now: float) -> list[Counts]:
        return [self._counts(queue, now) for queue in sorted({one.queue for one in self.rows()})]

    def queues(self) -> list[str]:
        return sorted({one.queue for one in self.rows() if one.state is State.READY})

    def upcoming(self, queues: Sequence[str], after: float, limit: int) -> list[tuple[str, float]]:
        ready = [one for one in self.rows() if one.state is State.READY and one.queue in queues and one.due > after]
        return sorted(((one.queue, one.due) for one in ready), key=lambda entry: (entry[1], entry[0]))[:limit]

    def _counts(self, queue: str, now: float) -> Counts:
        mine = [one for one in self.rows() if one.queue == queue]
        due = [one.due for one in mine if one.state is State.READY and one.due <= now]
        many = {state: sum(one.state is state for one in mine) for state in State}
        return Counts(
            queue=queue, ready=len(due), delayed=many[State.READY] - len(due), taken=many[State.TAKEN],
            done=many[State.DONE], dead=many[State.DEAD], cancelled=many[State.CANCELLED],
            oldest=min(due, default=None),
        )  # fmt: skip

    def _put(self, task: Task, now: float, replace: bool, ids: Iterator[int], *, repeats: int) -> Receipt:
        asked = {name: getattr(task, name) for name in ASKED}
        sharing = [one for one in self._sharing(task) if one.id != repeats]
        pending = [one.id for one in sharing if one.state in PENDING]
        lasting = [one.id for one in sharing if one.key_until is not None and one.key_until > now]
        if pending and replace:
            holder = max(pending)
            if self.tasks[holder].state is State.READY:
                self._change(holder, **asked)
                return Receipt(holder, False)
            self._change(holder, key=None)
        elif pending or lasting:
            return Receipt(max(pending or lasting), False)
        id = next(ids)
        assert id > self.last, "an id is used twice"
        self.last = id
        self.tasks[id] = Task(id=id, created=now, **asked)
        return Receipt(id, True)

    def _sharing(self, task: Task) -> list[Task]:
        if task.key is None:
            return []
        return [one for one in self.rows() if (one.service, one.key) == (task.service, task.key)]

    def _holds(self, id: int, fence: int) -> bool:
        task = self.tasks.get(id)
        return task is not None and task.state is State.TAKEN and task.fence == fence

    def _change(self, id: int, **changes: object) -> Task:
        self.tasks[id] = msgspec.structs.replace(self.tasks[id], **changes)
        return self.tasks[id]
