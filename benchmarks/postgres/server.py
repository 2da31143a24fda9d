"""A PostgreSQL server for one subject, in its default configuration, with a database for each who takes part."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.servers import Server, running


class Missing(Exception):
    """There is no PostgreSQL to measure on."""


class Databases:
    """Of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def new(self, name: str) -> str:
        """-> the address of an empty one."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(statement)
        return urlsplit(self.server.url)._replace(path=f"/{name}").geturl()


@contextmanager
def databases() -> Generator[Databases]:
    """Whatever keeps it from starting is the reason why nothing is measured."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except AssertionError as error:
            raise Missing(str(error)) from error
        yield Databases(server)


def ask(url: str, statement: LiteralString, *given: object) -> list[Any]:
    """Once, outside of whatever is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, given)
        return cursor.fetchall() if cursor.description else []
