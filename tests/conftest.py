"""Async tests run on the clock that they ask for, a virtual one unless they say otherwise."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import settings

from raptor.clock import Clock, SystemClock, VirtualClock

# Nothing here is timed: a busy machine must not turn a test red.
settings.register_profile("raptor", deadline=None)
settings.load_profile("raptor")


@pytest.fixture
def clock() -> Clock:
    """Virtual time: a test that waits an hour takes a moment."""
    return VirtualClock()


@pytest.fixture
def system_clock() -> Clock:
    """Real time, for what only threads and real sleeps can show."""
    return SystemClock()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    # Also one that only another fixture asked for.
    clock = next((value for value in pyfuncitem.funcargs.values() if isinstance(value, Clock)), None) or VirtualClock()
    stray: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
        await test(**arguments)

    clock.run(main)
    assert not stray, f"the event loop was left with {stray}"
    return True
