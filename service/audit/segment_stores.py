"""Opens the store of segments that the settings name."""

from importlib.util import find_spec

from analytics.storage.bucket_place import parse_place
from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.objects import Objects
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_store import LocalFolder, SegmentStore
from service.core.extras import how_to_install
from service.core.settings import InvalidSetting, Settings


def open_segments(settings: Settings, observer: CacheObserver) -> SegmentStore:
    """The data dir's own folder, or a bucket whose copies are kept in it. Its caller closes it.

    No request is sent. Raises OSError, and StoreFault where this system cannot share a cache.
    """
    if not settings.segments_url:
        return LocalFolder(settings.audit_dir)
    return open_s3(settings, observer)


def open_s3(settings: Settings, observer: CacheObserver) -> S3Segments:
    """The bucket of COUNTERSIGN_SEGMENTS_URL. Raises as `open_segments`."""
    cache = CacheFolder(
        settings.audit_dir, settings.segment_cache_mb * 2**20, settings.segments_wait_s, observer
    )
    return S3Segments(open_objects(settings), cache, observer)


def open_objects(settings: Settings) -> Objects:
    """The objects in that bucket. Raises as `open_objects_at`."""
    return open_objects_at(settings, settings.segments_url)


def open_objects_at(settings: Settings, url: str) -> Objects:
    """The objects at `url`. Raises InvalidSetting without the package for it, InvalidPlace."""
    if find_spec("obstore") is None:
        raise InvalidSetting(
            f"COUNTERSIGN_SEGMENTS_URL: S3 needs the extra `s3`: {how_to_install('s3')}"
        )
    return Objects(parse_place(url), settings.segments_endpoint, settings.segments_wait_s)
