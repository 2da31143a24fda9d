"""What the nemesis tells of a life that it ends, in virtual time and with lives that are none."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from raptor.clock import VirtualClock
from raptor.testing.checker.history import Life
from raptor.testing.torture.lives import Lived, Lives
from raptor.testing.torture.nemesis import GRACE_S, Nemesis
from raptor.testing.torture.node import NOT_RECORDED, Place
from raptor.testing.torture.plan import WEIGHTS, Deed, Plan
from raptor.testing.torture.round import life_of

PLACE = Place(home="/nowhere/home0", commands="/nowhere/commands")
PATIENCE_S = PLACE.grace_s + GRACE_S


class Stand:
    """In the place of lives: each is ready at once, takes a while to stop, and ends with a code then."""

    def __init__(self, clock: VirtualClock, stop_s: float, code: int = 0) -> None:
        self._clock = clock
        self._stop_s = stop_s
        self._code = code
        self.all: list[Lived] = []
        self.told: dict[int, float] = {}  # when each life was told to stop

    def begin(self, work: Place, env: dict[str, str] | None = None) -> Lived:
        lived = Lived(len(self.all), work, Path("/nowhere/log"), pid=1, began=self._clock.now())
        lived.was_ready = True
        lived.ready.set()
        self.all.append(lived)
        return lived

    def signal(self, lived: Lived, number: int) -> None:
        if number == signal.SIGKILL:
            self._end(lived, -number)
        elif number == signal.SIGTERM:
            self.told[lived.life] = self._clock.now()
            asyncio.get_running_loop().call_later(self._stop_s, self._end, lived, self._code)

    def _end(self, lived: Lived, code: int) -> None:
        if not lived.over.is_set():
            lived.code, lived.ended = code, self._clock.now()
            lived.over.set()


class Server:
    """One that takes no time to be killed and to start."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


def tormented(
    *deeds: Deed,
    stop_s: float,
    still_until: float = 0.0,
    code: int = 0,
    store: str | None = None,
    server: Server | None = None,
    server_s: float = 1.0,
) -> tuple[Nemesis, Stand, list[Life]]:
    """Lives to which some things are done again and again, for a minute; the machine may stand still at first."""
    clock = VirtualClock(start=0.0)
    stand = Stand(clock, stop_s, code)
    place = msgspec.structs.replace(PLACE, store=store)
    plan = Plan(
        seed=1, nodes=2, lease_s=None, rights_s=None, mean_s=0.3,
        weights={**dict.fromkeys(WEIGHTS, 0.0), **dict.fromkeys(deeds, 1.0)}, stop_s=(1, 1), server_s=server_s,
    )  # fmt: skip

    async def seen(lived: Lived) -> None: ...

    places = [place, place] if store is not None else [place]

    def stood_still(since: float, until: float) -> bool:
        return max(since, 0.0) < still_until

    nemesis = Nemesis(plan, cast("Lives", stand), places, clock, seen, server, stood_still)

    async def torment() -> None:
        end = clock.monotonic() + 60
        await nemesis.torment(lambda: clock.monotonic() > end)

    clock.run(torment)
    return nemesis, stand, [life_of(lived, place) for lived in stand.all]


def test_an_orderly_stop_that_a_kill_broke_off_is_told_with_its_beginning() -> None:
    nemesis, stand, lives = tormented("cut", stop_s=100.0)
    broken_off = [life for life in lives if life.life in stand.told]
    assert len(broken_off) > 20
    assert all(life.killed and life.ended is not None for life in broken_off)
    assert {life.life: life.stopping for life in broken_off} == stand.told
    assert nemesis.counts["kills"] == len(nemesis.faults) == len([life for life in lives if life.ended is not None])
    assert nemesis.complaints == []


def test_one_that_stopped_before_the_kill_was_not_killed() -> None:
    nemesis, stand, lives = tormented("cut", stop_s=0.0)
    stopped = [life for life in lives if life.life in stand.told]
    assert len(stopped) > 20
    assert not any(life.killed for life in stopped)
    assert nemesis.counts["terms"] == len(stopped)
    assert nemesis.complaints == []


@pytest.mark.parametrize("stop_s", [0.05, 0.3])
def test_some_stops_are_broken_off_and_some_are_not(stop_s: float) -> None:
    _, stand, lives = tormented("cut", stop_s=stop_s)
    ways = {life.killed for life in lives if life.life in stand.told}
    assert ways == {True, False}


def test_one_that_does_not_stop_in_time_is_complained_about() -> None:
    nemesis, _, _ = tormented("term", stop_s=PATIENCE_S + 10)
    assert nemesis.complaints != []
    assert "did not stop within" in nemesis.complaints[0]


def test_one_that_does_not_stop_while_the_machine_stands_still_has_more_time() -> None:
    nemesis, _, lives = tormented("term", stop_s=PATIENCE_S + 10, still_until=60.0)
    assert nemesis.complaints == []
    assert [life for life in lives if life.stopping is not None and not life.killed] != []


def test_one_that_has_had_its_time_since_then_has_not() -> None:
    nemesis, _, _ = tormented("term", stop_s=3 * PATIENCE_S, still_until=1.0)
    assert nemesis.complaints != []


def test_one_that_says_that_it_could_not_record_something_was_not_killed() -> None:
    _, stand, lives = tormented("term", stop_s=0.1, code=NOT_RECORDED, store="postgresql://a", server=Server())
    stopped = [life for life in lives if life.life in stand.told]
    assert stopped
    assert not any(life.killed for life in stopped)


@pytest.mark.parametrize(
    ("options", "is_believed"),
    [
        ({"server": Server(), "server_s": -60.0}, True),  # it is killed again as soon as it has begun
        ({"server": Server(), "server_s": 50.0}, False),
        ({"still_until": 100.0}, True),
        ({}, False),
    ],
    ids=["the server was killed", "long ago", "the machine stood still", "nothing was done to it"],
)
def test_one_that_could_not_record_something_is_believed_if_something_kept_it_from_that(
    options: dict[str, Any], is_believed: bool
) -> None:
    nemesis, _, _ = tormented("term", stop_s=0.1, code=NOT_RECORDED, store="postgresql://a", **options)
    assert (nemesis.complaints == []) == is_believed
    assert (nemesis.counts["unrecorded"] > 20) == is_believed


@pytest.mark.parametrize("store", ["postgresql://a", None])
def test_one_that_stands_still_may_hold_a_lock_in_a_store_that_is_shared(store: str | None) -> None:
    nemesis, _, _ = tormented("term", "stop", "stop", stop_s=0.1, code=NOT_RECORDED, store=store)
    believed = nemesis.counts["unrecorded"]
    assert bool(believed) == (store is not None)
    assert nemesis.complaints != []  # of those that stopped when nobody stood still
