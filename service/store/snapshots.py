"""Snapshots: all audit rows of one tenant at one instant."""

from sqlalchemy.ext.asyncio import AsyncSession

from analytics.queries import Snapshot
from service.store.catalog import list_segments
from service.store.journal import last_seq, list_batches


async def snapshot(session: AsyncSession, tenant_id: str) -> Snapshot:
    """All audit rows of the tenant as of this read transaction.

    The one place where reading is limited to a tenant: whatever is queried, summed or exported
    starts from here. All three reads must share one transaction, or a seal that commits between
    them would show its rows twice or not at all.
    """
    segments = await list_segments(session, tenant_id)
    batches = await list_batches(session, tenant_id)
    watermark = await last_seq(session)
    return Snapshot(
        tenant_id=tenant_id,
        watermark=watermark,
        segments=tuple(segments),
        batches=tuple(batches),
    )
