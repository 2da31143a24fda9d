"""The right to a service, for a command that runs it, closes its slots or plans it anew."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from raptor.errors import NotWritten
from raptor.rows import LEASE_S
from raptor.site import Site
from raptor.state.base import Right
from raptor.timetable import BY_COMMAND, Claim


@asynccontextmanager
async def held(site: Site, service: str) -> AsyncGenerator[tuple[Right, ...] | None]:
    """Nobody begins it meanwhile, neither here nor on another node, and its row is as it is; None if somebody runs it.

    What is given goes along with every write.
    """
    timetable, mine = site.workshop.timetable, Claim(BY_COMMAND, secrets.token_hex(8), site.clock.now())
    if timetable.claim(service, mine) is not None:
        yield None
        return
    try:
        async with right_to(site, service) as rights:
            if rights:
                await timetable.load()  # somebody else may have run it since it was looked at
            yield rights
    finally:
        timetable.release(service, mine.run)


@asynccontextmanager
async def right_to(site: Site, service: str) -> AsyncGenerator[tuple[Right, ...] | None]:
    """What a write carries on a shared store, renewed meanwhile; None where another node has it.

    Whoever asks has the claim of this node, which its schedulers look at first.
    """
    if not site.is_shared:
        yield ()
        return
    key, owner, store = f"service:{service}", site.workshop.owner, site.workshop.timetable.store
    grant = (await store.claim([key], owner=owner, now=site.clock.now(), lease_s=LEASE_S))[key]
    if grant.owner != owner:
        yield None
        return

    async def renew() -> None:
        while True:
            await asyncio.sleep(LEASE_S / 3)
            with suppress(NotWritten):
                await store.claim([key], owner=owner, now=site.clock.now(), lease_s=LEASE_S)

    right, renewing = Right(key, grant.fence), asyncio.ensure_future(renew())
    try:
        yield (right,)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        with suppress(NotWritten):  # then it lapses
            await store.release([right], owner=owner)
