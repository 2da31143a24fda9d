"""Putting a task within a program's own transaction: `raptor.put_in(connection, service, data, ...)`.

Rolled back, it never existed; committed, it wakes workers. The one verb that has a synchronous twin, because the
connection is the caller's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Unpack, overload

from raptor.catalogue import Catalogue
from raptor.current import CURRENT, Known
from raptor.desk import Named, name_of, task_on
from raptor.errors import BadInput
from raptor.orders import Order
from raptor.service import Given, service_of
from raptor.state.base import Receipt
from raptor.state.postgres.address import SCHEMA, check_schema
from raptor.task import Task

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


@overload
def put_in(
    connection: Connection[Any],
    service: Named,
    data: Any = None,
    *,
    services: Iterable[Given] | None = None,
    schema: str | None = None,
    replace: bool = False,
    **order: Unpack[Order],
) -> Receipt: ...


@overload
def put_in(
    connection: AsyncConnection[Any],
    service: Named,
    data: Any = None,
    *,
    services: Iterable[Given] | None = None,
    schema: str | None = None,
    replace: bool = False,
    **order: Unpack[Order],
) -> Awaitable[Receipt]: ...


def put_in(
    connection: Any,
    service: Named,
    data: Any = None,
    *,
    services: Iterable[Given] | None = None,
    schema: str | None = None,
    replace: bool = False,
    **order: Unpack[Order],
) -> Receipt | Awaitable[Receipt]:
    """Put a task in the transaction of a connection of psycopg 3; of an AsyncConnection to be awaited.

    Data are checked against the service: the function itself, one of `services`, or one of the node that the program
    is inside of. A mere name that nobody knows takes whatever data there are, where there is neither list nor node.
    `schema` is the node's, else `raptor`. The options are those of `put`.
    """
    try:
        from raptor.state.postgres import within
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        raise BadInput("PostgreSQL needs psycopg: pip install 'raptor-scheduler[postgres]'") from None
    later = within.is_async(connection)
    known = _known(service, services)
    if services is None and CURRENT.get() is None:
        order["force"] = True  # there is nobody to ask
    name = check_schema(schema or known.schema)

    def made(now: float) -> Task:
        return task_on(name_of(service), data, known.catalogue, known.lines, now, order)

    made(0.0)  # what is wrong is refused before anything is sent
    if not later:
        now = within.clock(connection, name)
        return within.perform(connection, name, within.store(made(now), now, replace))

    async def put() -> Receipt:
        now = await within.clock_later(connection, name)
        return await within.perform_later(connection, name, within.store(made(now), now, replace))

    return put()


def _known(service: Named, services: Iterable[Given] | None) -> Known:
    """What is nearest: the list, the node that the program is inside of, the function itself."""
    node = CURRENT.get()
    if services is None and node is not None:
        return node.known()
    own = [] if isinstance(service, str) or service_of(service) is None else [service]
    schema = SCHEMA if node is None else node.known().schema
    return Known(Catalogue.of([*own, *(services or ())]), {} if node is None else node.known().lines, schema)
