"""Segments that were given up: which rows of which days are lost."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import midnight, utc_day
from analytics.storage.segment_metadata import Segment
from service.store.store import Store
from service.store.tables import LostSegment


def add_loss(session: AsyncSession, segment: Segment, damage: str, at: datetime) -> None:
    """Remember that `segment`, which its caller retires, was given up."""
    session.add(
        LostSegment(
            id=segment.segment_id,
            tenant_id=segment.tenant_id,
            day=segment.day,
            rows=segment.rows,
            min_seq=segment.min_seq,
            max_seq=segment.max_seq,
            damage=damage,
            lost_at=at,
        )
    )


async def list_losses(session: AsyncSession, tenant_id: str | None = None) -> Sequence[LostSegment]:
    """All that was lost, of one tenant if given, by organisation and day."""
    query = select(LostSegment).order_by(LostSegment.tenant_id, LostSegment.day, LostSegment.id)
    if tenant_id is not None:
        query = query.where(LostSegment.tenant_id == tenant_id)
    return (await session.scalars(query)).all()


async def losses_within(
    store: Store, tenant_id: str, since: datetime | None, until: datetime | None
) -> list[LostSegment]:
    """What the tenant lost of the UTC days in a window, in part or whole; None: no bound."""
    losses: Iterable[LostSegment] = await store.cached("losses", list_losses)
    return [
        loss
        for loss in losses
        if loss.tenant_id == tenant_id
        and (since is None or loss.day >= utc_day(since))
        and (until is None or midnight(loss.day) < until)
    ]


def count_rows(losses: Sequence[LostSegment]) -> int:
    """The rows of `losses`."""
    return sum(loss.rows for loss in losses)
