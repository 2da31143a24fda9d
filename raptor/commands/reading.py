"""Commands that only read: status, next, history, why, dump, config. They import no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raptor.commands.answers import Answer, Count, Few, plain
from raptor.errors import BadInput, NoSuchName, NotWritten
from raptor.rows import Definition, Line, Scheduled, line_of
from raptor.site import Site
from raptor.task import Slot
from raptor.timing import Every, Timing, parse_cron, seconds

if TYPE_CHECKING:
    from raptor.state.base import Presence


async def status(site: Site, name: str | None = None) -> Answer:
    """Schedulers and services, as they are."""
    degraded, nodes, states = await _look_around(site)
    definitions = await site.definitions()
    if name is not None and name not in definitions:
        raise NoSuchName("scheduler", name, definitions, hint="`raptor status` lists them")
    chosen = [definition for key, definition in sorted(definitions.items()) if name in (None, key)]
    schedulers: list[Answer] = []
    for definition in chosen:
        scheduler = None if site.live is None else site.live.scheduler(definition.name)
        own = None if scheduler is None else await scheduler.call("status")
        schedulers.append(_scheduler(definition, own, nodes) or own or _stopped(definition, states))
    services = _services(site, chosen, name)
    queues = [] if name is not None or degraded is not None else await _queues(site)
    answer = {"v": 1, "now": site.clock.now(), "schedulers": schedulers, "services": services, "queues": queues}
    if site.is_shared:
        promise = site.promise
        answer |= {
            "nodes": [shown(node, site) for node in nodes],
            "degraded": degraded,
            "store": None
            if promise is None
            else {"address": promise.store, "durability": promise.text, "durable": promise.is_full},
        }
    return answer


async def _look_around(site: Site) -> tuple[str | None, list[Presence], dict[str, Any]]:
    """Why the store does not answer; or the nodes that share it, and what is left of cycles."""
    if site.live is None or not site.is_shared:
        await site.refresh()
        return None, await site.nodes(), await site.states()
    try:
        if site.degraded is None:
            await site.refresh()
            return None, await site.nodes(), await site.states()
    except NotWritten as error:
        return str(error), [], {}
    return site.degraded, [], {}


def _scheduler(definition: Definition, own: Answer | None, nodes: list[Presence]) -> Answer | None:
    """A scheduler that another node runs, as that showed it last. None: there is nothing to add."""
    if own is not None and own["state"] != "standby":
        return None
    for node in nodes:
        for status in node.doing.get("schedulers", ()) if node.alive else ():
            if status["name"] == definition.name and status["state"] != "standby":
                return {**status, "state": status["state"] if own is None else "standby", "owner": node.name}
    return None


def shown(node: Presence, site: Site) -> Answer:
    """A node of a shared store, as it last showed itself."""
    doing = node.doing
    return {
        "name": node.name,
        "host": node.host,
        "pid": node.pid,
        "version": node.version,
        "alive": node.alive,
        "here": site.live is not None and node.owner == site.workshop.owner,
        "age_s": max(0.0, site.clock.now() - node.seen),
        "skew_s": node.skew_s,
        "started": node.started,
        "schedulers": {status["name"]: status["state"] for status in doing.get("schedulers", ())},
        "worker": doing.get("worker"),
        "tree": doing.get("tree"),
    }


async def _queues(site: Site) -> list[Answer]:
    """Queues that have something to do, or to mend."""
    lines = {line.name: line for line in site.config.queues} | await site.load("lines")
    paused = {name for name, line in lines.items() if isinstance(line, Line) and line.paused}
    counts = [plain(count) for count in await site.records.timetable.store.stat(now=site.clock.now())]
    shown = ("queue", "ready", "delayed", "taken", "dead")
    busy = [{key: count[key] for key in shown} for count in counts if any(count[key] for key in shown[1:])]
    return [{**count, "paused": count["queue"] in paused} for count in busy]


def _stopped(definition: Definition, states: dict[str, Any]) -> Answer:
    state = states.get(definition.name)
    return {
        "name": definition.name,
        "state": "interrupted" if state is not None else "stopped",
        "interval_s": definition.interval_s,
        "current_service": None if state is None else state.current_service,
        "current_since": None,
        "remaining_services": [] if state is None else list(state.services_queue),
        "completed_count": 0 if state is None else len(state.told),
        "results": [] if state is None else [line_of(result) for result in state.told],
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
    claim = site.claim(entry.name)
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


async def preview(site: Site, target: str | None = None, n: Few = 5, tz: str | None = None) -> Answer:
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
    timing = _written(site, target, tz)
    return {"now": now, "target": target, "times": timing.preview(now, n), "timezone": str(getattr(timing, "zone", ""))}


def _written(site: Site, text: str, tz: str | None) -> Timing:
    """The timing of an interval such as 10m, or of a cron expression."""
    try:
        return Every(seconds(text))
    except BadInput:
        pass  # then it is a cron expression
    try:
        return parse_cron(text, tz)
    except BadInput as error:
        if " " not in text and not text.startswith("@"):
            hint = "or give an interval such as 10m, or a cron expression"
            raise NoSuchName("service", text, site.catalogue, hint=hint) from error
        raise


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
    limit: Count = 20,
) -> Answer:
    """Past runs, newest first, with those of the cycle that is under way; `has_tasks`: tasks have their own rows."""
    if service is not None:
        site.check_known(service)
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
    return {
        "now": site.clock.now(),
        "runs": [plain(past) for past in runs],
        "has_tasks": await _has(site, service, failed),
    }


async def _has(site: Site, service: str | None, failed: bool) -> bool:
    """Whether there are tasks of a service, or of any; dead ones, where only failures are asked for."""
    from raptor.state.base import Query  # not for the commands that only look
    from raptor.task import State

    query = Query(service=service, states=(State.DEAD,) if failed else (), limit=1)
    return bool(await site.workshop.timetable.store.find(query))


async def why(site: Site, service: str, at: float) -> Answer:
    """What became of a slot, and why."""
    site.check_known(service)
    store, row = site.workshop.timetable.store, site.row(service)
    slots = await store.slots(service, since=at - 86400, until=at + 86400)
    closest = min(slots, key=lambda slot: _distance(slot, at), default=None)
    runs = await store.history(service, limit=1000)
    pending = None if row is None else row.open if row.open is not None else row.next_due
    if pending is not None and (closest is None or abs(pending - at) < _distance(closest, at)):
        assert row is not None
        tried = [plain(past) for past in runs if past.planned == pending]
        return {"service": service, "at": at, "planned": pending, "verdict": "open", "runs": tried, "row": plain(row)}
    if closest is None:
        return {"service": service, "at": at, "planned": None, "verdict": "unknown", "runs": []}
    own = [plain(past) for past in runs if closest.planned <= past.planned <= closest.last]
    return {"service": service, "at": at, **plain(closest), "runs": own}


def _distance(slot: Slot, at: float) -> float:
    return 0.0 if slot.planned <= at <= slot.last else min(abs(slot.planned - at), abs(slot.last - at))


async def dump(site: Site, table: str | None = None, key: str | None = None) -> Answer:
    """The rows of the tables, as they are."""
    tables = ("service_timing", "scheduler_state", "definitions")
    if table is not None and table not in tables:
        raise NoSuchName("table", table, tables)
    rows = {
        name: {row: plain(record) for row, record in (await site.load(name)).items() if key in (None, row)}
        for name in tables
        if table in (None, name)
    }
    return {"tables": rows}


async def settings(site: Site) -> Answer:
    """The values in force, and where each came from."""
    return {
        "settings": [
            {"name": setting.name, "value": setting.text, "source": setting.source} for setting in site.config.settings
        ]
    }
