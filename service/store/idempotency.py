"""Idempotency keys: a request that is sent again gets the answer of the first time."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from service.errors import AnswersFull, KeyReused
from service.store.tables import IdempotencyKey

LIFETIME: Final = timedelta(hours=24)
LONG_BYTES: Final = 4_096
"""Answers from this length on name many items that were not taken."""
LONG_BYTES_MAX: Final = 64 * 2**20
"""What the long ones of one organisation may take together."""

_LONG: Final = select(func.coalesce(func.sum(func.length(IdempotencyKey.answer)), 0)).where(
    IdempotencyKey.tenant_id == bindparam("tenant_id"),
    func.length(IdempotencyKey.answer) >= LONG_BYTES,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that may be sent again: who sends it, under which key, and what it says."""

    tenant_id: str
    credential: str
    key: str
    body_sha256: str


async def find_answer(session: AsyncSession, attempt: Attempt, now: datetime) -> bytes | None:
    """What this attempt was answered before, or None. Raises KeyReused for another body."""
    entry = await session.get(IdempotencyKey, (attempt.tenant_id, attempt.credential, attempt.key))
    if entry is None:
        return None
    if entry.created_at <= now - LIFETIME:
        await session.delete(entry)
        await session.flush()
        return None
    if entry.body_sha256 != attempt.body_sha256:
        raise KeyReused
    return entry.answer


async def check_room(session: AsyncSession, attempt: Attempt, answer: bytes) -> None:
    """Raise AnswersFull if `answer` is long and the organisation has too many of its kind.

    Not for want of room for short ones: there are no more of them than of accepted rows.
    """
    if len(answer) < LONG_BYTES:
        return
    kept = await session.scalar(_LONG, {"tenant_id": attempt.tenant_id})
    if (kept or 0) + len(answer) > LONG_BYTES_MAX:
        raise AnswersFull


async def keep_answer(
    session: AsyncSession, attempt: Attempt, answer: bytes, now: datetime
) -> None:
    """Remember the answer in the transaction that makes it true."""
    session.add(
        IdempotencyKey(
            tenant_id=attempt.tenant_id,
            credential=attempt.credential,
            key=attempt.key,
            body_sha256=attempt.body_sha256,
            answer=answer,
            created_at=now,
        )
    )
    await session.flush()


async def forget_old_answers(session: AsyncSession, now: datetime) -> None:
    """Drop keys past their lifetime."""
    await session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at <= now - LIFETIME))
