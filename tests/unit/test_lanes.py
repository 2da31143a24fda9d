"""Lanes: room for so many runs at a time."""

from __future__ import annotations

import asyncio

import pytest

from raptor.turn import Lanes


async def test_there_is_room_again_as_soon_as_one_of_them_ends() -> None:
    lanes, ends = Lanes(2), [asyncio.Event() for _ in range(3)]
    assert await lanes.free() == 2
    for end in ends[:2]:
        lanes.start(_until(end))
    waiting = asyncio.ensure_future(lanes.free())
    await asyncio.sleep(0)
    assert not waiting.done()
    ends[1].set()
    assert await asyncio.wait_for(waiting, 5) == 1
    lanes.start(_until(ends[2]))
    finishing = asyncio.ensure_future(lanes.finish())
    ends[0].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not finishing.done()
    ends[2].set()
    await asyncio.wait_for(finishing, 5)


async def test_a_lane_that_fails_makes_whoever_waits_fail_though_others_run() -> None:
    lanes, end = Lanes(3), asyncio.Event()
    lanes.start(_until(end))
    lanes.start(_fail())
    with pytest.raises(ValueError, match="a broken lane"):
        await asyncio.wait_for(lanes.finish(), 5)
    with pytest.raises(ValueError, match="a broken lane"):
        await lanes.free()
    end.set()


async def _until(end: asyncio.Event) -> None:
    await end.wait()


async def _fail() -> None:
    raise ValueError("a broken lane")
