"""Idempotency keys: a repeated request gets its first answer again."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, cast

from sqlalchemy import Integer, Table, and_, bindparam, delete, func, insert, select, tuple_

from service.core.errors import Busy, Conflict
from service.store.tables import IdempotencyKey
from service.store.transaction import Transaction

KEY_REUSED: Final = Conflict.of("Idempotency-Key was used with another body")
ANSWERS_FULL: Final = Busy.of(
    "too many rejected items of this organisation are kept for their Idempotency-Key",
    retry_after_s=60,
)

LIFETIME: Final = timedelta(hours=24)
LONG_BYTES: Final = 4_096
"""Answers of at least this length list many refused items."""
LONG_BYTES_MAX: Final = 64 * 2**20
"""Limit on the total size of one organisation's long answers."""

DELETED_MAX: Final = 10_000
"""Expired answers that one transaction deletes; others wait for it meanwhile."""

_TABLE: Final = cast("Table", IdempotencyKey.__table__)
_IS_KEY: Final = and_(
    *(_TABLE.c[name] == bindparam(name) for name in ("tenant_id", "credential", "key"))
)
_FIND: Final = select(_TABLE.c.body_sha256, _TABLE.c.answer, _TABLE.c.created_at).where(_IS_KEY)
_DELETE: Final = delete(_TABLE).where(_IS_KEY)
_EXPIRED: Final = select(*_TABLE.primary_key).where(_TABLE.c.created_at <= bindparam("before"))
_DELETE_EXPIRED: Final = (
    delete(_TABLE)
    .where(tuple_(*_TABLE.primary_key).in_(_EXPIRED.limit(bindparam("most", type_=Integer))))
    .returning(_TABLE.c.key)
)
_KEEP: Final = insert(_TABLE)
_LONG: Final = select(func.coalesce(func.sum(func.length(IdempotencyKey.answer)), 0)).where(
    IdempotencyKey.tenant_id == bindparam("tenant_id"),
    func.length(IdempotencyKey.answer) >= LONG_BYTES,
)


@dataclass(frozen=True, slots=True)
class RepeatableRequest:
    """A repeatable request: its sender, idempotency key and body digest."""

    tenant_id: str
    credential: str
    key: str
    body_sha256: str

    @property
    def key_columns(self) -> dict[str, Any]:
        """The primary key of its stored answer."""
        return {"tenant_id": self.tenant_id, "credential": self.credential, "key": self.key}


def find_answer(
    transaction: Transaction, attempt: RepeatableRequest, now: datetime
) -> bytes | None:
    """The stored answer to this attempt, or None. Raises KEY_REUSED for a different body."""
    for body_sha256, answer, created_at in transaction.rows(_FIND, attempt.key_columns):
        if created_at <= now - LIFETIME:
            # Its line has the primary key of the answer that `keep_answer` is about to store.
            transaction.run(_DELETE, [attempt.key_columns])
        elif body_sha256 != attempt.body_sha256:
            raise KEY_REUSED
        else:
            return bytes(answer)
    return None


def check_room(transaction: Transaction, attempt: RepeatableRequest, answer: bytes) -> None:
    """Raise ANSWERS_FULL if `answer` is long and its organisation's long answers fill their limit.

    Short answers need no limit: their number is bounded by that of accepted rows.
    """
    if len(answer) < LONG_BYTES:
        return
    ((kept,),) = transaction.rows(_LONG, {"tenant_id": attempt.tenant_id})
    if kept + len(answer) > LONG_BYTES_MAX:
        raise ANSWERS_FULL


def keep_answer(
    transaction: Transaction, attempt: RepeatableRequest, answer: bytes, now: datetime
) -> None:
    """Store the answer in the same transaction as the changes it reports."""
    line = {"body_sha256": attempt.body_sha256, "answer": answer, "created_at": now}
    transaction.run(_KEEP, [attempt.key_columns | line])


def delete_expired_answers(transaction: Transaction, now: datetime) -> int:
    """Delete answers past their lifetime, DELETED_MAX at most; returns how many."""
    bounds = {"before": now - LIFETIME, "most": DELETED_MAX}
    return len(transaction.rows(_DELETE_EXPIRED, bounds))
