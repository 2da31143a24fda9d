"""Rights and presences of a store that has one process: both end with it, so they are kept in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from raptor.errors import StaleLease
from raptor.rows import LEASE_S
from raptor.state.base import BEAT_S, Grant, Presence, Right
from raptor.state.news import LocalWatch, News

DAY_S = 86400.0
"""For how long a node that is gone is still told of."""

NOBODY = ""


class Rights:
    """Who holds which right, and which nodes have shown themselves."""

    def __init__(self, *, exclusive: bool = True) -> None:
        self._exclusive = exclusive
        self._grants: dict[str, Grant] = {}  # also of rights that were given back: their fence must never fall
        self._nodes: dict[str, Presence] = {}
        self._severed: set[str] = set()
        self._now = 0.0  # the latest that was handed in

    def claim(self, keys: Sequence[str], owner: str, now: float, lease_s: float) -> dict[str, Grant]:
        self._now = max(self._now, now)
        for key in keys:
            grant = self._grants.get(key, Grant(NOBODY, 0, 0.0))
            if grant.owner == owner:
                self._grants[key] = grant._replace(lease=now + lease_s)
            elif not self._is_held(grant, owner, now):
                self._grants[key] = Grant(owner, grant.fence + 1, now + lease_s)
        return {key: self._grants[key] for key in keys}

    def release(self, rights: Sequence[Right], owner: str) -> None:
        for key, fence in rights:
            grant = self._grants.get(key)
            if grant is not None and grant.owner == owner and grant.fence == fence:
                self._grants[key] = grant._replace(owner=NOBODY)

    def holders(self, prefix: str) -> dict[str, Grant]:
        found = {key: grant for key, grant in self._grants.items() if key.startswith(prefix)}
        return {key: grant for key, grant in sorted(found.items()) if self._is_held(grant, NOBODY, self._now)}

    def check(self, rights: Sequence[Right]) -> None:
        """StaleLease unless all of them are held as it says."""
        for key, fence in rights:
            grant = self._grants.get(key)
            if grant is None or grant.owner == NOBODY or grant.fence != fence:
                raise StaleLease(key)

    def appear(self, presence: Presence, now: float) -> list[Presence]:
        self._now = max(self._now, now)
        if self._exclusive:
            self._nodes.clear()
        self._severed.discard(presence.owner)
        kept = tuple(right for right in presence.rights if self._holds(presence.owner, right))
        for key, _ in kept:
            self._grants[key] = self._grants[key]._replace(lease=now + LEASE_S)
        self._nodes[presence.owner] = msgspec.structs.replace(presence, seen=now, rights=kept)
        return self.nodes(now)

    def nodes(self, now: float) -> list[Presence]:
        shown = [node for node in self._nodes.values() if now - node.seen <= DAY_S]
        shown.sort(key=lambda node: (node.started, node.owner))
        return [msgspec.structs.replace(node, alive=not self._is_gone(node.owner, now)) for node in shown]

    def vanish(self, owner: str) -> None:
        self._nodes.pop(owner, None)
        for key, grant in self._grants.items():
            if grant.owner == owner:
                self._grants[key] = grant._replace(owner=NOBODY)

    def sever(self, owner: str) -> None:
        """As if the connection of a node were gone."""
        self._severed.add(owner)

    def _holds(self, owner: str, right: Right) -> bool:
        grant = self._grants.get(right.key)
        return grant is not None and (grant.owner, grant.fence) == (owner, right.fence)

    def _is_held(self, grant: Grant, asking: str, now: float) -> bool:
        """Whether somebody alive keeps it from whoever asks."""
        if grant.owner == NOBODY or (self._exclusive and asking != NOBODY):
            return False
        return grant.lease >= now and not self._is_gone(grant.owner, now)

    def _is_gone(self, owner: str, now: float) -> bool:
        """One that never showed itself keeps what it has until its lease ends."""
        node = self._nodes.get(owner)
        return node is not None and now - node.seen > (BEAT_S if owner in self._severed else LEASE_S)


class KeepsRights:
    """The verbs on rights and presences, for a store that has one process."""

    _rights: Rights
    _news: News

    async def claim(self, keys: Sequence[str], *, owner: str, now: float, lease_s: float) -> dict[str, Grant]:
        return self._rights.claim(keys, owner, now, lease_s)

    async def release(self, rights: Sequence[Right], *, owner: str) -> None:
        self._rights.release(rights, owner)

    async def holders(self, prefix: str) -> dict[str, Grant]:
        return self._rights.holders(prefix)

    async def appear(self, presence: Presence, *, now: float) -> list[Presence]:
        return self._rights.appear(presence, now)

    async def nodes(self, *, now: float) -> list[Presence]:
        return self._rights.nodes(now)

    async def vanish(self, owner: str) -> None:
        self._rights.vanish(owner)

    def watch(self) -> LocalWatch:
        return self._news.watch()


class RightsToRead(ABC):
    """What a reader may ask; the rest it is refused."""

    async def claim(self, keys: Sequence[str], *, owner: str, now: float, lease_s: float) -> dict[str, Grant]:
        self._refuse()

    async def release(self, rights: Sequence[Right], *, owner: str) -> None:
        self._refuse()

    async def holders(self, prefix: str) -> dict[str, Grant]:
        return {}

    async def appear(self, presence: Presence, *, now: float) -> list[Presence]:
        self._refuse()

    async def nodes(self, *, now: float) -> list[Presence]:
        return []

    async def vanish(self, owner: str) -> None:
        self._refuse()

    def watch(self) -> LocalWatch:
        self._refuse()

    @abstractmethod
    def _refuse(self) -> NoReturn: ...
