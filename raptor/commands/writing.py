"""Commands that change records: schedule, pause, resume, reset. A scheduler that runs is told at once."""

from __future__ import annotations

from functools import partial

import msgspec

from raptor.commands.answers import Answer
from raptor.commands.holding import held
from raptor.due import Check, Due, NotDue, reached, rounded, skip
from raptor.errors import AlreadyRunning, BadInput, NoSuchName
from raptor.payload import form_of
from raptor.rows import Definition, Scheduled, ServiceTiming
from raptor.scheduler import Redefine
from raptor.site import Site
from raptor.state.base import Right
from raptor.timing import Every, Timing, check_name, parse_schedule


async def schedule(
    site: Site, name: str, services: list[str], add: bool = False, remove: bool = False, force: bool = False
) -> Answer:
    """Set a scheduler's services, or amend the list; a running one is told at once."""
    check_name(name)
    await site.refresh()
    entries = [parse_schedule(text) for text in services]
    known = (await site.definitions()).get(name) or Definition(name=name)
    if not (force or remove):
        for entry in entries:
            needs = form_of(site.catalogue.find(entry.name).function).required
            if needs:
                raise BadInput(
                    f"{entry.name}: a scheduler has no data for it, and it needs {', '.join(needs)}: put it as a task,"
                    " or give them defaults"
                )
            if site.timing(known, entry) is None:
                raise BadInput(
                    f"{entry.name}: nothing says when it runs; write {entry.name}=24h, or start {name} with --interval"
                )

    def change(known: Definition) -> Definition:
        return msgspec.structs.replace(known, services=_amended(known.services, entries, add, remove))

    definition = change(known)
    for entry in definition.services:
        if entry not in known.services:
            await _replan(site, definition, entry)
    definition = await site.amend(name, change)
    scheduler = None if site.live is None else site.live.scheduler(name)
    outlook = [_outlook(site, definition, entry) for entry in definition.services]
    if scheduler is not None:
        await scheduler.call(Redefine(definition, look_now=True))
    owner = await site.owner(name)
    told = {} if owner is None else {"owner": owner}
    return {"scheduler": name, "running": scheduler is not None or owner is not None, **told, "services": outlook}


async def _replan(site: Site, definition: Definition, entry: Scheduled) -> None:
    """A service that was given another timing is due by that: from its last slot, or at its next calendar time.

    What came before that time and did not run is skipped, unless another scheduler will come to it; but before another
    interval counts the last slot that has come is run. What a running scheduler has never looked at is planned here, so
    that its first calendar time is not lost with a crash.
    """
    timing = site.timing(definition, entry)
    if timing is None or not _is_replanned(site, definition, entry, timing):
        return
    async with held(site, entry.name) as rights:
        if rights is not None and _is_replanned(site, definition, entry, timing):
            await _plan_anew(site, definition, entry.name, timing, rights)


def _is_replanned(site: Site, definition: Definition, entry: Scheduled, timing: Timing) -> bool:
    row = site.row(entry.name)
    if row is None:
        return timing.every_s is None and definition.should_run
    return row.open is None and (timing.every_s is None or timing.every_s != row.interval_seconds)


async def _plan_anew(site: Site, definition: Definition, name: str, timing: Timing, rights: tuple[Right, ...]) -> None:
    row, now, timetable = site.row(name), site.clock.now(), site.workshop.timetable
    if row is None:
        await timetable.save(name, ServiceTiming(next_due=rounded(timing.first(now))), rights)
        return
    if timing.every_s is None:
        due = timing.first(now)
    elif row.next_due <= now:
        due = row.next_due if row.interval_seconds is None else Every(row.interval_seconds).latest(row.next_due, now)[0]
    else:
        slot = now if row.slot is None else row.slot
        due = timing.after(slot=slot, end=slot, origin=slot)
    until = min(now, due - 1e-6)  # one of this very moment is yet to run
    check = Check(scheduler=definition.name, at=until, now=now, up_since=now)
    if row.next_due <= until and not await _pass_rescheduled(site, name, row, timing, check, rights):
        return
    changed = msgspec.structs.replace(row, next_due=rounded(due), interval_seconds=timing.every_s, origin=None)
    await timetable.save(name, changed, rights)


async def _pass_rescheduled(
    site: Site, name: str, row: ServiceTiming, timing: Timing, check: Check, rights: tuple[Right, ...]
) -> bool:
    """Close the slots that have come by the check; False if they are another's to run."""
    others = (one for one in (await site.definitions()).values() if one.name != check.scheduler and one.should_run)
    if any(entry.name == name for one in others for entry in one.services):
        return False
    planned_by = timing if row.interval_seconds is None else Every(row.interval_seconds)
    found = skip(site.catalogue.find(name), planned_by, row, check, "rescheduled")
    await site.workshop.timetable.store.record(found.closed, (), rights=rights)
    return True


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


async def pause(site: Site, name: str, note: str = "") -> Answer:
    """Hold a scheduler, or a service wherever it is listed. Its slots are skipped, not made up for."""
    return await _hold(site, name, held=True, note=note)


async def resume(site: Site, name: str) -> Answer:
    """Let a held scheduler or service run again, from its next slot on."""
    return await _hold(site, name, held=False, note="")


async def _hold(site: Site, name: str, *, held: bool, note: str) -> Answer:
    await site.refresh()
    definitions = await site.definitions()
    if name in definitions:
        concerned = [definitions[name]]
        were_held = concerned if definitions[name].paused else []
        change = partial(msgspec.structs.replace, paused=held, note=note)
        passed = [entry.name for entry in definitions[name].services]
    else:
        concerned = [d for d in definitions.values() if name in {entry.name for entry in d.services}]
        if not concerned:
            raise _not_listed(site, name, definitions)
        were_held = [definition for definition in concerned if name in definition.paused_services]
        change = partial(_with_paused, service=name, held=held)
        passed = [name]
    if not held:
        for definition in were_held:
            for entry in definition.services:
                if entry.name in passed:
                    await _pass_paused(site, change(definition), entry)
    changed = [await site.amend(definition.name, change) for definition in concerned]
    for definition in changed:
        scheduler = None if site.live is None else site.live.scheduler(definition.name)
        if scheduler is not None:
            await scheduler.call(Redefine(definition))
    return {"paused" if held else "resumed": name, "schedulers": [definition.name for definition in changed]}


def _not_listed(site: Site, name: str, definitions: dict[str, Definition]) -> NoSuchName:
    service = site.catalogue.get(name)
    if service is None:
        return NoSuchName("scheduler or service", name, [*definitions, *site.catalogue])
    hint = f"no scheduler lists that service; `raptor pause {service.queue}` holds the queue of its tasks"
    return NoSuchName("scheduled service", name, hint=hint)


def _with_paused(definition: Definition, service: str, held: bool) -> Definition:
    others = tuple(name for name in definition.paused_services if name != service)
    return msgspec.structs.replace(definition, paused_services=(*others, service) if held else others)


async def _pass_paused(site: Site, definition: Definition, entry: Scheduled) -> None:
    """The slots of the time in which it was held are closed as skipped.

    Nobody begins it meanwhile: another scheduler that has it on its list may not have been held.
    """
    name, timetable, now = entry.name, site.workshop.timetable, site.clock.now()
    check = Check(scheduler=definition.name, at=now, now=now, up_since=now)
    if _passed(site, definition, entry, check) is None:
        return
    async with held(site, name) as rights:
        # One that runs does so for one of them; what came meanwhile is seen at the next check.
        found = None if rights is None else _passed(site, definition, entry, check)
        if rights is not None and found is not None and found.row is not None:
            await timetable.store.record(found.closed, (), rights=rights)
            await timetable.save(name, found.row, rights)


def _passed(site: Site, definition: Definition, entry: Scheduled, check: Check) -> NotDue | None:
    """What closes its slots up to now, if there are any."""
    service, row, timing = site.catalogue.get(entry.name), site.row(entry.name), site.timing(definition, entry)
    if service is None or row is None or timing is None:
        return None
    found = skip(service, timing, row, check, "paused")
    return None if found.row is None else found


async def reset(site: Site, service: str | None = None, scheduler: str | None = None) -> Answer:
    """Make a service due now (its record stays), or drop what is left of a scheduler's cycle."""
    await site.refresh()
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
        raise AlreadyRunning(f"scheduler {scheduler}", advice=f"`raptor stop {scheduler}` first")
    owner = await site.owner(scheduler)
    if owner is not None:
        raise AlreadyRunning(f"scheduler {scheduler}", advice=f"on {owner}; `raptor stop {scheduler}` first")
    await timetable.store.save([("scheduler_state", scheduler, None)])
    return {"reset": scheduler}


def _as_it_is(definition: Definition) -> Definition:
    return definition


async def _look(site: Site, service: str) -> None:
    for definition in (await site.definitions()).values():
        if service not in {entry.name for entry in definition.services}:
            continue
        if site.is_shared and definition.name in site.records.definitions:
            definition = await site.amend(definition.name, _as_it_is)  # whoever owns it hears of that, and looks
        scheduler = None if site.live is None else site.live.scheduler(definition.name)
        if scheduler is not None:
            await scheduler.call(Redefine(definition))
