"""SQLite's result codes as the store's errors."""

import sqlite3
from typing import Final

from service.core.errors import (
    STORAGE_DAMAGED,
    STORAGE_READ_ONLY,
    StorageBusy,
    StorageFull,
    StoreUnavailable,
)

DRIVER_FAULTS: Final = (sqlite3.OperationalError, sqlite3.InterfaceError)
DRIVER_ERROR: Final = sqlite3.DatabaseError
"""The driver's own exceptions, which SQLAlchemy wraps in classes of the same names."""

_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    sqlite3.SQLITE_FULL: StorageFull,
    sqlite3.SQLITE_READONLY: STORAGE_READ_ONLY,
    sqlite3.SQLITE_BUSY: StorageBusy,
    sqlite3.SQLITE_LOCKED: StorageBusy,
    sqlite3.SQLITE_CORRUPT: STORAGE_DAMAGED,
    sqlite3.SQLITE_NOTADB: STORAGE_DAMAGED,
}


def fault_of(error: BaseException | None) -> type[StoreUnavailable]:
    """The StoreUnavailable class for an exception of the driver."""
    # The low byte is the primary result code (https://sqlite.org/rescode.html).
    return _FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, StoreUnavailable)
