"""Raptor runs services on time and keeps them running, the way Erlang/OTP would.

The names below are the public ones; each is imported when it is first used, so that a command that needs
little starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raptor.actor import Actor as Actor
    from raptor.childspec import Backoff as Backoff
    from raptor.childspec import ChildSpec as ChildSpec
    from raptor.clock import SystemClock as SystemClock
    from raptor.clock import VirtualClock as VirtualClock
    from raptor.dynamic import DynamicSupervisor as DynamicSupervisor
    from raptor.embedded import running as running
    from raptor.errors import RaptorError as RaptorError
    from raptor.exits import Exit as Exit
    from raptor.node import Node as Node
    from raptor.ref import Ref as Ref
    from raptor.resources import resource as resource
    from raptor.runners import Context as Context
    from raptor.runtime import Runtime as Runtime
    from raptor.service import service as service
    from raptor.supervisor import Supervisor as Supervisor
    from raptor.within import put_in as put_in

__version__ = "0.1.0"

_HOMES = {
    "Actor": "actor",
    "Backoff": "childspec",
    "ChildSpec": "childspec",
    "Context": "runners",
    "DynamicSupervisor": "dynamic",
    "Exit": "exits",
    "Node": "node",
    "RaptorError": "errors",
    "Ref": "ref",
    "Runtime": "runtime",
    "Supervisor": "supervisor",
    "SystemClock": "clock",
    "VirtualClock": "clock",
    "put_in": "within",
    "resource": "resources",
    "running": "embedded",
    "service": "service",
}

__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
