"""One suite for every store: a backend is done when it passes, with the same answers as the others.

Import these classes into a test file that gives the fixtures they take: `store`, a new and empty one, and, for a store
that survives, `open_again`, which closes the store of the test and opens it anew. TestManyOwners is for a store that
several nodes use at a time. Most tests are coroutines: run them with a plugin such as pytest-asyncio, in its auto mode.
"""

import pytest

for _name in (
    "tables",
    "sample",
    "putting",
    "taking",
    "settling",
    "ending",
    "looking",
    "survival",
    "machine",
    "rights",
):
    pytest.register_assert_rewrite(f"{__name__}.{_name}")

from raptor.testing.conformance.ending import TestCancel, TestDrop, TestRevive, TestShed  # noqa: E402
from raptor.testing.conformance.looking import TestBells, TestCounts, TestFind  # noqa: E402
from raptor.testing.conformance.machine import TestModel  # noqa: E402
from raptor.testing.conformance.putting import TestKeys, TestPut  # noqa: E402
from raptor.testing.conformance.rights import TestManyOwners, TestNews, TestPresence, TestRights  # noqa: E402
from raptor.testing.conformance.settling import TestExtend, TestLapse, TestSettle, TestSuccessors  # noqa: E402
from raptor.testing.conformance.survival import TestSurvival  # noqa: E402
from raptor.testing.conformance.tables import TestLedger, TestTables  # noqa: E402
from raptor.testing.conformance.taking import TestCrowd, TestLimits, TestTake  # noqa: E402

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
