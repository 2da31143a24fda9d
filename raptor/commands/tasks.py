"""Commands on tasks and queues: put, tasks, task, wait, cancel, retry, drop, queues, queue."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import msgspec

from raptor.commands.answers import Answer, Count, Id, plain
from raptor.commands.reading import shown as node_shown
from raptor.desk import TaskDesk
from raptor.errors import BadInput, CallTimeout, NoSuchName, RaptorError, did_you_mean
from raptor.lines import set_line
from raptor.orders import Order
from raptor.rows import Line
from raptor.site import Site
from raptor.state.base import Query, Store
from raptor.task import ENDED, Move, State, Task
from raptor.timing import check_name

PAGE = 500
LOOK_S = 1.0
PAST = {"retry": "retried", "drop": "dropped"}


async def put(
    site: Site, service: str, data: Any = None, many: list[Any] | None = None, replace: bool = False, **order: Any
) -> Answer:
    """Store a task, or one for each of many data; it is durable when this answers."""
    desk, asked = TaskDesk(site.workshop, site.clock.now), _order(order)
    if many is not None:
        if replace or data is not None:
            raise BadInput("many: goes without data and replace")
        placed = await desk.put_many(service, many, **asked)
        return {"ids": [one.id for one in placed]}
    one = await desk.put(service, data, replace=replace, **asked)
    found, now = await _find(site, one.id), site.clock.now()
    gone = {"state": "done", "queue": None, "due": None}  # where nothing is kept it may have ended and gone by now
    known = gone if found is None else {"state": _state(found, now), "queue": found.queue, "due": found.due}
    return {"id": one.id, "new": one.new, "now": now, **known}


def _order(order: dict[str, Any]) -> Order:
    known = Order.__annotations__
    for option in order:
        if option not in known:
            advice = did_you_mean(option, known) or f"it has {', '.join(known)}"
            raise BadInput(f"put: {option}: no such option: {advice}")
    return cast("Order", order)


async def tasks(
    site: Site,
    state: str | None = None,
    queue: str | None = None,
    service: str | None = None,
    key: str | None = None,
    limit: Count = 50,
    after: Id = 0,
) -> Answer:
    """Tasks, the newest first; `state` may be delayed as well."""
    now, states = site.clock.now(), _states(state)
    query = Query(
        states=states, queue=queue, service=service, key=key, limit=limit, after=after, newest=not after,
        due_from=now if state == "delayed" else None, due_until=now if state == "ready" else None,
    )  # fmt: skip
    found = await _store(site).find(query)
    if not found:
        await _check_names(site, queue, service)
    return {"now": now, "tasks": [_shown(task, now) for task in found]}


async def _check_names(site: Site, queue: str | None, service: str | None) -> None:
    """Where nothing was found: a queue or a service that nobody knows is refused."""
    if service is not None and not await _store(site).find(Query(service=service, limit=1)):
        site.catalogue.find(service)
    if queue is not None and not await _store(site).find(Query(queue=queue, limit=1)):
        known = {*site.workshop.lines, *(one.queue for one in site.catalogue.values())}
        known |= {count.queue for count in await _store(site).stat(now=site.clock.now())}
        if queue not in known:
            raise NoSuchName("queue", queue, known, hint="`raptor queues` lists them")


def _states(state: str | None) -> tuple[State, ...]:
    if state in (None, "all"):
        return ()
    names = [*State, "delayed"]
    if state not in names:
        raise BadInput(f"state: one of {', '.join(names)}, not {state!r}")
    return (State.READY if state == "delayed" else State(state),)


async def task(site: Site, id: Id) -> Answer:
    """One task: its whole life, and the tasks it put."""
    found, now = await _task(site, id), site.clock.now()
    children = await _store(site).find(Query(parent=id, limit=20))
    return {"now": now, **_shown(found, now), "children": [child.id for child in children]}


async def wait(site: Site, id: Id, timeout_s: float | None = None) -> Answer:
    """Until a task has ended; -> it. Where another node may end it, the store is looked at once a second."""
    loop = asyncio.get_running_loop()
    end, look_s = None if timeout_s is None else loop.time() + timeout_s, LOOK_S if site.is_shared else None
    ended, last = asyncio.Event(), list[Task]()

    def hear(event: Any) -> None:
        if event.facts["id"] == id and event.facts["state"] in ENDED:
            last.append(_moved(event.facts["task"], event.facts.get("move")))
            ended.set()

    live = site.live if site.is_shared else site.need_live()
    subscription = None if live is None else live.events.subscribe(hear, "task_ended", "task_cancelled")
    try:
        while True:
            found = await _find(site, id) or (last[-1] if last else await _task(site, id))
            if found.state in ENDED:
                return {"now": site.clock.now(), **_shown(found, site.clock.now())}
            if end is not None and loop.time() >= end:
                raise CallTimeout(f"task {id} has not ended within {timeout_s:g} s")
            left_s = [] if end is None else [end - loop.time()]
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), min([*left_s, *([look_s] if look_s else [])], default=None))
            ended.clear()
    finally:
        if subscription is not None:
            subscription.close()


def _moved(task: Task, move: Move | None) -> Task:
    """A task as its end leaves it, also where no row of it is kept."""
    if move is None:
        return msgspec.structs.replace(task, state=State.CANCELLED)
    return msgspec.structs.replace(
        task, state=move.state, attempts=move.attempts, ended=move.ended, output=move.output, error=move.error,
        reason=move.reason, history=move.history,
    )  # fmt: skip


async def cancel(site: Site, ids: list[Id], reason: str = "cancelled") -> Answer:
    """Cancel tasks: one that waits at once, one that runs by ending its run."""
    known = {id: await _task(site, id) for id in ids}
    before = await _store(site).cancel(ids, now=site.clock.now(), reason=reason)
    running = [id for id, state in before.items() if state is State.TAKEN]
    if running and site.live is not None:
        await site.live.unwanted(running)
    waiting = [id for id, state in before.items() if state is State.READY]
    if site.live is not None:
        for id in waiting:
            site.live.events.emit("task_cancelled", id=id, state=State.CANCELLED, task=known[id], reason=reason)
    ended = {id: str(state) for id, state in before.items() if state in ENDED}
    return {"cancelled": waiting, "ending": running, "ended": ended}


async def retry(
    site: Site, ids: list[Id] | None = None, queue: str | None = None, service: str | None = None
) -> Answer:
    """Make ended tasks ready again, from the first attempt: those named, or all dead ones."""
    return {"revived": await _each(site, ids, queue, service, "retry")}


async def drop(site: Site, ids: list[Id] | None = None, queue: str | None = None, service: str | None = None) -> Answer:
    """Forget ended tasks: those named, or all dead ones."""
    return {"dropped": await _each(site, ids, queue, service, "drop")}


async def _each(site: Site, ids: list[int] | None, queue: str | None, service: str | None, verb: str) -> list[int]:
    """All dead ones page by page, so that nobody waits long behind it."""
    store, done = _store(site), list[int]()
    if ids is not None:
        for id in ids:
            found = await _task(site, id)
            if found.state not in ENDED:
                raise BadInput(f"task {id} is {found.state}: only one that has ended can be {PAST[verb]}")
        return await _apply(store, ids, verb, site.clock.now())
    after = 0
    while page := await store.find(Query(states=(State.DEAD,), queue=queue, service=service, after=after, limit=PAGE)):
        some, after = [found.id for found in page], page[-1].id
        done += await _apply(store, some, verb, site.clock.now())
    if not done:
        await _check_names(site, queue, service)
    return done


async def _apply(store: Store, ids: list[int], verb: str, now: float) -> list[int]:
    """One whose key another task has by now is not revived."""
    if verb == "retry":
        return await store.revive(ids, now=now)
    await store.drop(ids)
    return ids


async def queues(site: Site) -> Answer:
    """Every queue: how it is set, how many tasks it has, and how many a second the node's worker did lately."""
    now, worker = site.clock.now(), await _worker(site)
    handled: Answer = {} if worker is None else worker["handled"]
    counts = {count.queue: count for count in await _store(site).stat(now=now)}
    lines = site.workshop.lines
    shown: list[Answer] = []
    for name in sorted({*counts, *lines}):
        line, count = lines.get(name) or Line(name=name), counts.get(name)
        numbers = {"ready": 0, "delayed": 0, "taken": 0, "done": 0, "dead": 0, "cancelled": 0, "oldest": None}
        if count is not None:
            numbers = plain(count)
        oldest = numbers["oldest"]
        rate = None if worker is None else handled.get(name, {}).get("done_per_s", 0.0)
        late_s = None if oldest is None else now - oldest
        shown.append({**plain(line), **numbers, "queue": name, "done_per_s": rate, "late_s": late_s})
    others = {"nodes": [node_shown(node, site) for node in await site.nodes()]} if site.is_shared else {}
    return {"now": now, "queues": shown, "worker": _settings(site, worker), **others}


async def _worker(site: Site) -> Answer | None:
    """What the node's worker says; None where there is none, or it is being restarted."""
    try:
        return None if site.live is None else await site.live.worker_status()
    except RaptorError:
        return None


def _settings(site: Site, worker: Answer | None) -> Answer | None:
    """How the worker was started: settings that were read anew are for the next."""
    if worker is None:
        return None if site.live is None else plain(site.config.worker)
    return {"processors": worker["processors"], "queues": worker["only"] or []}


async def queue(site: Site, name: str, **written: Any) -> Answer:
    """Set a queue: paused, note, processors, concurrency, rate, batch_size, lease, max_attempts."""
    check_name(name)
    defined = {line.name: line for line in site.config.queues}
    while True:
        stored = (await _store(site).load("lines")).get(name)
        line = set_line(stored if isinstance(stored, Line) else defined.get(name) or Line(name=name), written)
        if await _store(site).amend("lines", name, stored, line):
            break  # otherwise somebody else set it meanwhile
    site.workshop.lines[name] = line
    if site.live is not None:
        await site.live.new_lines()
    return plain(line)


def _store(site: Site) -> Store:
    return site.workshop.timetable.store


async def _find(site: Site, id: Id) -> Task | None:
    found = await _store(site).find(Query(ids=(id,), limit=1))
    return found[0] if found else None


async def _task(site: Site, id: int) -> Task:
    found = await _find(site, id)
    if found is None:
        raise NoSuchName("task", str(id), hint="`raptor tasks` lists them; one that is done is kept for a while")
    return found


def _state(task: Task, now: float) -> str:
    return "delayed" if task.state is State.READY and task.due > now else str(task.state)


def _shown(task: Task, now: float) -> Answer:
    """All that is known of a task; its data and output as they are, its state as people say it."""
    texts = {name: _readable(value) for name, value in msgspec.structs.asdict(task).items() if isinstance(value, str)}
    return {
        **plain(task),
        **texts,
        "state": _state(task, now),
        "data": _unpacked(task.data) if isinstance(task.data, bytes) else _value(texts["data"]),
        "output": None if task.output is None else _value(texts["output"]),
        "timing": None if task.timing is None else _value(texts["timing"]),
    }


def _readable(text: str) -> str:
    """As it can be told: one that was damaged on disk may be no text any more."""
    return text.encode("utf-8", "surrogateescape").decode(errors="replace")


def _unpacked(data: bytes) -> Any:
    try:
        return msgspec.to_builtins(msgspec.msgpack.decode(data), str_keys=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):  # TypeError: what JSON has no word for
        return data.decode(errors="replace")


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
