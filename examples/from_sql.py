"""Tasks from plain SQL: whatever speaks to PostgreSQL puts them, and a node runs them.

    python examples/from_sql.py postgresql://user@host/database      (or RAPTOR_STORE)

The SQL below is what psql, another language or a trigger would send. The database checks it and wakes the workers.
"""

import asyncio
import os
import sys

import psycopg

from raptor import Node, service
from raptor.state.postgres.address import read

SQL = (
    """SELECT {schema}.put('greet', '{{"name": "ann"}}')""",
    """SELECT {schema}.put('greet', '{{"name": "bob"}}', in_seconds => 1, key => 'bob', max_attempts => 5)""",
    """INSERT INTO {schema}.task (service, data, due) VALUES ('greet', '{{"name": "cy"}}', now() + interval '2 s')""",
)
WRONG = "SELECT {schema}.put('greet', '{{}}', priority => 99)"


@service
async def greet(name: str) -> None:
    print(f"hello {name}", flush=True)


async def main(store: str) -> None:
    where = read(store)
    async with (
        Node(services=[greet], store=store, listen=False),  # makes the schema, if it is not there
        await psycopg.AsyncConnection.connect(where.url, autocommit=True) as connection,
    ):
        for statement in SQL:
            await connection.execute(statement.format(schema=where.schema).encode())
        try:
            await connection.execute(WRONG.format(schema=where.schema).encode())
        except psycopg.errors.CheckViolation as error:
            print(f"refused: {error.diag.constraint_name}", flush=True)
        left = f"SELECT count(*) FROM {where.schema}.task WHERE service = 'greet' AND state IN ('ready', 'taken')"
        while await (await connection.execute(left.encode())).fetchone() != (0,):
            await asyncio.sleep(0.05)
        status = await connection.execute(f"SELECT queue, done FROM {where.schema}.queue_status".encode())
        print(await status.fetchall(), flush=True)


if __name__ == "__main__":
    if not (given := sys.argv[1] if len(sys.argv) > 1 else os.environ.get("RAPTOR_STORE")):
        sys.exit("name the store: python examples/from_sql.py postgresql://user@host/database")
    asyncio.run(main(given))
