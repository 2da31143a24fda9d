"""The scheduler's days pass in virtual time, from ten o'clock on a Monday."""

from __future__ import annotations

import pytest

from raptor.clock import Clock, VirtualClock
from tests.designs.many_world import ManyWorld
from tests.designs.queue_world import QueueWorld
from tests.designs.world import TEN, World


@pytest.fixture
def clock() -> Clock:
    return VirtualClock(start=TEN)


@pytest.fixture
def world(clock: VirtualClock) -> World:
    return World(clock)


@pytest.fixture
def queues(clock: VirtualClock) -> QueueWorld:
    return QueueWorld(clock)


@pytest.fixture
def many(clock: VirtualClock) -> ManyWorld:
    return ManyWorld(clock)
