"""The cheapest way to a state directory: the running node's socket first, and raptor.connect only without one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raptor.client import ask
from raptor.errors import NotRunning, RefusedState
from raptor.state.lock import is_alive, owner

if TYPE_CHECKING:
    from raptor.config import Config

PATIENCE_S, PAUSE_S = 5.0, 0.05  # for a node that is just starting


def owner_pid(home: Path) -> int | None:
    """The process that owns the directory, by its lock file; it may be dead."""
    try:
        found = owner(home / "lock")
    except OSError:
        return None
    return None if found is None else found.pid


def call(config: Config, command: str, **params: Any) -> dict[str, Any]:
    """Perform a command: on the running node if there is one, else by ourselves."""
    for patience in range(int(PATIENCE_S / PAUSE_S), -1, -1):
        try:
            return ask(config.home, command, params)
        except NotRunning:
            from raptor.connect import connect
        try:
            return connect(config).call_alone(command, **params)
        except RefusedState as refused:
            # A state directory that is just being made looks absent, or damaged, to whoever reads it.
            pid = owner_pid(config.home)
            if not patience or refused.kind not in ("absent", "damaged") or pid is None or not is_alive(pid):
                raise
            time.sleep(PAUSE_S)
    raise AssertionError("the last round returns or raises")
