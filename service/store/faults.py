"""Distinguishes an unavailable database from a refused statement."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from service.errors import StorageBusy
from service.store.engine import DRIVER_ERROR, DRIVER_FAULTS, fault_of


@contextmanager
def store_faults() -> Iterator[None]:
    """Raise StoreUnavailable where the block finds the database locked, full, gone or damaged."""
    try:
        yield
    except exc.TimeoutError as error:
        raise StorageBusy from error
    except (exc.OperationalError, exc.InterfaceError, *DRIVER_FAULTS) as error:
        raise fault_of(error) from error
    except (exc.DatabaseError, DRIVER_ERROR) as error:
        # SQLAlchemy and sqlite3 report damage as the base class itself; subclasses are refusals.
        if type(error) not in {exc.DatabaseError, DRIVER_ERROR}:
            raise
        raise fault_of(error) from error
