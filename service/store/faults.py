"""Distinguishes an unavailable database from a refused statement."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from service.core.errors import StorageBusy, StoreUnavailable
from service.store.sqlite.faults import DRIVER_ERROR, DRIVER_FAULTS, fault_of

_WRONG: Final = ("28", "3D", "3F", "42")
"""Classes of SQLSTATE: the password, the database's name, a schema or a right is wrong."""


@contextmanager
def store_faults() -> Iterator[None]:
    """Raise StoreUnavailable where the block finds the database locked, full, gone or damaged."""
    try:
        yield
    except exc.TimeoutError as error:  # no connection became free
        raise StorageBusy from error
    except (exc.OperationalError, exc.InterfaceError, *DRIVER_FAULTS) as error:
        raise _fault(error) from error
    except (exc.DatabaseError, DRIVER_ERROR) as error:
        # SQLAlchemy and sqlite3 report damage as the base class itself; subclasses are refusals.
        if type(error) not in {exc.DatabaseError, DRIVER_ERROR}:
            raise
        raise _fault(error) from error


def _fault(error: Exception) -> type[StoreUnavailable]:
    return fault_of(error.orig if isinstance(error, exc.DBAPIError) else error)


def is_outage(fault: StoreUnavailable) -> bool:
    """True if a database server does not answer, or not yet: it will, and nothing has to change."""
    if type(fault) not in {StoreUnavailable, StorageBusy}:
        return False
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(
            cause, (DRIVER_ERROR, *DRIVER_FAULTS)
        ):  # of SQLite, a file: it is there, or it is not
            return False
        if str(getattr(cause, "sqlstate", None) or "").startswith(_WRONG):
            return False
        cause = cause.__cause__
    return True
