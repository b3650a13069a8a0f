"""SQLite databases as files: where one is, who may read it, whether it is open, and a copy."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from sqlalchemy import URL, make_url

from analytics.storage.fsync import fsync
from service.core.errors import STORAGE_DAMAGED, StorageBusy
from service.core.settings import InvalidSetting
from service.store.engines import URL_SETTING, url_faults
from service.store.sqlite.faults import fault_of


def url_of(file: Path) -> URL:
    """The URL of the SQLite database in `file`; any file name is quoted correctly."""
    return URL.create("sqlite+aiosqlite", database=str(file))


def file_of(url: str) -> Path:
    """The file of the SQLite database at `url`. Raises InvalidSetting if it is not in a file."""
    with url_faults():
        parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise InvalidSetting(f"{URL_SETTING}: only a database in a file can be copied")
    return Path(parsed.database).resolve()


def make_private(url: str) -> None:
    """Create the file of a new database with mode 0600; SQLite would make it world-readable.

    SQLite's side files inherit the mode. An existing file is not opened: closing it would drop the
    POSIX locks that this process holds on it.
    """
    with suppress(OSError, InvalidSetting):  # connecting reports the cause
        os.close(os.open(file_of(url), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def copy_database(file: Path, target: Path) -> None:
    """Copy the database in `file`, as of one instant, durably to the new file `target`.

    Writers are not blocked: the copy is one read transaction. Raises StoreUnavailable, also if the
    database is damaged.
    """
    target.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(target)) as copy:
            # An unfinished copy is discarded after a crash; a finished one is synced below.
            copy.execute("PRAGMA synchronous = OFF")
            source.backup(copy)
            (outcome,) = copy.execute("PRAGMA quick_check(1)").fetchone()
            if outcome != "ok":
                raise STORAGE_DAMAGED from sqlite3.DatabaseError(f"{file}: {outcome}")
    except sqlite3.Error as error:
        raise fault_of(error) from error
    fsync(target)


def is_in_use(file: Path) -> bool:
    """True while a process on this machine has the database in `file` open."""
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as error:  # or damaged: then it may be replaced
            return fault_of(error) is StorageBusy
    return False
