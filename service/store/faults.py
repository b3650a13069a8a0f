"""Telling a database that does not answer from one that refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from service.errors import StorageBusy
from service.store.engine import DRIVER_ERROR, DRIVER_FAULTS, fault_of


@contextmanager
def store_faults() -> Iterator[None]:
    """Raise a StoreUnavailable where the block finds the database locked, full, gone or damaged."""
    try:
        yield
    except exc.TimeoutError as error:
        raise StorageBusy from error
    except (exc.OperationalError, exc.InterfaceError, *DRIVER_FAULTS) as error:
        raise fault_of(error) from error
    except (exc.DatabaseError, DRIVER_ERROR) as error:
        # What SQLite says of a damaged file has no class of its own, only this common one.
        if type(error) not in {exc.DatabaseError, DRIVER_ERROR}:
            raise
        raise fault_of(error) from error
