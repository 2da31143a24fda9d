"""Random verbs of several owners, on a clock that also goes back: the same answers and rows as the model's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from raptor.state.base import Hold, Query, Store, Want
from raptor.task import ENDED, Move, State, Task
from raptor.testing.conformance.model import Model
from raptor.testing.conformance.sample import NOW, move, replaced

T = TypeVar("T")

QUEUES = ["q", "r"]
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)  # a busy machine, or a distant store

picks = st.lists(st.integers(0, 40), min_size=1, max_size=4)
spans = st.integers(-3, 6).map(float)
asked = st.builds(
    Task,
    queue=st.sampled_from(QUEUES),
    service=st.sampled_from(["s", "t"]),
    data=st.sampled_from(["1", "2", b"\x00\xff"]),
    priority=st.sampled_from([0, 5, 9]),
    due=spans,  # from now
    max_attempts=st.sampled_from([None, 3]),
    key=st.sampled_from([None, None, "k", "l"]),
    key_until=st.none() | spans,  # from now
    parent=st.none() | st.integers(1, 5),
)
wants = st.builds(
    Want,
    queue=st.sampled_from(QUEUES),
    room=st.integers(-1, 4),
    suspects=st.booleans(),
    concurrency=st.none() | st.integers(0, 3),
    lease_s=st.just(3.0),
)
moves = st.fixed_dictionaries(
    {
        "state": st.sampled_from([State.READY, *ENDED]),
        "late": spans,
        "attempts": st.integers(0, 3),
        "suspect": st.booleans(),
        "keep": st.booleans(),
        "successor": st.none() | asked,
        "fence": st.sampled_from([0, 0, 0, 1]),  # too high by so much
    }
)
queries = st.fixed_dictionaries(
    {},
    optional={
        "states": st.lists(st.sampled_from(list(State)), max_size=2).map(tuple),
        "queue": st.sampled_from(QUEUES),
        "service": st.sampled_from(["s", "t"]),
        "key": st.sampled_from(["k", "l"]),
        "parent": st.integers(1, 5),
        "owner_not": st.sampled_from(["a", "b"]),
        "after": st.integers(0, 20),
        "newest": st.booleans(),
        "limit": st.integers(0, 5),
    },
)


class Verbs(RuleBasedStateMachine):
    """The test says on which store, one after another on the same: opening many would take most of the time."""

    store: Store
    loop: asyncio.AbstractEventLoop
    last = 0  # the highest id so far

    def __init__(self) -> None:
        super().__init__()
        self.first = type(self).last
        self.model = Model(self.first)
        self.now = NOW
        self.given: list[Task] = []  # whatever was taken, by now stale or not

    def teardown(self) -> None:
        type(self).last = self.model.last
        left = self.wait(self.store.find(Query(limit=10**6)))
        taken = [move(task, State.DONE) for task in left if task.state is State.TAKEN]
        self.wait(self.store.settle(taken, now=self.now))
        ids = [task.id for task in left]
        self.wait(self.store.cancel(ids, now=self.now, reason="x"))
        self.wait(self.store.drop(ids))

    def wait(self, answer: Awaitable[T]) -> T:
        return self.loop.run_until_complete(answer)

    def at(self, task: Task) -> Task:
        until = None if task.key_until is None else self.now + task.key_until
        return replaced(task, due=self.now + task.due, key_until=until)

    def known(self, picks: list[int]) -> list[int]:
        ids = range(max(self.model.last - 38, self.first + 1), self.model.last + 2)
        return list(dict.fromkeys(ids[pick % len(ids)] for pick in picks))

    def held(self, picks: list[int]) -> list[Task]:
        """Tasks that were taken, each at most once, the last first."""
        ever = [self.given[-1 - pick % len(self.given)] for pick in picks] if self.given else []
        return list({task.id: task for task in ever}.values())

    @rule(tasks=st.lists(asked, max_size=4), replace=st.booleans())
    def put(self, tasks: list[Task], replace: bool) -> None:
        tasks = [self.at(task) for task in tasks]
        placed = self.wait(self.store.put(tasks, now=self.now, replace=replace))
        new = iter([id for id, is_new in placed if is_new])
        assert self.model.put(tasks, self.now, replace, new) == placed

    @rule(wants=st.lists(wants, min_size=1, max_size=3), owner=st.sampled_from(["a", "b"]))
    def take(self, wants: list[Want], owner: str) -> None:
        given = self.wait(self.store.take(wants, owner=owner, now=self.now))
        assert given.tasks == self.model.take(wants, owner, self.now)
        assert given.spent == {}
        self.given += given.tasks

    @rule(picks=picks, changes=st.lists(moves, min_size=4, max_size=4))
    def settle(self, picks: list[int], changes: list[dict[str, Any]]) -> None:
        asked = [self._move(task, change) for task, change in zip(self.held(picks), changes, strict=False)]
        stale = self.wait(self.store.settle(asked, now=self.now))
        new = iter([task.id for task in self.wait(self.store.find(Query(after=self.model.last)))])
        assert self.model.settle(asked, self.now, new) == stale
        assert next(new, None) is None

    def _move(self, task: Task, change: dict[str, Any]) -> Move:
        successor = change["successor"] and self.at(change["successor"])
        moved = move(
            task, change["state"], due=self.now + change["late"], attempts=change["attempts"], previous=task.due,
            suspect=change["suspect"], keep=change["keep"], successor=successor,
            ended=None if change["state"] is State.READY else self.now,
        )  # fmt: skip
        return replaced(moved, fence=task.fence + change["fence"])

    @rule(picks=picks)
    def extend(self, picks: list[int]) -> None:
        holds = [Hold(task.id, task.fence) for task in self.held(picks)]
        until = self.now + 3
        assert self.wait(self.store.extend(holds, until=until)) == self.model.extend(holds, until)

    @rule(picks=picks)
    def cancel(self, picks: list[int]) -> None:
        ids = self.known(picks)
        found = self.wait(self.store.cancel(ids, now=self.now, reason="x"))
        assert found == self.model.cancel(ids, self.now, "x")

    @rule(picks=picks)
    def revive(self, picks: list[int]) -> None:
        ids = self.known(picks)
        assert self.wait(self.store.revive(ids, now=self.now)) == self.model.revive(ids, self.now)

    @rule(picks=picks)
    def drop(self, picks: list[int]) -> None:
        ids = self.known(picks)
        assert self.wait(self.store.drop(ids)) == self.model.drop(ids)

    @rule(age=spans, limit=st.integers(0, 3))
    def shed(self, age: float, limit: int) -> None:
        before = self.now - age
        assert self.wait(self.store.shed(before=before, limit=limit)) == self.model.shed(before, limit)

    @rule(span=st.sampled_from([-1.0, 0.5, 1.0, 2.0, 5.0]))
    def pass_time(self, span: float) -> None:
        self.now += span

    @rule(query=queries, lapsed=st.booleans())
    def find(self, query: dict[str, Any], lapsed: bool) -> None:
        asked = Query(**query | {"after": self.first + query.get("after", 0)}, lapsed=self.now if lapsed else None)
        assert self.wait(self.store.find(asked)) == self.model.find(asked)

    @invariant()
    def rows_are_the_same(self) -> None:
        assert self.wait(self.store.find(Query(limit=10**6))) == self.model.rows()

    @invariant()
    def counts_are_the_same(self) -> None:
        assert self.wait(self.store.stat(now=self.now)) == self.model.stat(self.now)
        assert self.wait(self.store.queues()) == self.model.queues()
        upcoming = self.wait(self.store.upcoming(QUEUES, after=self.now, limit=3))
        assert upcoming == self.model.upcoming(QUEUES, self.now, 3)


class TestModel:
    def test_random_verbs_have_the_answers_of_the_model(self, store: Store) -> None:
        class OnThis(Verbs):
            pass

        OnThis.store, OnThis.loop = store, asyncio.new_event_loop()
        few = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=SLOW)
        try:
            run_state_machine_as_test(OnThis, settings=few)
        finally:
            OnThis.loop.close()
