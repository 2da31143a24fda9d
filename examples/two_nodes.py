"""Two nodes on one PostgreSQL: one runs the scheduler, the other stands by and takes over when it is killed.

    python examples/two_nodes.py postgresql://user@host/database      (or RAPTOR_STORE)

It starts two processes, waits until a tick has run, ends the owner with kill -9, and shows who runs it then: a standby
takes over when the session of the owner is gone and its heartbeat is stale, within about ten seconds.
"""

import asyncio
import os
import signal
import subprocess
import sys

import psycopg

from raptor import Node, service

TICKS = "CREATE TABLE IF NOT EXISTS two_nodes_ticks (pid int NOT NULL, at timestamptz NOT NULL DEFAULT now())"


@service(every="200ms")
async def tick() -> None:
    async with await psycopg.AsyncConnection.connect(plain(STORE)) as connection:
        await connection.execute("INSERT INTO two_nodes_ticks (pid) VALUES (%s)", (os.getpid(),))


async def run_node() -> None:
    """What each of the two processes does: the one that is second stands by."""
    async with Node(services=[tick], store=STORE, listen=False) as node:
        await node.schedule("main", ["tick"])
        await node.start("main")
        await asyncio.Event().wait()  # until it is ended


def ticking(connection: psycopg.Connection, but: int = 0) -> int:
    """The process that ran the newest tick, when there is one of another than `but`."""
    for _ in range(600):
        row = connection.execute(
            "SELECT pid FROM two_nodes_ticks WHERE pid <> %s ORDER BY at DESC LIMIT 1", (but,)
        ).fetchone()
        if row is not None:
            return int(row[0])
        connection.execute("SELECT pg_sleep(0.1)")
    sys.exit("nobody ran it for a minute")


def plain(address: str) -> str:
    """What psycopg takes: without the options that are Raptor's."""
    from raptor.state.postgres.address import read

    return read(address).url


def main() -> None:
    with psycopg.connect(plain(STORE), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS two_nodes_ticks")
        connection.execute(TICKS.encode())
        nodes = [subprocess.Popen([sys.executable, __file__, "--node"], env={**os.environ, "RAPTOR_STORE": STORE})]
        nodes.append(subprocess.Popen(nodes[0].args, env={**os.environ, "RAPTOR_STORE": STORE}))
        try:
            owner = ticking(connection)
            print(f"one of two nodes runs the scheduler: {owner in [node.pid for node in nodes]}", flush=True)
            os.kill(owner, signal.SIGKILL)
            print("the owner is killed", flush=True)
            heir = ticking(connection, but=owner)
            print(f"the other has taken over: {heir != owner}", flush=True)
        finally:
            for node in nodes:
                node.kill()
                node.wait()
            connection.execute("DROP TABLE two_nodes_ticks")


STORE = os.environ.get("RAPTOR_STORE", "")
if __name__ == "__main__":
    if sys.argv[1:] == ["--node"]:
        asyncio.run(run_node())
    elif not (STORE := sys.argv[1] if len(sys.argv) > 1 else STORE):
        sys.exit("name the store: python examples/two_nodes.py postgresql://user@host/database")
    else:
        main()
