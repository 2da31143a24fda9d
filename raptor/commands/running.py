"""Commands that run something, or steer a node that runs: start, stop, run, tree, reload."""

from __future__ import annotations

import secrets

import msgspec

from raptor.commands.answers import Answer, plain
from raptor.commands.reading import status
from raptor.errors import AlreadyRunning, NotRunning
from raptor.rows import INFO, Definition
from raptor.runners import Context
from raptor.service import read_interval
from raptor.site import Site
from raptor.task import Run
from raptor.timetable import BY_HAND, Claim
from raptor.timing import check_name
from raptor.tree import tree


async def start(
    site: Site, name: str, interval: str | None = None, modules: list[str] | None = None, folder: str = "."
) -> Answer:
    """Start a scheduler on a running node, which takes in the services of these modules first."""
    live = site.need_live()
    check_name(name)
    if live.scheduler(name) is not None:
        raise AlreadyRunning(f"scheduler {name}", advice=f"`raptor stop {name}` stops it, `raptor status` shows it")
    if modules:
        await live.adopt(modules, folder)
    definition = (await site.definitions()).get(name) or Definition(name=name)
    if interval is not None:
        definition = msgspec.structs.replace(definition, interval_s=read_interval(interval))
    definition = msgspec.structs.replace(definition, should_run=True)
    await site.define(definition)
    await live.launch(definition)
    return await status(site, name)


async def stop(site: Site, name: str | None = None, grace_s: float = 30.0) -> Answer:
    """Stop a scheduler after its current service, or the whole node."""
    live = site.need_live()
    if name is None:
        live.shut_down(grace_s)
        return {"stopping": "node"}
    definition = await site.definition(name)
    if live.scheduler(name) is None:
        raise NotRunning(f"scheduler {name} does not run: `raptor start {name}` starts it")
    await site.define(msgspec.structs.replace(definition, should_run=False))
    await live.halt(name, grace_s)
    return {"stopped": name}


async def run(site: Site, service: str) -> Answer:
    """Run a service once, now. Its timing is left alone."""
    found, now = site.catalogue.find(service), site.clock.now()
    started = Run(id=secrets.token_hex(8), service=service, scheduler=None, planned=now, attempt=1, start=now)
    timetable = site.workshop.timetable
    holder = timetable.claim(service, Claim(BY_HAND, started.id, now))
    if holder is not None:
        raise AlreadyRunning(f"service {service}", advice=f"{_runner(holder)} has it; wait until it has ended")
    try:
        context = Context(run_id=started.id, service=service, planned=now, key=f"{service}@{now:.6f}")
        log = site.workshop.logs.open(service)
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
    return claim.holder if claim.holder == BY_HAND else f"scheduler {claim.holder}"


async def show_tree(site: Site) -> Answer:
    """The supervision tree."""
    return tree(site.need_live().root).plain()


async def reload(site: Site) -> Answer:
    """Read raptor.toml and the modules anew; a wrong one changes nothing."""
    return await site.need_live().reload()
