"""What went wrong with a server, in our words: try again, or what to do about it."""

from __future__ import annotations

import psycopg
from psycopg import errors

from raptor.errors import BadInput, NotWritten, RaptorError, RefusedState
from raptor.state.postgres.address import Address
from raptor.state.postgres.grants import one_of

PASSING = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,  # of a key: somebody put it in between
    errors.InvalidSqlStatementName,  # a pooler gave another server connection
    errors.DuplicatePreparedStatement,
)
"""Nothing was done, and the next try may do."""

_READ_ONLY = (errors.ReadOnlySqlTransaction,)
_AWAY = (
    psycopg.InterfaceError,
    errors.ConnectionException,
    errors.OperatorIntervention,  # shut down, cancelled
    errors.InsufficientResources,  # disk full, too many connections, out of memory
    errors.SystemError,
    errors.CannotConnectNow,
    errors.LockNotAvailable,
)
_BAD = (psycopg.DataError, psycopg.IntegrityError)


def not_written(address: Address, error: BaseException) -> RaptorError:
    """The error to raise for one of a call. What is left of it is worth another try unless it says otherwise."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    match error:
        case RaptorError():
            return error
        case errors.InsufficientPrivilege():
            return RefusedState("unwritable", address.shown, f"gave no rights: {text}", grants(address, text))
        case errors.UndefinedTable() | errors.UndefinedFunction() | errors.InvalidSchemaName():
            advice = "start a node to create it, or run `raptor store migrate`"
            return RefusedState("absent", address.shown, f"lacks a part of Raptor's schema ({text})", advice)
        case errors.ReadOnlySqlTransaction():
            return NotWritten("readonly", address.shown, "it is read-only: a replica, or a server that fails over")
        case errors.DiskFull():
            return NotWritten("full", address.shown, text)
        case psycopg.DataError() | psycopg.IntegrityError() | UnicodeEncodeError():
            return BadInput(f"{address.shown} refused it: {text}")
        case _:
            return NotWritten("unreachable", address.shown, text)


def is_lost(error: BaseException) -> bool:
    """Whether the connection has to be made anew."""
    return isinstance(error, (*_AWAY, *_READ_ONLY, OSError, TimeoutError)) or (
        isinstance(error, psycopg.OperationalError) and not isinstance(error, PASSING)
    )


def refusal(address: Address, error: BaseException) -> RaptorError:
    """Why a store cannot be opened: those that another try does not help say what does."""
    text = str(error).strip().replace("\n", " ") or type(error).__name__
    low = text.lower()
    if isinstance(error, RaptorError):
        return error
    if "password" in low or "authentication" in low or "pg_hba" in low:
        advice = "check user and password (PGPASSWORD, ~/.pgpass or the address) and the server's pg_hba.conf"
        return RefusedState("refused", address.shown, f"did not let us in: {_last(text)}", advice)
    if "does not exist" in low and "database" in low:
        return RefusedState("absent", address.shown, f"is not there: {_last(text)}", "create it: createdb NAME")
    if "does not exist" in low and "role" in low:
        return RefusedState("refused", address.shown, f"has no such role: {_last(text)}", "create it: createuser NAME")
    return not_written(address, error)


def grants(address: Address, denied: str = "") -> str:
    """What a role needs that may not create anything."""
    needed = one_of(denied, address.schema)
    every = "`raptor store grants ROLE` prints all that a role needs"
    return f"as the owner: {needed}; {every}" if needed else f"{every}, for the owner to run"


def _last(text: str) -> str:
    return text.rpartition("FATAL:")[2].strip() or text
