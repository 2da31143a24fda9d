"""Who keeps a queue on PostgreSQL besides Raptor, and why one of them cannot be measured here."""

import importlib.util
from collections.abc import Mapping
from contextlib import ExitStack

from benchmarks.peers import Peer, peer
from benchmarks.postgres.node_peers import no_node, node_peers
from benchmarks.postgres.server import Databases
from benchmarks.report import GRAPHILE, PG_BOSS, PGQUEUER, PROCRASTINATE

MODULES = {PGQUEUER: "pgqueuer", PROCRASTINATE: "procrastinate"}
PROGRAMS = {GRAPHILE: "graphile", PG_BOSS: "pgboss"}


def absent(quick: bool) -> dict[str, str]:
    """Who is not there, and why."""
    found = {who: "run make bench" for who, module in MODULES.items() if not importlib.util.find_spec(module)}
    reason = no_node(quick)
    return found | ({} if reason is None else dict.fromkeys(PROGRAMS, reason))


def present(
    databases: Databases, stack: ExitStack, missing: Mapping[str, str], programs: bool = True
) -> dict[str, Peer]:
    """One process of each, on a database of its own."""
    found: dict[str, Peer] = {}
    for who, module in MODULES.items():
        if who not in missing:
            found[who] = stack.enter_context(peer(f"benchmarks.postgres.{module}_peer", databases.new(module)))
    for who, name in PROGRAMS.items() if programs else ():
        if who not in missing:
            (found[who],) = stack.enter_context(node_peers(name, databases.new(name)))
    return found
