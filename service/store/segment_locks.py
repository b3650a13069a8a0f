"""Object locks of segments: which are due, and what the bucket was asked for."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    and_,
    bindparam,
    case,
    exists,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from analytics.model.instants import utc_day
from analytics.model.retention import Tier, kept_for
from analytics.storage.segment_metadata import Segment
from service.store.batching import execute_many, scalars_of
from service.store.catalog import list_by_id
from service.store.tables import JournalEntry, MisdatedDay, Organisation, SegmentEntry

_MICROSECOND: Final = timedelta(microseconds=1)
_SET: Final = (
    update(SegmentEntry.__table__)  # type: ignore[arg-type]
    .where(SegmentEntry.id == bindparam("segment_id"))
    .values(locked_until=bindparam("until"), lock_held_at=bindparam("held_at"))
)


@dataclass(frozen=True, slots=True)
class DueLock:
    """A segment whose lock is not as it should be.

    `is_org_held` says whether its organisation is under a legal hold, `lock_held_at` since when the
    object is. `received_at` is when the last rows of its day were, if a clock misdated them.
    """

    segment: Segment
    tier: str
    is_org_held: bool
    retired_at: datetime | None
    locked_until: datetime | None
    lock_held_at: datetime | None
    received_at: datetime | None


async def list_due_locks(
    session: AsyncSession, now: datetime, quiet: timedelta, renew_before: datetime, limit: int
) -> list[DueLock]:
    """Segments to be locked, or locked for longer, and those whose legal hold began or ended.

    To be locked is the only segment of a closed day that was quiet for so long. Locks of days that
    are never pruned last until `renew_before` at least.
    """
    is_locked, is_held = SegmentEntry.locked_until.is_not(None), SegmentEntry.lock_held_at
    is_live = and_(SegmentEntry.retired_at.is_(None), SegmentEntry.damage.is_(None))
    is_org_held = Organisation.held_since.is_not(None)
    due = (
        select(
            SegmentEntry.id,
            Organisation.tier,
            is_org_held,
            SegmentEntry.retired_at,
            SegmentEntry.locked_until,
            SegmentEntry.lock_held_at,
            MisdatedDay.received_at,
        )
        .join(Organisation, Organisation.id == SegmentEntry.tenant_id)
        .outerjoin(
            MisdatedDay,
            and_(
                MisdatedDay.tenant_id == SegmentEntry.tenant_id,
                MisdatedDay.day == SegmentEntry.day,
            ),
        )
        .where(
            or_(
                and_(is_live, ~is_locked, _is_settled(now, quiet)),
                and_(is_live, is_locked, _ends_early(renew_before)),
                and_(is_live, is_locked, is_org_held, is_held.is_(None)),
                and_(is_held.is_not(None), ~is_org_held),
            )
        )
        .order_by(SegmentEntry.day.desc(), SegmentEntry.id)
        .limit(limit)
    )
    lines: dict[str, list[Any]] = {}
    for segment_id, *line in await session.execute(due):
        lines[segment_id] = line
    segments = await list_by_id(session, list(lines))
    return [DueLock(segment, *lines[segment.segment_id]) for segment in segments]


def _is_settled(now: datetime, quiet: timedelta) -> ColumnElement[bool]:
    """Whether a segment is not going to be merged, as far as can be known."""
    other = aliased(SegmentEntry)
    return and_(
        SegmentEntry.day < utc_day(now),
        SegmentEntry.sealed_at <= now - quiet,
        SegmentEntry.seq_base == 0,
        ~exists().where(
            other.tenant_id == SegmentEntry.tenant_id,
            other.day == SegmentEntry.day,
            other.retired_at.is_(None),
            other.id != SegmentEntry.id,
        ),
        ~exists().where(
            JournalEntry.tenant_id == SegmentEntry.tenant_id, JournalEntry.day == SegmentEntry.day
        ),
    )


def _ends_early(renew_before: datetime) -> ColumnElement[bool]:
    """Whether a lock ends before its newest row is pruned, or else before `renew_before`."""
    locked_until = type_coerce(SegmentEntry.locked_until, BigInteger)
    newest_at = type_coerce(SegmentEntry.max_created_at, BigInteger)
    ends = {
        tier.value: locked_until < newest_at + kept // _MICROSECOND
        for tier in Tier
        if (kept := kept_for(tier)) is not None
    }
    return case(ends, value=Organisation.tier, else_=SegmentEntry.locked_until < renew_before)


async def set_locks(
    session: AsyncSession,
    locks: Iterable[tuple[Segment, datetime | None, datetime | None]],
) -> None:
    """Note until when segments are locked, and since when a legal hold is on them."""
    lines = [
        {"segment_id": segment.segment_id, "until": until, "held_at": held_at}
        for segment, until, held_at in locks
    ]
    if lines:
        await execute_many(session, _SET, lines)


async def forget_locks(session: AsyncSession, segment_id: str | None = None) -> None:
    """Have the segment, or all of them, locked again: there is another object in its place."""
    forget = update(SegmentEntry).values(locked_until=None, lock_held_at=None)
    if segment_id is not None:
        forget = forget.where(SegmentEntry.id == segment_id)
    await session.execute(forget)


async def list_locked_ids(session: AsyncSession, segments: Sequence[Segment]) -> Collection[str]:
    """The ids of those of `segments` that were ever locked."""
    query = select(SegmentEntry.id).where(SegmentEntry.locked_until.is_not(None))
    ids = [segment.segment_id for segment in segments]
    return {locked async for locked in scalars_of(session, query, SegmentEntry.id, ids)}
