"""The session: one connection that listens, holds the locks of the owners that live here, and carries their heartbeat.

While there is work the queues are looked at once a second, so that notifications are a matter of speed alone; after a
quiet minute only notifications wake anybody, on a connection that is proven alive. Behind a transaction pooler there
is no session: then looking is all there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Any

import psycopg
from psycopg import Notify

from raptor.clock import Clock
from raptor.state.bells import Bells
from raptor.state.news import News
from raptor.state.postgres import link
from raptor.state.postgres.address import Address
from raptor.state.postgres.link import CALL_S, Connection, connect
from raptor.state.postgres.migration import named
from raptor.state.postgres.wire import seconds

POLL_S = 1.0
EMPTY = 60  # polls that find nothing, before deep sleep
PROOF_S = 10.0  # between two proofs that the connection is alive
FIRST_S, LONGEST_S = 0.1, 5.0  # between two tries to connect
SEEN_S = 60.0  # whoever was seen since may listen
STILL_S, GONE_S = 10.0, 120.0  # whoever was not seen for so long, and no longer, may stand still in a transaction
LOCK_OWNER = "SELECT pg_try_advisory_lock(raptor.lock_of('owner', %s))"
UNLOCK_OWNER = "SELECT pg_advisory_unlock(raptor.lock_of('owner', %s))"
ANNOUNCE = "SELECT pg_notify('raptor.news', 'n')"


class Session:
    def __init__(
        self,
        address: Address,
        clock: Clock,
        bells: Bells,
        news: News,
        own: set[int],
        earliest: Callable[[], Awaitable[Mapping[str, float]]],
    ) -> None:
        self._address = address
        self._clock = clock
        self._bells = bells
        self._news = news
        self._own = own  # server processes that work for this store: what they tell is known here
        self.earliest = earliest
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._using = asyncio.Lock()
        self._connecting = asyncio.Lock()
        self._first: asyncio.Event | None = None  # of the first try to listen
        self._lost = asyncio.Event()
        self._owners: set[str] = set()
        self._locked: set[str] = set()
        self._proven = 0.0
        self._reading: int | None = None
        self._empty = 0
        self._announced = -inf
        self._came = 0  # how often others announced themselves
        self.heard = 0
        self.is_alone = False  # nobody else is there to hear of tasks

    def start(self) -> None:
        """Somebody listens, watches or shows itself."""
        if self._keeper is None or self._keeper.done():
            self._first = asyncio.Event()
            self._lost, self._using, self._connecting = asyncio.Event(), asyncio.Lock(), asyncio.Lock()
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    @property
    def is_ready(self) -> bool:
        return self._first is None or self._first.is_set() or not self._is_alive()

    async def ready(self) -> None:
        """Whatever is asked after somebody listened, is asked when that is heard: nothing falls in between."""
        if self._first is not None and not self.is_ready:
            await self._first.wait()

    async def own(self, owner: str) -> bool:
        """Hold the lock that says that this owner lives; -> whether it is held."""
        self._owners.add(owner)
        connection = await self._connected()
        if owner not in self._locked and not self._address.pooler:
            await self._lock(connection, [owner])
        return owner in self._locked

    async def appear(self, owner: str, statement: str, values: Any, now: float) -> list[tuple[Any, ...]]:
        """Show an owner; -> rows of all that are there: who, and when it was seen.

        One that stands still in the midst of a transaction keeps its rows from the others, who pass over them.
        Whoever believes that nobody else is there tells nobody of its tasks. So one that comes, or was not to be seen
        for long, announces itself; what is put until that is heard is found by looking.
        """
        connection, began, came = await self._connected(), self._clock.monotonic(), self._came
        rows = await self._execute(connection, statement, values)
        if began - self._announced > SEEN_S / 2:
            await self._execute(connection, ANNOUNCE, ())
        self._announced = began
        if any(STILL_S < now - seconds(seen) <= GONE_S for who, seen, *_ in rows if who != owner):
            await self._execute(connection, link.STUCK, (link.STUCK_S,))
        is_there = any(who != owner and now - seconds(seen) <= SEEN_S for who, seen, *_ in rows)
        self.is_alone = not is_there and came == self._came
        return rows

    async def disown(self, owner: str) -> None:
        self._owners.discard(owner)
        if owner in self._locked and self._connection is not None:
            self._locked.discard(owner)
            await self._execute(self._connection, UNLOCK_OWNER, (owner,))

    async def close(self) -> None:
        if self._keeper is not None and not self._keeper.done() and self._is_alive():
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._keeper = None
        await self._hang_up()

    def _is_alive(self) -> bool:
        keeper = self._keeper
        return keeper is not None and not keeper.done() and keeper.get_loop() is asyncio.get_running_loop()

    async def _keep(self) -> None:
        """Connect, and again whenever the connection is lost, for ever."""
        delay_s, lost = FIRST_S, False
        try:
            while True:
                try:
                    await self._connect()
                    self._begun()
                    delay_s = FIRST_S
                    await self._attend_to_all(lost)
                except Exception:  # whatever it was: nobody waits for this task
                    lost = True
                self._begun()
                await self._hang_up()
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LONGEST_S)
        finally:
            self._begun()
            await self._hang_up()

    async def _connected(self) -> Connection:
        self.start()
        await self.ready()
        return await self._connect()

    async def _connect(self) -> Connection:
        async with self._connecting:
            if self._connection is None:
                self._connection = await self._listen()
            return self._connection

    def _begun(self) -> None:
        if self._first is not None:
            self._first.set()

    async def _attend_to_all(self, lost: bool) -> None:
        """As long as the connection lasts. After a loss anything may have happened meanwhile."""
        if lost:
            self._news.tell([("", "")])
            await self._look(all_of_them=True)
        while True:
            polling = self.is_polling()
            try:
                async with asyncio.timeout(POLL_S if polling else PROOF_S):
                    await self._lost.wait()
                    raise ConnectionError("the session is gone")
            except TimeoutError:
                pass
            if polling:
                await self._look()
            if self._clock.monotonic() - self._proven >= PROOF_S and self._connection is not None:
                await self._execute(self._connection, "SELECT 1", ())

    def is_polling(self) -> bool:
        """Whether the queues are looked at, also without a notification."""
        awake = self._empty < EMPTY or not self._address.deep_sleep or self._address.pooler is True
        return self._bells.heard and awake

    async def _look(self, *, all_of_them: bool = False) -> None:
        found = await self.earliest()
        now = self._clock.now()
        due = {queue: when for queue, when in found.items() if all_of_them or when <= now + POLL_S}
        self._empty = 0 if due else self._empty + 1
        self._bells.ring(due.items())

    def stir(self) -> None:
        """There is work."""
        self._empty = 0

    async def _listen(self) -> Connection:
        connection = await connect(self._address, role="session")
        self._own.add(connection.info.backend_pid)
        try:
            self._lost.clear()
            self._locked.clear()
            self._announced, self.is_alone = -inf, False
            if not self._address.pooler:
                connection.add_notify_handler(self._hear)
                channel = f'LISTEN "{self._address.schema}.news"'.encode()
                await connection.execute(channel)
                await self._lock(connection, sorted(self._owners))
                self._attend(connection)
            self._proven = self._clock.monotonic()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _lock(self, connection: Connection, owners: Sequence[str]) -> None:
        for owner in owners:
            ((held,),) = await self._execute(connection, LOCK_OWNER, (owner,))
            if held:  # else an earlier session of ours has it still: at the next beat
                self._locked.add(owner)

    async def _execute(self, connection: Connection, statement: str, values: Any) -> list[tuple[Any, ...]]:
        async with self._using:
            self._look_away()  # psycopg waits there itself
            try:
                async with asyncio.timeout(CALL_S):
                    cursor = await connection.execute(
                        named(statement, self._address.schema).encode(), values, binary=True
                    )
                    rows = await cursor.fetchall()
            except BaseException:
                self._lost.set()
                await connection.close()
                raise
            self._proven = self._clock.monotonic()
            self._attend(connection)
            return rows

    def _attend(self, connection: Connection) -> None:
        """Hear what arrives while nothing is asked."""
        if not self._address.pooler:
            self._reading = connection.fileno()
            asyncio.get_running_loop().add_reader(self._reading, self._arrived, connection)

    def _look_away(self) -> None:
        if self._reading is not None:
            asyncio.get_running_loop().remove_reader(self._reading)
            self._reading = None

    def _arrived(self, connection: Connection) -> None:
        self._look_away()
        try:
            connection.pgconn.consume_input()
            self._attend(connection)  # anew: uvloop tells once of a reset, though there may be more to read
            while (notify := connection.pgconn.notifies()) is not None:
                if notify.be_pid in self._own:
                    continue
                text = notify.extra.decode("utf-8", "replace")
                self._hear(Notify(notify.relname.decode(), text, notify.be_pid))
        except psycopg.Error:
            self._look_away()
            self._lost.set()

    def _hear(self, notify: Notify) -> None:
        if notify.pid in self._own:
            return
        self.heard += 1
        kind, _, rest = notify.payload.partition(" ")
        first, _, second = rest.partition(" ")
        if kind == "t":
            self._empty = 0
            self._bells.ring([(second, float(first))])
        elif kind == "r":
            self._news.tell([(first, second)])
        elif kind == "n":
            self._came += 1
            self.is_alone = False

    async def _hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._locked.clear()
            self._look_away()
            await connection.close()
