"""Distinguishes an unavailable database from a refused statement."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from service.errors import StorageBusy, StoreUnavailable
from service.store.sqlite.faults import DRIVER_ERROR, DRIVER_FAULTS, fault_of


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
