"""Moves the segments of a data dir that had no bucket before into one."""

from collections.abc import Callable
from typing import Final

from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_store import ObjectDamaged, ObjectMissing
from service.audit.lake import Lake
from service.core.errors import Conflict
from service.core.threads import run_uncancellable
from service.store.catalog import is_live, list_live_segments
from service.store.store import Store

NO_BUCKET: Final = Conflict.of(
    "COUNTERSIGN_SEGMENTS_URL is not set: there is no bucket for segments"
)


async def upload_segments(
    store: Store, lake: Lake, show: Callable[[int, int], None]
) -> tuple[int, list[str]]:
    """Upload what is only in the data dir; returns how many segments, and the faults of others.

    `show` is called with the rows done and in total. Segments without an object cannot be read by
    other nodes until then; on this one they can. Raises NO_BUCKET, StoreUnreachable.
    """
    segments = lake.segments
    if not isinstance(segments, S3Segments):
        raise NO_BUCKET
    await lake.confirm_prefix()
    live = await store.fetch(list_live_segments)
    total, done, uploaded = sum(segment.rows for segment in live), 0, 0
    failed: list[str] = []
    for segment in live:
        try:
            uploaded += await run_uncancellable(segments.upload, segment)
        except (ObjectMissing, ObjectDamaged) as fault:
            # One that was retired since it was listed may be unlinked, which is no fault.
            if await store.fetch(is_live, segment.segment_id):
                failed.append(str(fault))
        done += segment.rows
        show(done, total)
    return uploaded, failed
