"""The one table of commands behind every door: socket, embedded handle, command line.

Each is a function of a Site and JSON values, and answers in JSON values. `needs` says what it works on: records to
read, records to write, or a node that runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from raptor.due import Check, Due, NotDue, reached, rounded, skip
from raptor.errors import (
    AlreadyRunning,
    BadInput,
    BadSpec,
    CallTimeout,
    NoSuchName,
    NotRunning,
    NotWritten,
    RaptorError,
    RefusedState,
)
from raptor.rows import Definition, Scheduled
from raptor.runners import Context
from raptor.scheduler import Redefine, line_of
from raptor.service import read_interval
from raptor.site import Site
from raptor.source import INFO
from raptor.task import Run, Slot
from raptor.timetable import BY_HAND, Claim
from raptor.timing import Timing, check_name, parse_cron, parse_schedule, seconds
from raptor.tree import Branch, tree

Needs: TypeAlias = Literal["read", "write", "node"]
Answer: TypeAlias = dict[str, Any]


class Command(NamedTuple):
    """One command, and what it needs."""

    run: Callable[..., Awaitable[Answer]]
    needs: Needs


def exit_code(error: BaseException) -> int:
    """What the command line ends with."""
    match error:
        case BadInput() | BadSpec():
            return 2
        case NotRunning():
            return 3
        case NoSuchName():
            return 4
        case AlreadyRunning():
            return 5
        case RefusedState() | NotWritten() | PermissionError():
            return 6
        case CallTimeout():
            return 124
        case _:
            return 1


async def start(
    site: Site, name: str, interval: str | None = None, modules: list[str] | None = None, folder: str = "."
) -> Answer:
    """Start a scheduler on a running node, which takes in the services of these modules first."""
    live = site.need_live()
    check_name(name)
    if live.scheduler(name) is not None:
        raise AlreadyRunning(f"scheduler {name}", None)
    if modules:
        await live.adopt(modules, folder)
    definition = (await site.definitions()).get(name) or Definition(name=name)
    if interval is not None:
        definition = msgspec.structs.replace(definition, interval_s=read_interval(interval))
    definition = msgspec.structs.replace(definition, should_run=True)
    await site.define(definition)
    await live.launch(definition)
    return await status(site, name)


async def schedule(
    site: Site, name: str, services: list[str], add: bool = False, remove: bool = False, force: bool = False
) -> Answer:
    """Set a scheduler's services, or amend the list; a running one is told at once."""
    check_name(name)
    entries = [parse_schedule(text) for text in services]
    known = (await site.definitions()).get(name) or Definition(name=name)
    if not (force or remove):
        for entry in entries:
            site.catalogue.find(entry.name)
            if site.timing(known, entry) is None:
                raise BadInput(
                    f"{entry.name}: nothing says when it runs; write {entry.name}=24h, or start {name} with --interval"
                )
    definition = msgspec.structs.replace(known, services=_amended(known.services, entries, add, remove))
    for entry in definition.services:
        if entry not in known.services:
            await _replan(site, definition, entry)
    await site.define(definition)
    scheduler = None if site.live is None else site.live.scheduler(name)
    outlook = [_outlook(site, definition, entry) for entry in definition.services]
    if scheduler is not None:
        await scheduler.call(Redefine(definition, look_now=True))
    return {"scheduler": name, "running": scheduler is not None, "services": outlook}


async def _replan(site: Site, definition: Definition, entry: Scheduled) -> None:
    """A service that was given another timing is due by that: from its last slot, or at its next calendar time."""
    row, timing = site.row(entry.name), site.timing(definition, entry)
    if row is None or timing is None or row.open is not None or entry.name in site.workshop.timetable.claims:
        return
    now = site.clock.now()
    if timing.every_s is None:
        due = timing.first(now)
    elif timing.every_s == row.interval_seconds:
        return
    else:
        slot = now if row.slot is None else row.slot
        due = timing.after(slot=slot, end=slot, origin=slot)
    changed = msgspec.structs.replace(row, next_due=rounded(due), interval_seconds=timing.every_s, origin=None)
    await site.workshop.timetable.save(entry.name, changed)


def _amended(old: tuple[Scheduled, ...], entries: list[Scheduled], add: bool, remove: bool) -> tuple[Scheduled, ...]:
    named = {entry.name: entry for entry in entries}
    if len(named) < len(entries):
        raise BadInput("a service is named twice in the list")
    if remove:
        missing = [name for name in named if name not in {entry.name for entry in old}]
        if missing:
            raise NoSuchName("scheduled service", missing[0], [entry.name for entry in old])
        return tuple(entry for entry in old if entry.name not in named)
    if add:
        return (*(entry for entry in old if entry.name not in named), *entries)
    return tuple(entries)


def _outlook(site: Site, definition: Definition, entry: Scheduled) -> Answer:
    found = site.outlook(definition, entry)
    match found:
        case Due():
            return {"name": entry.name, "due": True, "reason": found.reason, "next_due": found.planned}
        case NotDue():
            return {"name": entry.name, "due": False, "reason": found.reason, "next_due": found.until}
        case None:
            return {"name": entry.name, "due": False, "reason": "unknown service", "next_due": None}


async def status(site: Site, name: str | None = None) -> Answer:
    """Schedulers and services, as they are."""
    definitions, states = await site.definitions(), await site.states()
    if name is not None and name not in definitions:
        raise NoSuchName("scheduler", name, definitions, hint="`raptor status` lists them")
    chosen = [definition for key, definition in sorted(definitions.items()) if name in (None, key)]
    schedulers: list[Answer] = []
    for definition in chosen:
        scheduler = None if site.live is None else site.live.scheduler(definition.name)
        if scheduler is not None:
            schedulers.append(await scheduler.call("status"))
        else:
            schedulers.append(_stopped(definition, states))
    return {"v": 1, "now": site.clock.now(), "schedulers": schedulers, "services": _services(site, chosen, name)}


def _stopped(definition: Definition, states: dict[str, Any]) -> Answer:
    state = states.get(definition.name)
    return {
        "name": definition.name,
        "state": "interrupted" if state is not None else "stopped",
        "interval_s": definition.interval_s,
        "current_service": None if state is None else state.current_service,
        "current_since": None,
        "remaining_services": [] if state is None else list(state.services_queue),
        "completed_count": 0 if state is None else len(state.results),
        "results": [] if state is None else [line_of(result) for result in state.results],
        "periodic_enabled": False,
        "periodic_services": [entry.name for entry in definition.services],
        "periodic_interval_ms": None if definition.interval_s is None else round(definition.interval_s * 1000),
        "cycle": None if state is None else state.cycle,
        "resumed": 0,
        "cycles": 0,
        "next_check": None,
    }


def _services(site: Site, definitions: list[Definition], name: str | None) -> list[Answer]:
    lines: list[Answer] = []
    seen: set[str] = set()
    for definition in definitions:
        for entry in definition.services:
            if entry.name not in seen:
                seen.add(entry.name)
                lines.append(_service(site, definition, entry))
    if name is None:
        lines += [_service(site, None, Scheduled(name=key)) for key in site.catalogue if key not in seen]
    return lines


def _service(site: Site, definition: Definition | None, entry: Scheduled) -> Answer:
    service, row, timing = site.catalogue.get(entry.name), site.row(entry.name), site.timing(definition, entry)
    claim = site.workshop.timetable.claims.get(entry.name)
    took = None if row is None or row.last_end is None else row.last_end - (row.last_start or row.last_end)
    return {
        "name": entry.name,
        "known": service is not None,
        "scheduler": None if definition is None else definition.name,
        "paused": definition is not None and (definition.paused or entry.name in definition.paused_services),
        "running": None if claim is None else claim.holder,
        "every_s": None if timing is None else timing.every_s,
        "cron": entry.cron or (service.cron if service is not None else None),
        "last_run_timestamp": None if row is None else row.last_run_timestamp,
        "last_result": None if row is None else row.last_outcome,
        "last_info": "" if row is None else row.last_info,
        "last_start": None if row is None else row.last_start,
        "last_end": None if row is None else row.last_end,
        "took_s": took,
        "failures": 0 if row is None else row.failures,
        "attempts": 0 if row is None else row.attempts,
        "max_attempts": None if service is None else service.max_attempts,
        "retry_at": None if row is None else row.retry_at,
        "next_due": None if service is None or timing is None else site.next_due(service, timing),
    }


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


async def pause(site: Site, name: str, note: str = "") -> Answer:
    """Hold a scheduler, or a service wherever it is listed. Its slots are skipped, not made up for."""
    return await _hold(site, name, held=True, note=note)


async def resume(site: Site, name: str) -> Answer:
    """Let a held scheduler or service run again, from its next slot on."""
    return await _hold(site, name, held=False, note="")


async def _hold(site: Site, name: str, *, held: bool, note: str) -> Answer:
    definitions = await site.definitions()
    if name in definitions:
        changed = [msgspec.structs.replace(definitions[name], paused=held, note=note)]
        passed = [entry.name for entry in changed[0].services]
    else:
        listing = [d for d in definitions.values() if name in {entry.name for entry in d.services}]
        if not listing:
            raise NoSuchName("scheduler or service", name, [*definitions, *site.catalogue])
        changed = [_with_paused(definition, name, held) for definition in listing]
        passed = [name]
    if not held:
        for definition in changed:
            for entry in definition.services:
                if entry.name in passed:
                    await _pass_paused(site, definition, entry)
    for definition in changed:
        await site.define(definition)
        scheduler = None if site.live is None else site.live.scheduler(definition.name)
        if scheduler is not None:
            await scheduler.call(Redefine(definition))
    return {"paused" if held else "resumed": name, "schedulers": [definition.name for definition in changed]}


def _with_paused(definition: Definition, service: str, held: bool) -> Definition:
    others = tuple(name for name in definition.paused_services if name != service)
    return msgspec.structs.replace(definition, paused_services=(*others, service) if held else others)


async def _pass_paused(site: Site, definition: Definition, entry: Scheduled) -> None:
    """The slots of the time in which it was held are closed as skipped."""
    service, row, timing = site.catalogue.get(entry.name), site.row(entry.name), site.timing(definition, entry)
    if service is None or row is None or timing is None:
        return
    if entry.name in site.workshop.timetable.claims:
        return  # it runs for one of them; what came meanwhile is seen at the next check
    now = site.clock.now()
    check = Check(scheduler=definition.name, at=now, now=now, up_since=now)
    found = skip(service, timing, row, check, "paused")
    if found.row is not None:
        await site.workshop.timetable.store.record(found.closed, ())
        await site.workshop.timetable.save(entry.name, found.row)


async def run(site: Site, service: str) -> Answer:
    """Run a service once, now. Its timing is left alone."""
    found, now = site.catalogue.find(service), site.clock.now()
    started = Run(id=secrets.token_hex(8), service=service, scheduler=None, planned=now, attempt=1, start=now)
    timetable = site.workshop.timetable
    holder = timetable.claim(service, Claim(BY_HAND, started.id, now))
    if holder is not None:
        raise AlreadyRunning(f"service {service} (claimed by {holder.holder})", None)
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
    return _plain(ended)


async def preview(site: Site, target: str | None = None, n: int = 5, tz: str | None = None) -> Answer:
    """The next times of a service, of a cron expression or an interval, or of every service."""
    now = site.clock.now()
    if target is None:
        lines = (await status(site))["services"]
        return {"now": now, "services": sorted(lines, key=lambda line: line["next_due"] or float("inf"))}
    if target in site.catalogue:
        timing = await _timing_of(site, target)
        first = site.next_due(site.catalogue[target], timing)
        times = [first, *timing.preview(max(first, now), n)]
        return {"now": now, "target": target, "times": sorted(set(times))[:n]}
    try:
        timing = parse_cron(target, tz)
    except BadInput as error:
        if " " not in target and not target.startswith("@"):
            raise NoSuchName("service", target, site.catalogue, hint="or give a cron expression") from error
        raise
    return {"now": now, "target": target, "times": timing.preview(now, n), "timezone": str(getattr(timing, "zone", ""))}


async def _timing_of(site: Site, name: str) -> Timing:
    for definition in (await site.definitions()).values():
        for entry in definition.services:
            if entry.name == name and (timing := site.timing(definition, entry)) is not None:
                return timing
    timing = site.timing(None, Scheduled(name=name))
    if timing is None:
        raise BadInput(f"{name}: nothing says when it runs; schedule it, or give it every= or cron=")
    return timing


async def history(
    site: Site,
    service: str | None = None,
    since: str | None = None,
    failed: bool = False,
    limit: int = 20,
) -> Answer:
    """Past runs, newest first, with those of the cycle that is under way."""
    if service is not None and service not in site.catalogue and site.row(service) is None:
        raise NoSuchName("service", service, [*site.catalogue, *site.workshop.timetable.rows])
    earliest = None if since is None else site.clock.now() - seconds(since)
    runs = await site.workshop.timetable.store.history(service, since=earliest, failed=failed, limit=limit)
    journal = [result.run for state in (await site.states()).values() for result in state.results]
    known = {past.id for past in runs}
    fresh = [
        past
        for past in journal
        if past.id not in known
        and service in (None, past.service)
        and past.start >= (earliest or 0)
        and not (failed and past.outcome == "ok")
    ]
    runs = sorted([*fresh, *runs], key=lambda past: past.start, reverse=True)[:limit]
    return {"now": site.clock.now(), "runs": [_plain(past) for past in runs]}


async def why(site: Site, service: str, at: float) -> Answer:
    """What became of a slot, and why."""
    if service not in site.catalogue and site.row(service) is None:
        raise NoSuchName("service", service, [*site.catalogue, *site.workshop.timetable.rows])
    store, row = site.workshop.timetable.store, site.row(service)
    slots = await store.slots(service, since=at - 86400, until=at + 86400)
    closest = min(slots, key=lambda slot: _distance(slot, at), default=None)
    runs = await store.history(service, limit=1000)
    pending = None if row is None else row.open if row.open is not None else row.next_due
    if pending is not None and (closest is None or abs(pending - at) < _distance(closest, at)):
        assert row is not None
        tried = [_plain(past) for past in runs if past.planned == pending]
        return {"service": service, "at": at, "planned": pending, "verdict": "open", "runs": tried, "row": _plain(row)}
    if closest is None:
        return {"service": service, "at": at, "planned": None, "verdict": "unknown", "runs": []}
    own = [_plain(past) for past in runs if closest.planned <= past.planned <= closest.last]
    return {"service": service, "at": at, **_plain(closest), "runs": own}


def _distance(slot: Slot, at: float) -> float:
    return 0.0 if slot.planned <= at <= slot.last else min(abs(slot.planned - at), abs(slot.last - at))


async def show_tree(site: Site) -> Answer:
    """The supervision tree."""
    return _branch(tree(site.need_live().root))


def _branch(branch: Branch) -> Answer:
    return {
        "name": branch.name,
        "kind": branch.kind,
        "state": branch.state,
        "restarts": branch.restarts,
        "uptime_s": branch.uptime_s,
        "mailbox": branch.mailbox,
        "busy_s": branch.busy_s,
        "children": [_branch(child) for child in branch.children],
    }


async def reload(site: Site) -> Answer:
    """Read raptor.toml and the modules anew; a wrong one changes nothing."""
    return await site.need_live().reload()


async def dump(site: Site, table: str | None = None, key: str | None = None) -> Answer:
    """The rows of the tables, as they are."""
    store = site.workshop.timetable.store
    tables = ("service_timing", "scheduler_state", "definitions")
    if table is not None and table not in tables:
        raise NoSuchName("table", table, tables)
    rows = {
        name: {row: _plain(record) for row, record in (await store.load(name)).items() if key in (None, row)}
        for name in tables
        if table in (None, name)
    }
    return {"tables": rows}


async def reset(site: Site, service: str | None = None, scheduler: str | None = None) -> Answer:
    """Make a service due now (its record stays), or drop what is left of a scheduler's cycle."""
    timetable = site.workshop.timetable
    if service is not None:
        row = timetable.row(service)
        if row is None:
            raise NoSuchName("timing record", service, timetable.rows)
        now = reached(site.clock.now())
        due = msgspec.structs.replace(row, next_due=now, retry_at=None, open=None, attempts=0, failures=0)
        await timetable.save(service, due)
        await _look(site, service)
        return {"reset": service, "next_due": now}
    if scheduler is None:
        raise BadInput("name a service, or a scheduler with --scheduler NAME")
    await site.definition(scheduler)
    if site.live is not None and site.live.scheduler(scheduler) is not None:
        raise AlreadyRunning(f"scheduler {scheduler}", None)
    await timetable.store.save([("scheduler_state", scheduler, None)])
    return {"reset": scheduler}


async def _look(site: Site, service: str) -> None:
    if site.live is None:
        return
    for definition in (await site.definitions()).values():
        scheduler = site.live.scheduler(definition.name)
        if scheduler is not None and service in {entry.name for entry in definition.services}:
            await scheduler.call(Redefine(definition))


async def settings(site: Site) -> Answer:
    """The values in force, and where each came from."""
    return {
        "settings": [
            {"name": setting.name, "value": setting.text, "source": setting.source} for setting in site.config.settings
        ]
    }


def _plain(record: msgspec.Struct) -> Answer:
    """A record with all of its fields, also those that are left out on disk."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(record).items()}


COMMANDS: dict[str, Command] = {
    "start": Command(start, "node"),
    "schedule": Command(schedule, "write"),
    "status": Command(status, "read"),
    "stop": Command(stop, "node"),
    "pause": Command(pause, "write"),
    "resume": Command(resume, "write"),
    "run": Command(run, "write"),
    "next": Command(preview, "read"),
    "history": Command(history, "read"),
    "why": Command(why, "read"),
    "tree": Command(show_tree, "node"),
    "reload": Command(reload, "node"),
    "dump": Command(dump, "read"),
    "reset": Command(reset, "write"),
    "config": Command(settings, "read"),
}


async def perform(site: Site, name: str, params: dict[str, Any]) -> Answer:
    """Run a command of the table; wrong names and parameters are refused like any bad input."""
    command = COMMANDS.get(name)
    if command is None:
        raise NoSuchName("command", name, COMMANDS)
    try:
        work = command.run(site, **params)
    except TypeError as error:
        raise BadInput(f"{name}: {error}") from None
    return await work


__all__ = ["COMMANDS", "Command", "RaptorError", "exit_code", "perform"]
