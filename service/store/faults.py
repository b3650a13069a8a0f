"""Telling a database that does not answer from one that refuses."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from service.errors import StoreUnavailable


@contextmanager
def store_faults() -> Iterator[None]:
    """Raise StoreUnavailable where the block finds the database locked, gone or damaged."""
    try:
        yield
    except (exc.OperationalError, exc.TimeoutError, exc.InterfaceError) as error:
        raise StoreUnavailable from error
    except exc.DatabaseError as error:
        # What SQLite says of a damaged file has no class of its own, only this common one.
        if type(error) is not exc.DatabaseError:
            raise
        raise StoreUnavailable from error
