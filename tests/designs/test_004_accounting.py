"""Design 004: every planned slot of every service has exactly one line in the ledger, or is open; none is early."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.clock import VirtualClock
from raptor.task import Slot
from tests.designs.world import TEN, World

services = st.lists(
    st.fixed_dictionaries(
        {
            "every_s": st.sampled_from([5.0, 7.0, 13.0]),
            "takes": st.sampled_from([0.0, 1.0, 8.0]),
            "failing": st.sets(st.integers(0, 20)),
            "max_attempts": st.sampled_from([None, 1, 2]),
            "missed": st.sampled_from(["once", "skip", "all"]),
            "on_crash": st.sampled_from(["rerun", "skip"]),
            "overlap": st.sampled_from(["skip", "queue"]),
            "anchor": st.sampled_from(["slot", "grid"]),
        }
    ),
    min_size=1,
    max_size=3,
)

events = st.lists(
    st.tuples(
        st.sampled_from(
            ["crash", "kill", "pause main", "resume main", "pause s0", "resume s0", "stop", "run s0", "wait"]
        ),
        st.floats(0.1, 30).map(lambda seconds: round(seconds, 1)),
    ),
    max_size=8,
)


async def live(world: World, interval: str, story: list[tuple[str, float]]) -> None:
    await world.start(interval=interval)
    for event, seconds in story:
        await world.clock.sleep(seconds)
        match event.split():
            case ["crash"]:
                await world.crash()
                await world.clock.sleep(3 * seconds)
                await world.boot()
            case ["kill"]:
                ref = world.node.scheduler("main")
                if ref is not None:
                    ref.kill()
            case ["pause", name]:
                await world.node.pause(name)
            case ["resume", name]:
                await world.node.resume(name)
            case ["stop"]:
                await world.node.stop("main")
                await world.clock.sleep(seconds)
                await world.node.start("main")
            case ["run", name]:
                if name not in world.node.site.workshop.timetable.claims:
                    await world.node.run(name)
            case _:
                pass
    await world.clock.sleep(100)
    await world.node.stop("main")


async def ledger(world: World, service: str) -> list[Slot]:
    """The lines on disk, and those that the journal of an unfinished cycle will become."""
    slots = {slot.planned: slot for slot in await world.slots(service)}
    state = await world.state()
    for result in () if state is None else state.results:
        own = [*result.closed]
        if result.verdict in ("done", "failed"):
            run = result.run
            own.append(
                Slot(service=run.service, planned=run.planned, last=run.planned, verdict=result.verdict, recorded=0.0)
            )
        for slot in own:
            if slot.service == service:
                slots.setdefault(slot.planned, slot)
    return sorted(slots.values(), key=lambda slot: slot.planned)


async def check(world: World, every_s: float, name: str, *, exact: bool) -> None:
    lines = await ledger(world, name)
    row = (await world.image.load("service_timing")).get(name)
    if row is None:
        assert lines == []
        return
    row = await world.row(name)
    pending = row.next_due if row.open is None else row.open
    for slot in lines:
        assert slot.last == pytest.approx(slot.planned + (slot.count - 1) * every_s), slot
    ends = [*((slot.planned, slot.last) for slot in lines), (pending, pending)]
    for (_, last), (planned, _) in pairwise(ends):
        if exact:  # nothing between two lines, nothing twice
            assert planned == pytest.approx(last + every_s), (lines, row)
        else:  # counted from the check that found it due
            assert every_s - 1e-6 <= planned - last < 2 * every_s + 1e-6, (lines, row)
    by_scheduler = [line for line in world.runs(name) if line.scheduler is not None]
    assert all(line.start >= line.planned for line in by_scheduler)
    done = [slot.planned for slot in lines if slot.verdict == "done"]
    finished = [line for line in by_scheduler if line.end is not None]
    assert set(done) <= {line.planned for line in finished}
    assert all(a.end <= b.start for a, b in pairwise(finished) if a.end is not None)


def prove(interval: str, options: list[dict[str, Any]], story: list[tuple[str, float]]) -> None:
    clock = VirtualClock(start=TEN)
    world = World(clock, grace_s=5.0)
    for n, chosen in enumerate(options):
        rest = dict(chosen)
        failing = rest.pop("failing")
        if rest["missed"] == "all":
            rest["missed_limit"] = 3
        world.service(f"s{n}", rest.pop("takes"), lambda n, failing=failing: n in failing, **rest)

    async def main() -> None:
        await live(world, interval, story)
        for service in world.services:
            assert service.every_s is not None
            await check(world, service.every_s, service.name, exact=interval == "auto")

    clock.run(main)


@pytest.mark.spec("004-16", "004-22", "X4-3", "X4-4")
@settings(max_examples=150, deadline=None)
@given(services, events)
def test_every_slot_is_accounted_for_exactly_once_by_a_scheduler_without_a_beat(
    options: list[dict[str, Any]], story: list[tuple[str, float]]
) -> None:
    prove("auto", options, story)


@pytest.mark.spec("004-16", "004-22", "X4-3", "X4-4")
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["2s", "5s", "9s"]), services, events)
def test_every_slot_is_accounted_for_exactly_once_by_a_scheduler_that_checks(
    interval: str, options: list[dict[str, Any]], story: list[tuple[str, float]]
) -> None:
    prove(interval, options, story)
