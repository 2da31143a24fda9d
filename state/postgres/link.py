"""One connection to the server: opened with bounds on every wait, and with settings that keep plans as they are."""

from __future__ import annotations

from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.numeric import Int8BinaryLoader

from raptor.state.postgres.address import Address
from raptor.state.postgres.wire import Column, ColumnDumper, Time, TimeDumper

Connection: TypeAlias = AsyncConnection[tuple[Any, ...]]

CALL_S = 20.0
"""How long a call may take before its connection is given up."""

STUCK_S = CALL_S
"""How long a transaction may wait for its client: by then a node that lives has given it up itself."""

# Between its statements and the end of its transaction a node may be stopped. No timeout of the server ends that before
# version 17: it counts as active, and as long as the machine answers its connection lives.
STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    " AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead' AND pid <> pg_backend_pid()"
    " AND (application_name LIKE 'raptor %%' OR application_name = current_setting('application_name'))"
    " AND xact_start < clock_timestamp() - make_interval(secs => %s)"
)

BOUNDS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # ms
    "application_name": "raptor",
}

# Plans must not depend on when a table was last looked at: it is empty one minute and has a million rows the next.
# Every statement here finds its rows by an index; a join that reads a whole table is never what is meant.
SETTINGS = (
    f"SET statement_timeout = {round(CALL_S * 1000)}; SET lock_timeout = 5000;"
    " SET idle_in_transaction_session_timeout = 60000; SET default_transaction_isolation = 'read committed';"
    " SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;"
    " SET jit = off; SET plan_cache_mode = force_generic_plan; SET timezone = 'UTC';"
    " SET {schema}.quiet = 'on'"
)


async def looked_at(address: Address) -> Address:
    """Where nobody said whether a pooler stands between: the process that answers is not the one that was connected to.

    Whether one gives sessions or transactions cannot be seen; nothing of a session works behind both.
    """
    if address.pooler is not None:
        return address
    connection: Connection = await AsyncConnection.connect(address.url, autocommit=True, **_options(address, "look"))
    try:
        row = await (await connection.execute("SELECT pg_backend_pid()", prepare=False)).fetchone()
        assert row is not None
        return address._replace(pooler=row[0] != connection.info.backend_pid)
    finally:
        await connection.close()


async def connect(address: Address, *, role: str) -> Connection:
    """A connection for work, each statement prepared at once; behind a transaction pooler none."""
    connection: Connection = await AsyncConnection.connect(
        address.url, autocommit=True, prepare_threshold=None if address.pooler else 0, **_options(address, role)
    )
    connection.prepared_max = 500
    connection.adapters.register_loader("timestamptz", Int8BinaryLoader)
    connection.adapters.register_dumper(Time, TimeDumper)
    connection.adapters.register_dumper(Column, ColumnDumper)
    if not address.pooler:
        try:
            await connection.execute(SETTINGS.replace("{schema}", address.schema).encode(), prepare=False)
        except BaseException:
            await connection.close()
            raise
    return connection


def _options(address: Address, role: str) -> dict[str, Any]:
    """Bounds, but for those that the address has itself."""
    given = conninfo_to_dict(address.url)
    options = {name: value for name, value in BOUNDS.items() if name not in given}
    return options if "application_name" in given else {**options, "application_name": f"raptor {role}"}


async def end_stuck(address: Address) -> None:
    """Free the locks of nodes that stand still in the middle of a transaction; nothing of it is committed."""
    connection = await connect(address, role="locks")
    try:
        await connection.execute(STUCK, (STUCK_S,), prepare=False)
    finally:
        await connection.close()
