"""The fast way over a connection: libpq's pipeline mode without cursors, for statements that are sent again and again.

What is sent up to a sync is one transaction, without a word for its begin and its end. psycopg makes the connection,
turns values into bytes and rows into tuples.
"""

from __future__ import annotations

import asyncio
import re
import select
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult

from raptor.state.postgres.link import Connection

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]

_PLACE = re.compile(r"%(?:\((\w+)\))?s")
_GIVEN = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


@lru_cache(maxsize=1000)
def numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """With $1, $2 in place of %s or %(name)s; -> and the names in that order."""
    names: list[str] = []
    count = 0

    def place(match: re.Match[str]) -> str:
        nonlocal count
        name = match[1]
        if name is None:
            count += 1
            return f"${count}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PLACE.sub(place, statement).encode(), tuple(names)


class Answer:
    """Of a statement that was sent."""

    def __init__(self, pipe: Pipe, name: bytes = b"") -> None:
        self._pipe = pipe
        self.name = name  # of what it prepares
        self.is_here = False
        self._result: PGresult | None = None  # as it came
        self._rows: list[tuple[Any, ...]] = []

    async def count(self) -> int:
        """How many rows there are. To read them may wait until there is nothing else to do."""
        while not self.is_here:
            await self._pipe.receive()
        return len(self._rows) if self._result is None else self._result.ntuples

    async def fetchall(self) -> list[tuple[Any, ...]]:
        await self.count()
        return self.rows

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Of one that is here."""
        result, self._result = self._result, None
        if result is not None:
            self._rows = self._pipe.read(result)
        return self._rows

    def arrive(self, result: PGresult | None) -> None:
        self.is_here = True
        if result is not None and result.status == ExecStatus.TUPLES_OK:
            self._result = result


class Pipe:
    """A connection in pipeline mode. One transaction at a time."""

    def __init__(self, connection: Connection, *, prepares: bool) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepares = prepares
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._count = 0
        self._expected: deque[Answer] = deque()
        self._asked = True  # for what the server has not sent yet
        self.in_doubt = False  # a commit was asked for, and its answer is not here
        self._socket = connection.fileno()
        self._end = select.poll()  # of what it brings, be it a reset or not; nothing else is asked
        self._end.register(self._socket, 0)
        self._arrived: asyncio.Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # that watches the socket
        self._pgconn.enter_pipeline_mode()

    def send(self, statement: str, values: Values = ()) -> Answer:
        """Without waiting for its answer."""
        text, names = numbered(statement)
        given = [values[name] for name in names] if isinstance(values, Mapping) else values
        transformer = self._transformer
        dumped = transformer.dump_sequence(given, [PyFormat.AUTO] * len(given))
        types, formats = transformer.types or (), transformer.formats or ()
        if self._prepares:
            name = self._prepared.get((text, types)) or self._prepare(text, types)
            self._pgconn.send_query_prepared(name, dumped, formats, Format.BINARY)
        else:
            self._pgconn.send_query_params(text, dumped, types, formats, Format.BINARY)
        answer = Answer(self)
        self._expected.append(answer)
        self._asked = False  # it goes out with the rest, when an answer is waited for
        return answer

    async def receive(self) -> None:
        """Wait for the answer of the earliest that has none."""
        if not self._asked:
            self._pgconn.send_flush_request()
            self._asked = True
            await self._push()
        result = await self._result()
        if result is not None and result.status not in _GIVEN:
            raise error_from_result(result, self.connection.info.encoding)
        self._give(result)
        while await self._result() is not None:  # the end of it
            pass

    def ask_to_commit(self) -> None:
        """Have all that was sent committed, or nothing if one of it failed."""
        self._pgconn.pipeline_sync()
        self.in_doubt = True
        self._pgconn.flush()

    async def commit(self) -> None:
        """Wait until it is; it is asked for here, if that was not done. All answers are there then."""
        if not self.in_doubt:
            self.ask_to_commit()
        await self._push()
        failed: PGresult | None = None
        while True:
            result = await self._result()
            if result is None:
                continue
            if result.status == ExecStatus.PIPELINE_SYNC:
                break
            if result.status in _GIVEN:
                self._give(result)
            elif result.status != ExecStatus.PIPELINE_ABORTED:
                failed = failed or result
        self.in_doubt = False
        self._expected.clear()
        self._asked = True
        if failed is not None:
            raise error_from_result(failed, self.connection.info.encoding)

    async def clear(self) -> None:
        """After an error: come back to where a new transaction can begin."""
        prepared = {answer.name for answer in self._expected if answer.name}
        self._prepared = {key: name for key, name in self._prepared.items() if name not in prepared}
        try:
            await self.commit()
        except psycopg.DatabaseError:
            if self.connection.closed:
                raise

    def begin(self) -> None:
        """Have the server work on what was sent, and answer it, while there is more to come."""
        if not self._asked:
            self._pgconn.send_flush_request()
            self._asked = True
        self._pgconn.flush()

    def read(self, result: PGresult) -> list[tuple[Any, ...]]:
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    def look(self) -> None:
        """Raise psycopg's OperationalError if the server has gone since the last answer: nothing was sent then."""
        self._pgconn.consume_input()

    def give_up(self) -> None:
        """End the connection, and with it what was not committed."""
        self._look_away()
        self._pgconn.finish()

    def _prepare(self, text: bytes, types: tuple[int, ...]) -> bytes:
        self._count += 1
        name = b"r%d" % self._count
        self._pgconn.send_prepare(name, text, types)
        self._expected.append(Answer(self, name))
        self._prepared[text, types] = name
        return name

    def _give(self, result: PGresult | None) -> None:
        """It is the answer of the earliest that has none."""
        self._expected.popleft().arrive(result)

    async def _result(self) -> PGresult | None:
        while self._pgconn.is_busy():
            await self._readable()
            self._pgconn.consume_input()
        result = self._pgconn.get_result()
        if result is None and self._pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        return result

    async def _push(self) -> None:
        while self._pgconn.flush():  # more than the socket takes: the server may have to be heard first
            loop = asyncio.get_running_loop()
            loop.add_writer(self._socket, self._wake)
            try:
                await self._readable()
            finally:
                loop.remove_writer(self._socket)
            self._pgconn.consume_input()

    async def _readable(self) -> None:
        if self._end.poll(0):  # uvloop tells once of a reset, though what came before it may not be read yet
            self._look_away()
        self._attend()
        self._arrived = asyncio.get_running_loop().create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def _attend(self) -> None:
        """Watch the socket, from the first wait on: to begin and end with each would be two calls of the system."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.add_reader(self._socket, self._wake)

    def _look_away(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = None

    def _wake(self) -> None:
        if self._arrived is None:
            self._look_away()  # the server has gone, or speaks unasked: that is read with the next answer
        elif not self._arrived.done():
            self._arrived.set_result(None)
