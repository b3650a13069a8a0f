"""Which installs are already recorded: one row per credential and file within some time."""

import hashlib
from datetime import datetime, timedelta
from typing import Final, NamedTuple, cast

from sqlalchemy import Table, bindparam, delete, insert, select

from analytics.model.schema import audit_id
from service.store.store import Store
from service.store.tables import InstallMark
from service.store.transaction import Transaction

REPEAT: Final = timedelta(minutes=10)
"""A request within this time of the row is the same install: clients retry."""

CONTINUATION: Final = timedelta(hours=24)
"""A request for a later part of the file belongs to the install for longer."""

CUTS_MAX: Final = 10
"""How often within REPEAT an install is recorded again because it was cut off: package managers
repeat a transfer less often, and a client that leaves on purpose must not fill the journal."""

# On the table rather than the mapped class: no objects are needed.
_MARKS: Final = cast("Table", InstallMark.__table__)
_FIND: Final = select(InstallMark.recorded_at, InstallMark.seq).where(
    InstallMark.install == bindparam("install")
)
_REMOVE: Final = delete(_MARKS).where(_MARKS.c.install == bindparam("of_install"))
_IS_OLD: Final = _MARKS.c.recorded_at <= bindparam("before")
_FIND_OLD: Final = select(_MARKS.c.install).where(_IS_OLD).limit(1)
_REMOVE_OLD: Final = delete(_MARKS).where(_IS_OLD)
_ADD: Final = insert(_MARKS)


class Mark(NamedTuple):
    """The last row of an install: when it was recorded, and its seq."""

    recorded_at: datetime
    seq: int

    @property
    def audit_id(self) -> str:
        """The row's id."""
        return audit_id(self.seq)

    def covers(self, now: datetime, *, is_continuation: bool) -> bool:
        """True if a request at `now` belongs to the recorded install."""
        window = CONTINUATION if is_continuation else REPEAT
        # If the clock was set back, the install is recorded again rather than left out.
        return timedelta(0) <= now - self.recorded_at < window


def install_key(tenant_id: str, credential: str, file: str, reason: str) -> str:
    """The key of an install's mark. Another reason for the same file is another install."""
    text = "\0".join((tenant_id, credential, file, reason))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def find_mark(transaction: Transaction, install: str) -> Mark | None:
    """The mark of the install with this key, if there is one."""
    for recorded_at, seq in transaction.rows(_FIND, {"install": install}):
        return Mark(recorded_at, int(seq))
    return None


def keep_mark(transaction: Transaction, install: str, mark: Mark) -> None:
    """Replace the install's earlier mark, if there is one, with `mark`."""
    remove_mark(transaction, install)
    transaction.run(_ADD, [{"install": install, "recorded_at": mark.recorded_at, "seq": mark.seq}])


def remove_mark(transaction: Transaction, install: str) -> None:
    """End the install's mark: the next request is recorded again."""
    transaction.run(_REMOVE, [{"of_install": install}])


def count_cut(transaction: Transaction, install: str, now: datetime) -> bool:
    """Count a cut of the install with this key; False if there were CUTS_MAX within REPEAT.

    The number is in the mark of a key of its own, whose time is that of the first of them.
    """
    key = install_key("", "", install, "cuts")
    first = find_mark(transaction, key)
    if first is None or not first.covers(now, is_continuation=False):
        first = Mark(now, 0)
    if first.seq >= CUTS_MAX:
        return False
    keep_mark(transaction, key, first._replace(seq=first.seq + 1))
    return True


async def delete_expired_marks(store: Store) -> None:
    """Delete marks that no request can belong to any more. Audit rows are unaffected."""
    old = {"before": store.clock() - CONTINUATION}
    # No write lock while there is nothing to delete.
    if await store.read_at_once(lambda read: read.rows(_FIND_OLD, old)):
        await store.write_at_once(lambda work: work.transaction.run(_REMOVE_OLD, [old]))
