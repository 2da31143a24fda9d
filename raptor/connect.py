"""Reaching a state directory: through the node that runs on it, as its owner for a moment, or only to look.

Callers never branch: `connect(config).call(command, ...)` finds the way that the command needs, and imports no more
than that way takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from raptor import commands
from raptor.client import ask, is_listening
from raptor.errors import NotRunning

if TYPE_CHECKING:
    from raptor.config import Config
    from raptor.service import Given


class Connection:
    """Performs commands on a state directory, from a synchronous program."""

    def __init__(self, config: Config, services: Iterable[Given] = ()) -> None:
        self._config = config
        self._given = list(services)

    @property
    def running(self) -> bool:
        return is_listening(self._config.home)

    def call(self, command: str, **params: Any) -> dict[str, Any]:
        """Perform a command: on the running node if there is one, else by ourselves."""
        try:
            return ask(self._config.home, command, params)
        except NotRunning:
            if self._needs(command) == "node":
                raise
        return self.call_alone(command, **params)

    def call_alone(self, command: str, **params: Any) -> dict[str, Any]:
        """Perform a command by ourselves, where it is known that no node runs."""
        needs = self._needs(command)
        if needs == "node":
            raise NotRunning()
        if needs == "look" and self._config.store is None:
            from raptor.glance import look

            return look(self._config, self._given, command, params)
        from raptor.alone import Alone  # the whole engine

        return Alone(self._config, self._given).call(command, params, write=needs == "write")

    def _needs(self, command: str) -> commands.Needs:
        found = commands.find(command)
        return found.needs if self._config.store is None else found.shared or found.needs


def connect(config: Config, services: Iterable[Given] = ()) -> Connection:
    return Connection(config, services)
