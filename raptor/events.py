"""What happened, told once and heard by whoever subscribed: logs, metrics, the dashboard."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raptor.clock import Clock

Listener = Callable[["Event"], object]

_log = logging.getLogger("raptor.events")


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: a name, a wall time and its facts."""

    name: str
    at: float
    facts: Mapping[str, object]


class Events:
    """Emitting costs next to nothing while nobody listens, and never waits for or fails with a listener."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: tuple[Subscription, ...] = ()
        self._heard: dict[str, bool] = {}

    def heard(self, name: str) -> bool:
        """Whether anybody listens to such events: a guard for facts that are costly to gather."""
        known = self._heard.get(name)
        if known is None:
            known = self._heard[name] = any(subscription.wants(name) for subscription in self._subscriptions)
        return known

    def emit(self, name: str, /, **facts: object) -> None:
        """Tell what happened. Any thread may."""
        if not self.heard(name):
            return
        event = None
        for subscription in self._subscriptions:
            if subscription.wants(name):
                event = event or Event(name, self._clock.now(), facts)
                subscription.offer(event)

    def subscribe(self, listener: Listener, *names: str, limit: int = 10_000) -> Subscription:
        """Have `listener` called on this event loop, soon after each event (of these names, or of any).

        Past `limit` waiting events the oldest are dropped and counted.
        """
        subscription = Subscription(listener, frozenset(names), limit, self._remove)
        self._subscriptions = (*self._subscriptions, subscription)
        self._heard = {}
        return subscription

    def _remove(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(other for other in self._subscriptions if other is not subscription)
        self._heard = {}


class Subscription:
    """One listener and the events that wait for it."""

    def __init__(
        self, listener: Listener, names: frozenset[str], limit: int, remove: Callable[[Subscription], None]
    ) -> None:
        self.dropped = 0
        self.failed = 0
        self._listener = listener
        self._names = names
        self._waiting: deque[Event] = deque(maxlen=limit)
        self._remove = remove
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._armed = False

    def wants(self, name: str) -> bool:
        return not self._names or name in self._names

    def offer(self, event: Event) -> None:
        if len(self._waiting) == self._waiting.maxlen:
            self.dropped += 1
        self._waiting.append(event)
        if not self._armed:
            self._armed = True
            self._arm()

    def close(self) -> None:
        """Hear no more; what waits is not delivered."""
        self._remove(self)
        self._waiting.clear()

    def _arm(self) -> None:
        try:
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._deliver)
            else:
                self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self.close()  # the loop has closed: there is nobody left to tell

    def _deliver(self) -> None:
        self._armed = False
        for _ in range(len(self._waiting)):
            if not self._waiting:
                return  # closed by its own listener
            event = self._waiting.popleft()
            try:
                self._listener(event)
            except BaseException:
                self.failed += 1
                _log.exception("a listener failed on %r", event.name)
