"""Refusals because storage does not work: the database, the audit folder or the disk."""

from typing import Final

from service.core.errors.base import Refusal

OPERATOR_S: Final = 10
"""When to try again where an operator has to act first: a client that repeats it four times, as
package managers do, fails after less than a minute."""


class StoreUnavailable(Refusal):
    """The database or the audit folder does not respond. Nothing was changed; try again."""

    status = 503
    text = "storage is unavailable"
    is_temporary = True
    retry_after_s: int | None = 1

    @property
    def reason(self) -> str:
        """What the database or the file system said: for logs and the operator, no bound values."""
        cause = getattr(self.__cause__, "orig", self.__cause__)
        return str(cause) or type(cause).__name__  # a TimeoutError has no text


class StorageFull(StoreUnavailable):
    """The disk is full. Reading still works."""

    status = 507
    text = "storage is full: nothing was changed"
    retry_after_s = None  # until an operator has acted


class StorageReadOnly(StoreUnavailable):
    """The database file or its folder is read-only. Reading still works."""

    text = "storage is read-only: nothing was changed"
    retry_after_s = OPERATOR_S


class StorageBusy(StoreUnavailable):
    """Another process held the database for longer than the limit."""

    text = "storage is busy: nothing was changed, try again"


DAMAGED: Final = "stored data is missing or damaged"
"""How the texts of the two refusals below begin."""


class StorageDamaged(StoreUnavailable):
    """Stored rows are missing or damaged; the log says which."""

    text = f"{DAMAGED}: the log says where"
    retry_after_s = OPERATOR_S


class SegmentDamaged(StorageDamaged):
    """The file of a segment that the request needs is missing or damaged; the text names it."""

    text = (
        f"{DAMAGED}: segment {{value}}. It cannot be read until the operator has put it back with"
        " `countersign audit restore-segment`"
    )


class StorageUnsafe(StoreUnavailable):
    """The database is set up so that rows it has confirmed may be lost; the log says how."""

    text = "the database is not set up for this service: the log says what to change"
    retry_after_s = OPERATOR_S
