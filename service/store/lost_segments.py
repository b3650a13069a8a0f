"""Segments that were given up: which rows of which days are lost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.instants import midnight, utc_day
from analytics.storage.segment_metadata import Segment
from service.store.store import Store
from service.store.tables import LostSegment


@dataclass(frozen=True, slots=True)
class Loss:
    """A segment that was given up at `lost_at`: its `rows` had seq in `min_seq` to `max_seq`."""

    segment_id: str
    tenant_id: str
    day: date
    rows: int
    min_seq: int
    max_seq: int
    damage: str
    lost_at: datetime

    def touches(self, first: int, end: int) -> bool:
        """Whether rows with seqs from `first` to before `end` may be among them."""
        return self.min_seq < end and self.max_seq >= first

    @property
    def detail(self) -> str:
        """What was lost, but for where."""
        rows = f"{self.rows} row{'' if self.rows == 1 else 's'}"
        return (
            f"{rows} (seq {self.min_seq} to {self.max_seq}), given up at {self.lost_at:%F %T} UTC"
        )


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


async def list_losses(session: AsyncSession, tenant_id: str | None = None) -> list[Loss]:
    """All that was lost, of one tenant if given, by organisation and day."""
    query = select(
        LostSegment.id,
        LostSegment.tenant_id,
        LostSegment.day,
        LostSegment.rows,
        LostSegment.min_seq,
        LostSegment.max_seq,
        LostSegment.damage,
        LostSegment.lost_at,
    ).order_by(LostSegment.tenant_id, LostSegment.day, LostSegment.id)
    if tenant_id is not None:
        query = query.where(LostSegment.tenant_id == tenant_id)
    return [Loss(*line) for line in await session.execute(query)]


async def losses_within(
    store: Store, tenant_id: str, since: datetime | None, until: datetime | None
) -> list[Loss]:
    """What the tenant lost of the UTC days in a window, in part or whole; None: no bound."""
    losses: Iterable[Loss] = await store.cached("losses", list_losses)
    return [
        loss
        for loss in losses
        if loss.tenant_id == tenant_id
        and (since is None or loss.day >= utc_day(since))
        and (until is None or midnight(loss.day) < until)
    ]


def count_rows(losses: Sequence[Loss]) -> int:
    """The rows of `losses`."""
    return sum(loss.rows for loss in losses)
