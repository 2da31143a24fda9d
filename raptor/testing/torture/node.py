"""One life of a node under torture, in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from raptor.clock import SystemClock
from raptor.config import Config
from raptor.node import Node
from raptor.service import Given
from raptor.testing.checker.history import Command, Unrecorded
from raptor.testing.torture import own
from raptor.testing.torture.own import Own
from raptor.testing.torture.services import LIFE, SCHEDULES, SERVICES, now
from raptor.testing.torture.writing import append

LANES = 6
NOT_RECORDED = 7
"""The exit code after an orderly stop, as that of `raptor start`, if something that had ended could not be recorded."""

UNRECORDED = "unrecorded"
"""The file, beside those of the commands, in which a node says what that is."""


class Place(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    """Where a node lives, and as what."""

    home: str
    commands: str  # where it tells what it asked for
    store: str | None = None
    lease: str | None = None  # of its queue; None: the usual
    grace_s: float = 30.0
    schedules: bool = True  # whether it has schedulers, or tasks alone
    own: Own | None = None  # services of a user, instead of those of the torture


def live(place: Place, ready: Callable[[], None]) -> int:
    """-> the exit code: 0 after an orderly stop, and NOT_RECORDED."""
    return SystemClock().run(lambda: _live(place, ready))


def settings(place: Place) -> Config:
    # Nothing is forgotten: the verdict is on all of it.
    flags = {
        "home": place.home, "store": place.store, "worker.processors": LANES, "retention.age": "30d",
        "retention.keep": 1_000_000, "retention.tasks": "30d",
    }  # fmt: skip
    if place.own is not None:
        return own.settings(place.own, flags)
    # Neither a project that this happens to be in nor the user's settings have a say.
    return Config.load({**flags, "config": os.devnull}, environ={}, user_file=Path(os.devnull))


async def _live(place: Place, ready: Callable[[], None]) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    config, services = settings(place), list[Given]() if place.own is not None else SERVICES
    if place.own is not None:
        own.note_all_runs()
    async with Node(config=config, services=services, grace_s=place.grace_s) as node:
        if place.lease is not None:
            await node.call("queue", name="default", lease=place.lease)
        if place.schedules:
            wanted = SCHEDULES if place.own is None else own.schedules(config, node.site.catalogue.values())
            for name, (interval, names) in wanted.items():
                await _schedule(node, name, interval, names, Path(place.commands))
        ready()
        ends = [asyncio.ensure_future(node.root.wait()), asyncio.ensure_future(stop.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        gave_up = ends[0].done()
        for end in ends:
            end.cancel()
    for one in node.unrecorded:
        said = Unrecorded(life=int(os.environ[LIFE]), run=one.run, at=now())
        append(Path(place.commands).with_name(UNRECORDED), said)
    return 1 if gave_up else NOT_RECORDED if node.unrecorded else 0


async def _schedule(node: Node, name: str, interval: str | None, services: Sequence[str], commands: Path) -> None:
    """Have a scheduler run, with its services: after an unclean end it comes back by itself, as it was."""
    await node.site.refresh()
    known, at = (await node.site.definitions()).get(name), now()
    if node.scheduler(name) is None:
        await node.start(name, interval)
    if known is None or not known.services:
        await node.schedule(name, services)
    found = (await node.site.definitions())[name]
    if found != known:
        append(commands, Command(what="define", at=at, acked=now(), definition=found))
