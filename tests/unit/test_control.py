"""The far end of the control socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from raptor.client import Refused, Unanswered, read_answer
from raptor.clock import SystemClock
from raptor.control import Control
from raptor.errors import RefusedState
from raptor.runtime import Runtime

REQUEST = b'{"jsonrpc": "2.0", "id": 1, "method": "queues", "params": {}}\n'

Perform = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


async def asked(clock: SystemClock, perform: Perform, *, until: asyncio.Event, ends: bool) -> bytes:
    """What is answered to one request; the door may be closed when it has come so far."""
    with TemporaryDirectory() as folder:
        ref = await Runtime(clock).start(Control, Path(folder), perform)
        assert ref is not None
        reader, writer = await asyncio.open_unix_connection(os.path.join(folder, "control.sock"))
        writer.write(REQUEST)
        await until.wait()
        if ends:
            ref.exit()
            await ref.wait()
        until.clear()
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        if not ends:
            ref.exit()
            await ref.wait()
        return line


@pytest.mark.parametrize(
    ("error", "code"), [(RefusedState("closed", "state", "was closed", "open it again"), 6), (KeyError("gone"), 1)]
)
async def test_what_fails_because_the_node_ends_is_no_answer(
    system_clock: SystemClock, error: Exception, code: int
) -> None:
    asking = asyncio.Event()

    async def perform(command: str, params: dict[str, Any]) -> dict[str, Any]:
        asking.set()
        while asking.is_set():
            await asyncio.sleep(0)
        raise error

    with pytest.raises(Unanswered):
        read_answer(await asked(system_clock, perform, until=asking, ends=True))
    asking.clear()
    with pytest.raises(Refused) as refused:
        read_answer(await asked(system_clock, perform, until=asking, ends=False))
    assert refused.value.code == code


async def test_what_was_done_is_answered_though_the_node_ends(system_clock: SystemClock) -> None:
    asking = asyncio.Event()

    async def perform(command: str, params: dict[str, Any]) -> dict[str, Any]:
        asking.set()
        while asking.is_set():
            await asyncio.sleep(0)
        return {"done": command}

    assert read_answer(await asked(system_clock, perform, until=asking, ends=True)) == {"done": "queues"}
