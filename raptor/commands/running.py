"""Commands that run something, or steer a node that runs: start, stop, run, tree, reload."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial

import msgspec

from raptor.commands.answers import Answer, plain
from raptor.commands.holding import right_to
from raptor.commands.reading import shown, status
from raptor.errors import AlreadyRunning, NotRunning
from raptor.rows import INFO, LEASE_S
from raptor.runners import Context
from raptor.service import read_interval
from raptor.site import Site
from raptor.task import Run
from raptor.timetable import BY_COMMAND, BY_HAND, Claim
from raptor.timing import check_name
from raptor.tree import tree

LOOK_S = 0.2  # how often it is looked at whether a scheduler has ended elsewhere
MARGIN_S = 10.0  # for the news to reach its node, and for it to end


async def start(
    site: Site,
    name: str,
    interval: str | None = None,
    modules: list[str] | None = None,
    folder: str = ".",
    standby: bool = True,
) -> Answer:
    """Start a scheduler on a running node, which takes in the services of these modules first.

    One that another node of the store runs is stood by for, or without `standby` refused.
    """
    live = site.need_live()
    check_name(name)
    if live.scheduler(name) is not None:
        raise AlreadyRunning(f"scheduler {name}", advice=f"`raptor stop {name}` stops it, `raptor status` shows it")
    if modules:
        await live.adopt(modules, folder)
    await site.refresh()
    if not standby:
        await claim(site, name)
    given = {} if interval is None else {"interval_s": read_interval(interval)}
    await live.launch(await site.amend(name, lambda known: msgspec.structs.replace(known, should_run=True, **given)))
    return await status(site, name)


async def claim(site: Site, name: str) -> None:
    """On a shared store: have the right to a scheduler now, or say who has it."""
    if not site.is_shared:
        return
    key, workshop = f"scheduler:{name}", site.workshop
    grants = await workshop.timetable.store.claim([key], owner=workshop.owner, now=site.clock.now(), lease_s=LEASE_S)
    if grants[key].owner != workshop.owner:
        owner = await site.owner(name) or grants[key].owner
        raise AlreadyRunning(f"scheduler {name}", advice=f"{owner} has it; without --no-standby this node stands by")


async def stop(site: Site, name: str | None = None, grace_s: float = 30.0) -> Answer:
    """Stop a scheduler after its current service, or the whole node."""
    if name is None:
        site.need_live().shut_down(grace_s)
        return {"stopping": "node"}
    live = site.live if site.is_shared else site.need_live()
    await site.refresh()
    await site.definition(name)  # NoSuchName
    owner = await site.owner(name)
    is_here = live is not None and await live.keeps(name)
    if not is_here and owner is None:
        raise NotRunning(f"scheduler {name} does not run: `raptor start {name}` starts it")
    # Other nodes hear of it.
    await site.amend(name, partial(msgspec.structs.replace, should_run=False, grace_s=grace_s))
    if live is not None and is_here:
        await live.halt(name, grace_s)
    if owner is None:
        return {"stopped": name}
    return {"stopped": name, "owner": owner, "ended": await _ended(site, name, site.clock.now() + grace_s + MARGIN_S)}


async def _ended(site: Site, name: str, limit: float) -> bool:
    """Wait until no node runs it any more; False if that takes too long."""
    while await site.owner(name) is not None:
        if site.clock.now() >= limit:
            return False
        await asyncio.sleep(LOOK_S)
    return True


async def run(site: Site, service: str) -> Answer:
    """Run a service once, now. Its timing is left alone."""
    found, now = site.catalogue.find(service), site.clock.now()
    started = Run(id=secrets.token_hex(8), service=service, scheduler=None, planned=now, attempt=1, start=now)
    timetable = site.workshop.timetable
    await site.refresh()
    holder = timetable.claim(service, Claim(BY_HAND, started.id, now))
    if holder is not None:
        raise AlreadyRunning(f"service {service}", advice=f"{_runner(holder)} has it; wait until it has ended")
    try:
        context = Context(run_id=started.id, service=service, planned=now, key=f"{service}@{now:.6f}")
        log = site.workshop.logs.open(service)
        async with right_to(site, service) as rights:
            if rights is None:
                raise AlreadyRunning(f"service {service}", advice="another node has it; wait until it has ended")
            result = await site.workshop.runners[found.kind].run(found, context, log)
    finally:
        timetable.release(service, started.id)
    ended = msgspec.structs.replace(
        started, end=site.clock.now(), outcome=result.outcome, info=result.info[:INFO], error=result.error,
        tail=result.tail,
    )  # fmt: skip
    await timetable.store.record((), [ended])
    return plain(ended)


def _runner(claim: Claim) -> str:
    return claim.holder if claim.holder in (BY_HAND, BY_COMMAND) else f"scheduler {claim.holder}"


async def show_tree(site: Site) -> Answer:
    """The supervision tree; on a shared store with those of the other nodes, as they last showed themselves."""
    if not site.is_shared:
        return tree(site.need_live().root).plain()
    found = [shown(node, site) for node in await site.nodes()]
    own = {} if site.live is None else tree(site.live.root).plain()
    return {**own, "nodes": [node for node in found if not node["here"]]}


async def reload(site: Site) -> Answer:
    """Read raptor.toml and the modules anew; a wrong one changes nothing."""
    return await site.need_live().reload()
