"""Gives up segments of which there is no whole copy, so that their days can be read again.

The rows are lost, and the day must never look complete: the loss is an audit row, and the catalog
keeps it, so that statistics, check, pages and exports tell of it.
"""

from analytics.model.log_envelopes import AuditSegmentLost
from analytics.model.rows import AuditContext
from analytics.storage.integrity import Finding
from analytics.storage.segment_metadata import Segment
from analytics.storage.verified_files import no_wait
from service.audit.backup.refusals import SegmentNotDamaged, UnknownSegment
from service.audit.services import OperatorServices
from service.store.catalog import is_live, retire_segments
from service.store.lost_segments import add_loss


async def find_damage(services: OperatorServices, segment: Segment) -> Finding:
    """What is wrong with the stored file of `segment`. Raises SegmentNotDamaged, StoreUnreachable.

    A file that cannot be fetched now is not lost.
    """
    fault, _ = await services.lake.verify(segment, no_wait)
    if fault is None:
        raise SegmentNotDamaged(value=segment.segment_id)
    return fault


async def give_up(services: OperatorServices, segment: Segment, by: AuditContext) -> None:
    """Retire the damaged `segment`, with an audit row, and remember what was lost.

    Raises SegmentNotDamaged, UnknownSegment if it was merged or pruned meanwhile, LeaseTaken,
    LeaseLost, StoreUnreachable, StoreUnavailable.
    """
    async with services.lease.hold() as lease:
        # Under the lease: another command may have restored it since it was confirmed.
        fault = await find_damage(services, segment)
        async with lease.write() as work:
            if not await is_live(work.session, segment.segment_id):
                raise UnknownSegment(value=segment.segment_id)
            lost = AuditSegmentLost(
                segment_id=segment.segment_id,
                day=segment.day.isoformat(),
                rows=segment.rows,
                first_seq=segment.min_seq,
                last_seq=segment.max_seq,
                damage=str(fault.kind),
            )
            work.record(segment.tenant_id, lost, by)
            add_loss(work.session, segment, str(fault.kind), work.now)
            await retire_segments(work.session, [segment], work.now)
