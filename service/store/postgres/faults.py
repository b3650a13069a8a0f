"""PostgreSQL's SQLSTATE codes, and a server that is gone, as the store's errors.

Source: https://www.postgresql.org/docs/15/errcodes-appendix.html
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg
from sqlalchemy.exc import EmulatedDBAPIException

from service.core.errors import (
    STORAGE_DAMAGED,
    STORAGE_READ_ONLY,
    StorageBusy,
    StorageFull,
    StoreUnavailable,
)

_BY_CODE: Final[dict[str, type[StoreUnavailable]]] = {
    "25006": STORAGE_READ_ONLY,  # a standby, or default_transaction_read_only
    "25P03": StorageBusy,  # idle_in_transaction_session_timeout: this process was paused
    "3F000": StoreUnavailable,  # the schema, a table, a column is missing, or not ours to use:
    "42P01": StoreUnavailable,
    "42703": StoreUnavailable,
    "42501": StoreUnavailable,
    "40001": StorageBusy,
    "40P01": StorageBusy,
    "53100": StorageFull,
    "53300": StorageBusy,  # too many connections
    "55P03": StorageBusy,  # lock_timeout
    "57014": StorageBusy,  # statement_timeout, or cancelled by an administrator
    "58P01": STORAGE_DAMAGED,  # a file of a table is missing
    "XX001": STORAGE_DAMAGED,
    "XX002": STORAGE_DAMAGED,
}
_BY_CLASS: Final[dict[str, type[StoreUnavailable]]] = {
    "08": StoreUnavailable,  # the connection is lost
    "53": StoreUnavailable,  # out of memory and the like
    "57": StoreUnavailable,  # shutting down, or not accepting connections yet
    "58": StoreUnavailable,  # an error of the system below it
}
"""For codes that are not in `_BY_CODE`, by their first two characters."""

DRIVER_ERRORS: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""All that a call of the driver raises."""

_NO_TEXT: Final = frozenset({"22021", "22P05"})
_UNUSABLE: Final = ("connection is closed", "another operation is cancelling")
"""What the driver's InterfaceError says of a connection that ended, or stalled, before the call."""


def fault_of(error: BaseException) -> type[StoreUnavailable] | None:
    """The StoreUnavailable class for an exception of the driver; None: a statement was refused."""
    code = getattr(error, "sqlstate", None)
    if code:
        return _BY_CODE.get(code) or _BY_CLASS.get(code[:2])
    return StoreUnavailable if is_connection_unusable(error) else None


def is_connection_unusable(error: BaseException) -> bool:
    """True for an exception of the driver after which its connection must not be used again.

    A connection that the server has closed says so itself; this is about one that looks open.
    """
    # A TimeoutError is an OSError. An InternalClientError is raised where the server has said
    # unasked that it ends the connection, and its hang-up has not arrived.
    if isinstance(error, (OSError, asyncpg.InternalClientError)):
        return True
    return isinstance(error, asyncpg.InterfaceError) and any(
        said in str(error) for said in _UNUSABLE
    )


def driver_error(error: BaseException) -> BaseException:
    """What the driver itself raised, where SQLAlchemy has put an exception of its own around it."""
    if isinstance(error, EmulatedDBAPIException):
        return error.driver_exception
    return error


def is_text_refused(error: BaseException) -> bool:
    """True for text that PostgreSQL cannot hold, such as a name in a path with a NUL character."""
    code = getattr(error, "sqlstate", None)
    return code in _NO_TEXT or isinstance(_cause(error), UnicodeEncodeError)


def _cause(error: BaseException) -> BaseException | None:
    """The first cause of `error`, below the exceptions that wrap it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def driver_faults() -> Iterator[None]:
    """Raise StoreUnavailable for faults of the driver's calls in the block."""
    try:
        yield
    except DRIVER_ERRORS as error:
        if (fault := fault_of(error)) is None:
            raise
        raise fault from error
