"""SQLite's result codes as the store's errors."""

import sqlite3
from typing import Final

from service.core.errors import (
    StorageBusy,
    StorageDamaged,
    StorageFull,
    StorageReadOnly,
    StoreUnavailable,
)

DRIVER_FAULTS: Final = (sqlite3.OperationalError, sqlite3.InterfaceError)
DRIVER_ERROR: Final = sqlite3.DatabaseError
"""The driver's own exceptions, which SQLAlchemy wraps in classes of the same names."""

_FAULTS: Final[dict[int, type[StoreUnavailable]]] = {
    sqlite3.SQLITE_FULL: StorageFull,
    sqlite3.SQLITE_READONLY: StorageReadOnly,
    sqlite3.SQLITE_BUSY: StorageBusy,
    sqlite3.SQLITE_LOCKED: StorageBusy,
    sqlite3.SQLITE_CORRUPT: StorageDamaged,
    sqlite3.SQLITE_NOTADB: StorageDamaged,
}


def fault_of(error: BaseException | None) -> type[StoreUnavailable]:
    """The StoreUnavailable class for an exception of the driver."""
    # The low byte is the primary result code (https://sqlite.org/rescode.html).
    return _FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, StoreUnavailable)
