"""A lane: one connection, on which calls that wait together share a transaction and a round trip.

Every transaction that writes leaves a mark, and its answers are in hand before the commit is asked for, or stand in
the mark. If the connection is lost meanwhile, the server is asked whether the mark is there: so a commit whose answer
was lost is neither done twice nor given up.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import psycopg
from psycopg import errors

from raptor.errors import NotWritten, RaptorError
from raptor.state.postgres.address import Address
from raptor.state.postgres.link import CALL_S, connect, end_stuck
from raptor.state.postgres.migration import named
from raptor.state.postgres.pipe import Answer, Pipe
from raptor.state.postgres.session import Session
from raptor.state.postgres.transaction import Finish, Merge, Transaction, notes
from raptor.state.postgres.trouble import PASSING, is_lost, not_written
from raptor.state.postgres.wire import TEXT, Column

T = TypeVar("T")

TRIES = 5  # of what lost a race
SETTLE_S = 30.0  # for the server to say what became of a transaction
PAUSE_S = 0.25
READER = "reader"  # the role of a lane that writes nothing
# An INSERT, because that waits for a transaction that has not ended yet, be it the first that leaves the mark. One that
# has not come so far is shut out: behind a pooler it may wait for a lock of the table, and its commit is asked for.
FATE = (
    "INSERT INTO raptor.mark AS m (lane, mark, seen) VALUES (%s, %s, now()) ON CONFLICT (lane) DO UPDATE SET"
    " seen = excluded.seen, mark = CASE WHEN m.mark = excluded.mark - 1 THEN m.mark ELSE excluded.mark END"
    " RETURNING m.mark, m.told"
)


class Call(Generic[T]):
    """One call of the store's: `work` sends what it asks, and its answer is waited for after all have sent theirs.

    Calls that have something to `merge` are one statement and one round trip, by the work of the first.
    """

    def __init__(
        self,
        work: Callable[[Transaction], Awaitable[Finish[T]]] | None = None,
        *,
        merge: Merge | None = None,
        given: Any = None,
        about: object = None,
        alone: bool = False,
        lost: Callable[[T], None] | None = None,
        until: asyncio.Future[bool] | None = None,
        joins: bool = False,
    ) -> None:
        self.work = work
        self.merge = merge
        self.given = given
        self.about = about  # what it was asked with: a second try of the same is known by it
        self.alone = alone
        self.joins = joins  # may be asked in a transaction that has begun
        self.until = until  # done when its transaction may end
        self.lost = lost  # told of an answer that nobody waits for any more
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    async def send(self, transaction: Transaction) -> Finish[T]:
        assert self.work is not None
        return await self.work(transaction)

    def answer(self, value: T) -> None:
        if not self.future.done():
            self.future.set_result(value)
        elif self.lost is not None:
            self.lost(value)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Doubt:
    """A transaction that may have been committed; `answers` are made of what its mark tells."""

    def __init__(self, mark: int, calls: list[Call[Any]], answers: Callable[[Sequence[int]], Sequence[Any]]) -> None:
        self.mark = mark
        self.calls = calls
        self.answers = answers
        self.since = asyncio.get_running_loop().time()


class Sent(NamedTuple):
    """A put whose commit is asked for, and its answer is not here."""

    pipe: Pipe
    doubt: Doubt
    told: Answer


class Lane:
    def __init__(self, address: Address, role: str, session: Session, opened: Callable[[int], None]) -> None:
        self._address = address
        self._role = role
        self._session = session
        self._opened = opened  # told of the server process that works here
        self._name = secrets.token_hex(16)
        self._mark = 0
        self._pipe: Pipe | None = None
        self._waiting: list[Call[Any]] = []
        self._current: list[Call[Any]] = []
        self._ahead: Sent | None = None  # when it was asked for: whatever else is to be done, is done meanwhile
        self._doubts: list[Doubt] = []
        self._asked: asyncio.Future[None] | None = None  # more, while a transaction is open
        self._runner: asyncio.Task[None] | None = None
        self.commits = 0

    def ask(self, call: Call[T]) -> asyncio.Future[T]:
        for doubt in self._doubts if call.about is not None else ():
            for place, earlier in enumerate(doubt.calls):
                if earlier.about is call.about:  # the same again: its answer may be there already
                    doubt.calls = [*doubt.calls[:place], call, *doubt.calls[place + 1 :]]
                    self._wake()
                    return call.future
        if call.merge is not None and len(self._current) == 1 and self._is_at_rest():
            self._send_ahead(call, call.merge)
        else:
            self._waiting.append(call)
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        self._wake()
        return call.future

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None and not runner.done() and runner.get_loop() is asyncio.get_running_loop():
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)
        self._drop()  # it may not have begun
        await self._hang_up()

    def _wake(self) -> None:
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._has_work():
                await self._session.ready()
                ahead, self._ahead = self._ahead, None
                calls = self._current = self._next() if ahead is None else ahead.doubt.calls
                try:
                    await self._do(calls, ahead)
                except Exception as error:
                    doubtful = [call for doubt in self._doubts for call in doubt.calls]  # nobody knows yet
                    self._fail([call for call in calls if call not in doubtful], error)
                    await self._wait_for_doubts()
        except BaseException:
            self._drop()
            await self._hang_up()
            raise

    def _drop(self) -> None:
        """Nobody does it any more."""
        ahead, self._ahead = self._ahead, None
        for call in (*self._current, *self._waiting, *(() if ahead is None else ahead.doubt.calls)):
            call.future.cancel()
        self._waiting.clear()

    def _has_work(self) -> bool:
        if self._waiting or self._ahead is not None:
            return True
        return any(not call.future.done() for doubt in self._doubts for call in doubt.calls)

    def _is_at_rest(self) -> bool:
        idle = self._runner is None or self._runner.done()
        is_open = self._pipe is not None and not self._pipe.connection.closed
        return idle and is_open and self._session.is_ready and not self._waiting and not self._doubts

    def _send_ahead(self, call: Call[Any], merge: Merge) -> None:
        """At once, if its caller is the only one: of several the first would keep the others waiting."""
        pipe, doubt = self._pipe, self._doubt([call])
        assert pipe is not None
        try:
            self._ahead = Sent(pipe, doubt, self._post(pipe, doubt, merge))
        except Exception:  # it is tried again, or asked for: whoever does that tells of it
            pipe.give_up()
            if pipe.in_doubt:
                self._doubts.append(doubt)
            else:
                self._waiting.append(call)

    def _doubt(self, calls: list[Call[Any]]) -> Doubt:
        self._mark += 2  # those between say that one did not come, and does not come any more
        return Doubt(self._mark, calls, list)

    def _next(self) -> list[Call[Any]]:
        if not self._waiting:
            return []
        first = self._waiting[0]
        if first.alone:
            return [self._waiting.pop(0)]
        calls = [call for call in self._waiting if call.merge is first.merge and not call.alone]
        self._waiting = [call for call in self._waiting if call.merge is not first.merge or call.alone]
        return calls

    async def _wait_for_doubts(self) -> None:
        """The server does not answer: it is asked again for a while, and then whoever waits is told."""
        now = asyncio.get_running_loop().time()
        for doubt in self._doubts:
            if now - doubt.since > SETTLE_S:
                for call in doubt.calls:
                    call.fail(_unknown(self._address))
        if self._doubts:
            await asyncio.sleep(PAUSE_S)

    def _fail(self, calls: Iterable[Call[Any]], error: Exception) -> None:
        told = not_written(self._address, error)
        if told is not error:
            told.__cause__ = error
        for call in calls:
            call.fail(told)

    async def _do(self, calls: list[Call[Any]], ahead: Sent | None = None) -> None:
        """Until they are done, or it is known why not; and whatever joins them."""
        for tried in range(TRIES):
            fresh = self._pipe is None or self._pipe.connection.closed
            try:
                if ahead is not None:
                    sent, ahead = ahead, None
                    await self._transact(sent.pipe, sent.doubt, sent.told)
                    return
                calls[:] = [call for call in calls if not call.future.done()]
                pipe = await self._connected()
                await self._clear_doubts()
                if calls:
                    await self._transact(pipe, self._doubt(calls))
                return
            except PASSING as error:
                if tried == TRIES - 1:
                    raise
                if isinstance(error, errors.InvalidSqlStatementName | errors.DuplicatePreparedStatement):
                    await self._hang_up()
            except _InDoubt:  # they wait in their doubt now
                await self._hang_up()
                calls = []
            except Exception as error:
                if is_lost(error):
                    await self._hang_up()
                    if isinstance(error, errors.LockNotAvailable):
                        await end_stuck(self._address)  # whoever asked tries again
                    if fresh:
                        raise
                elif len(calls) > 1:
                    await self._one_by_one(calls)
                    return
                else:
                    raise

    async def _one_by_one(self, calls: list[Call[Any]]) -> None:
        """One of them was refused: the others need not suffer."""
        for call in calls:
            some = [call]
            try:
                await self._do(some)
            except Exception as error:
                self._fail(some, error)

    async def _transact(self, pipe: Pipe, doubt: Doubt, told: Answer | None = None) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                merge = doubt.calls[0].merge
                if merge is None:
                    writes, answers = await self._ask(pipe, doubt)
                else:
                    told = told or self._post(pipe, doubt, merge)
                    writes, answers = True, await self._placed(pipe, doubt, told)
        except Exception as error:
            if pipe.in_doubt and self._role != READER:
                self._doubts.append(doubt)
                raise _InDoubt(str(error)) from error
            # A refusal of ours comes before anything was written: see Call.alone.
            if isinstance(error, psycopg.Error | RaptorError) and not is_lost(error):
                await self._clear(pipe)
            elif not isinstance(error, psycopg.Error):
                pipe.give_up()  # what was sent must not be committed
            raise
        except BaseException:
            pipe.give_up()
            raise
        self.commits += writes
        for call, answer in zip(doubt.calls, answers, strict=True):
            call.answer(answer)

    async def _ask(self, pipe: Pipe, doubt: Doubt) -> tuple[bool, Sequence[Any]]:
        """All that is told is here first, and then comes the commit; it is read meanwhile."""
        is_heard = not self._session.is_alone
        transaction = Transaction(pipe, self._address.schema, self._name, doubt.mark, is_heard=is_heard)
        readings = await self._answers(pipe, transaction, doubt.calls)
        writes = self._role != READER and await transaction.writes()
        answers: list[Any] = []

        def known(told: Sequence[int]) -> Sequence[Any]:
            answers.extend(read() for read in readings[len(answers) :])
            return answers

        doubt.answers = known
        pipe.ask_to_commit()
        known(())
        await pipe.commit()
        return writes, answers

    def _post(self, pipe: Pipe, doubt: Doubt, merge: Merge) -> Answer:
        """A put, all at once: the answers are in the mark."""
        statement, values, news, doubt.answers = merge([call.given for call in doubt.calls])
        pipe.look()
        given = {**values, "lane": self._name, "mark": doubt.mark}
        tells = not self._session.is_alone
        if tells:
            given["notes"] = Column(TEXT, notes(news))
        told = pipe.send(named(statement(tells), self._address.schema), given)
        pipe.ask_to_commit()
        return told

    async def _placed(self, pipe: Pipe, doubt: Doubt, told: Answer) -> Sequence[Any]:
        await pipe.commit()
        ((numbers, *_),) = await told.fetchall()
        return doubt.answers(numbers)

    async def _clear(self, pipe: Pipe) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                await pipe.clear()
        except Exception:
            pipe.give_up()

    async def _answers(self, pipe: Pipe, transaction: Transaction, calls: list[Call[Any]]) -> list[Callable[[], Any]]:
        finishing = [await call.send(transaction) for call in calls]
        while joined := await self._joined(pipe, calls):
            finishing += [await call.send(transaction) for call in joined]
        if self._role != READER:
            await transaction.seal()
        readings: list[Callable[[], Any]] = []
        for left, finish in zip(range(len(finishing) - 1, -1, -1), finishing, strict=True):
            reading = await finish()
            # The last is read while the server commits, the others while it works on those after them.
            readings.append(reading if not left else _read(reading))
        return readings

    async def _joined(self, pipe: Pipe, calls: list[Call[Any]]) -> list[Call[Any]]:
        """What is asked before the transaction may end has its commit, too."""
        until: set[asyncio.Future[Any]] = {call.until for call in calls if call.until is not None}
        if until:
            pipe.begin()
        while until:
            joined = [call for call in self._waiting if call.joins]
            if joined:
                self._waiting = [call for call in self._waiting if not call.joins]
                calls += joined
                return joined
            if all(sure.done() for sure in until):
                break
            self._asked = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._asked, *until}, return_when=asyncio.FIRST_COMPLETED)
        return []

    async def _clear_doubts(self) -> None:
        while self._doubts:
            doubt = self._doubts[0]
            mark, told = await self._last_mark(doubt.mark)
            self._doubts.pop(0)
            if mark == doubt.mark:
                self.commits += 1
                for call, answer in zip(doubt.calls, doubt.answers(told), strict=True):
                    call.answer(answer)
            else:
                left = [call for call in doubt.calls if not call.future.done()]
                if left:
                    self._waiting[:0] = left

    async def _last_mark(self, mark: int) -> tuple[int, Sequence[int]]:
        """Of the last transaction that was committed, and what it told. That of this mark is not committed any more."""
        async with asyncio.timeout(SETTLE_S):
            connection = await connect(self._address, role="doubt")
            try:
                while True:
                    try:
                        fate = named(FATE, self._address.schema).encode()
                        answer = await connection.execute(fate, (self._name, mark + 1))
                        row = await answer.fetchone()
                    except errors.LockNotAvailable:  # it has not ended yet
                        await end_stuck(self._address)
                        continue
                    assert row is not None
                    return row[0], row[1] or ()
            finally:
                await connection.close()

    async def _connected(self) -> Pipe:
        if self._pipe is None or self._pipe.connection.closed:
            await self._hang_up()
            connection = await connect(self._address, role=self._role)
            self._pipe = Pipe(connection, prepares=not self._address.pooler)
            self._opened(connection.info.backend_pid)
        return self._pipe

    async def _hang_up(self) -> None:
        if self._pipe is not None:
            pipe, self._pipe = self._pipe, None
            pipe.give_up()
            await pipe.connection.close()


def _read(reading: Callable[[], T]) -> Callable[[], T]:
    answer = reading()
    return lambda: answer


class _InDoubt(psycopg.OperationalError):
    """The connection was lost while a commit was under way."""


def _unknown(address: Address) -> NotWritten:
    return NotWritten("unknown", address.shown, "the connection was lost during a commit; look before you try again")
