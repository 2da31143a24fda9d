"""The suite on a real PostgreSQL."""

from __future__ import annotations

import pytest

from raptor.state.base import Store
from raptor.testing.conformance import (
    TestBells,
    TestCancel,
    TestCounts,
    TestCrowd,
    TestDrop,
    TestExtend,
    TestFind,
    TestKeys,
    TestLapse,
    TestLedger,
    TestLimits,
    TestManyOwners,
    TestModel,
    TestNews,
    TestPresence,
    TestPut,
    TestRevive,
    TestRights,
    TestSettle,
    TestShed,
    TestSuccessors,
    TestSurvival,
    TestTables,
    TestTake,
)
from raptor.testing.conformance.survival import OpenAgain
from tests.postgres import Stores

__all__ = [
    "TestBells",
    "TestCancel",
    "TestCounts",
    "TestCrowd",
    "TestDrop",
    "TestExtend",
    "TestFind",
    "TestKeys",
    "TestLapse",
    "TestLedger",
    "TestLimits",
    "TestManyOwners",
    "TestModel",
    "TestNews",
    "TestPresence",
    "TestPut",
    "TestRevive",
    "TestRights",
    "TestSettle",
    "TestShed",
    "TestSuccessors",
    "TestSurvival",
    "TestTables",
    "TestTake",
]


@pytest.fixture
def store(pg_stores: Stores) -> Store:
    return pg_stores.store


@pytest.fixture
def open_again(pg_stores: Stores) -> OpenAgain:
    return pg_stores.open_again
