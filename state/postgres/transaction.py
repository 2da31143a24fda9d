"""What a call may do in a transaction of its lane: send statements, tell others, and leave its mark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from raptor.state.postgres.migration import named
from raptor.state.postgres.pipe import Answer, Pipe, Values

T = TypeVar("T")

Reading: TypeAlias = Callable[[], T]
"""What makes an answer of rows that are here. It has until the commit is done, which is asked for meanwhile."""

Finish: TypeAlias = Callable[[], Awaitable[Reading[T]]]
"""What is left to do for an answer when everything was sent."""

NOTES, NOTE = 1000, 1900  # of a transaction, and characters of each: PostgreSQL takes 8000 bytes
SEAL = (
    "WITH w AS MATERIALIZED (SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS wrote), m AS (INSERT INTO"
    " raptor.mark (lane, mark, seen) SELECT %s::text, %s::bigint, now() FROM w WHERE w.wrote ON CONFLICT (lane)"
    " DO UPDATE SET mark = excluded.mark, seen = excluded.seen) SELECT (SELECT wrote FROM w),"
    " (SELECT count(pg_notify('raptor.news', word)) FROM unnest(%s::text[]) AS word)"
)


class Merged(NamedTuple):
    """What several calls were given as one statement, which leaves the mark itself and the numbers that it gives."""

    statement: Callable[[bool], str]  # with the notes that others are told, or without
    values: Mapping[str, Any]  # but for those, the lane, and its mark
    news: Mapping[str, float]
    answers: Callable[[Sequence[int]], Sequence[Any]]  # of each call, by those numbers


Merge: TypeAlias = Callable[[Sequence[Any]], Merged]


def notes(news: Mapping[str, float]) -> list[str]:
    """How all nodes are told that tasks will be ready: the earliest due time of each queue."""
    return [f"t {due!r} {queue}" for queue, due in news.items()]


class Transaction:
    """What a call may do with the connection."""

    def __init__(self, pipe: Pipe, schema: str, lane: str, mark: int, *, is_heard: bool) -> None:
        self._pipe = pipe
        self._schema = schema
        self._is_heard = is_heard
        self.lane = lane
        self._mark = mark
        self._sealed: Answer | None = None
        self.notes: list[str] = []  # told to all nodes with the commit

    def tell(self, news: Mapping[str, float]) -> None:
        """Tasks will be ready: the earliest due time of each queue."""
        self.notes += notes(news) if self._is_heard else ()

    def tell_changes(self, changes: Sequence[tuple[str, str]]) -> None:
        """Records were changed; if there is too much to say, that anything may have."""
        told = [f"r {table} {key}" for table, key in changes]
        fits = len(told) <= NOTES and all(len(note) <= NOTE for note in told)
        self.notes += told if fits else ["r  "]

    async def send(self, statement: str, values: Values = ()) -> Answer:
        """Without waiting for its answer."""
        self._sealed = None
        return self._pipe.send(named(statement, self._schema), values)

    async def seal(self) -> None:
        """Say that this was all, until more is sent: it goes out with the rest."""
        told, self.notes = self.notes, []
        self._sealed = self._pipe.send(named(SEAL, self._schema), (self.lane, self._mark, told))

    async def writes(self) -> bool:
        """Whether it leaves its mark."""
        if self._sealed is None or self.notes:
            await self.seal()
        assert self._sealed is not None
        ((wrote, _),) = await self._sealed.fetchall()
        return bool(wrote)

    async def rows(self, statement: str, values: Values = ()) -> list[tuple[Any, ...]]:
        return await (await self.send(statement, values)).fetchall()
