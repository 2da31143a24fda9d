"""What a server promises of a commit, and how far its clock is from ours."""

from __future__ import annotations

from typing import NamedTuple

from raptor.clock import Clock
from raptor.errors import RefusedState
from raptor.state.postgres.address import Address
from raptor.state.postgres.link import Connection
from raptor.state.postgres.wire import seconds

PROMISES = (
    "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),"
    " pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_setting('server_version_num')::int"
)
OLDEST = 130000
NOISE_S = 0.005


class Durability(NamedTuple):
    """What the server promises of a commit."""

    synchronous_commit: str
    fsync: bool
    full_page_writes: bool
    version: int
    session: bool  # LISTEN and session locks work

    @property
    def is_full(self) -> bool:
        """Whether what is acknowledged outlives a power cut."""
        return self.fsync and self.full_page_writes and self.synchronous_commit not in ("off",)

    @property
    def line(self) -> str:
        """For people."""
        told = [f"synchronous_commit={self.synchronous_commit}"]
        told += [] if self.fsync else ["fsync=off: a crash of the machine damages it"]
        told += [] if self.full_page_writes else ["full_page_writes=off: a torn page damages it"]
        told += ["a crash of the server loses the last commits"] if self.synchronous_commit == "off" else []
        told += [] if self.session else ["behind a transaction pooler: polls instead of LISTEN, leases alone, no locks"]
        return f"PostgreSQL {self.version // 10000}: {'; '.join(told)}"


async def promises(connection: Connection, address: Address) -> Durability:
    row = await (await connection.execute(PROMISES)).fetchone()
    assert row is not None
    commit, fsync, pages, replica, read_only, version = row
    if version < OLDEST:
        raise RefusedState("old", address.shown, f"is PostgreSQL {version // 10000}", "Raptor needs 13 or newer")
    if replica:
        advice = "name the primary, or add ?target_session_attrs=read-write and all hosts to the address"
        raise RefusedState("readonly", address.shown, "is a read-only replica", advice)
    if read_only == "on":
        advice = "ALTER ROLE name SET default_transaction_read_only = off, or use another role"
        raise RefusedState("readonly", address.shown, "gives only read-only transactions", advice)
    return Durability(commit, fsync == "on", pages == "on", version, not address.pooler)


def is_skewed(skew_s: float) -> bool:
    """Whether it is worth following: less is the noise of asking."""
    return abs(skew_s) > NOISE_S


async def skew(connection: Connection, clock: Clock) -> float:
    """How far the machine's clock is ahead of the server's, to half a round trip; 0 for noise."""
    best: tuple[float, float] | None = None
    for _ in range(3):
        before = clock.monotonic()
        here = clock.now()
        row = await (await connection.execute("SELECT clock_timestamp()", binary=True)).fetchone()
        assert row is not None
        took_s = clock.monotonic() - before
        if best is None or took_s < best[0]:
            best = (took_s, here - clock.offset_s + took_s / 2 - seconds(row[0]))
    assert best is not None
    return best[1] if is_skewed(best[1]) else 0.0
