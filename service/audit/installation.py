"""Where segments are, and whose: the folder or bucket, and the installation that owns its prefix.

All nodes over one database are one installation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from analytics.model.errors import StoreFault
from analytics.storage.bucket_place import parse_place
from analytics.storage.cache_folder import CacheFolder, CacheObserver
from analytics.storage.object_lock import LockMode, NoObjectLock, ObjectLocks
from analytics.storage.objects import Objects
from analytics.storage.prefix_owner import PrefixOwner, PrefixTaken
from analytics.storage.s3_segments import S3Segments
from analytics.storage.segment_store import LocalFolder, SegmentStore, awake_s
from service.core.errors import Conflict
from service.core.ids import new_id
from service.core.settings import InvalidSetting, Settings, how_to_install
from service.core.threads import in_thread
from service.store.catalog import list_segment_ids
from service.store.store import Store
from service.store.tables import Fact


def open_segments(settings: Settings, observer: CacheObserver) -> SegmentStore:
    """The data dir's own folder, or a bucket whose copies are kept in it. Its caller closes it.

    No request is sent. Raises OSError, and StoreFault where this system cannot share a cache.
    """
    if not settings.segments_url:
        return LocalFolder(settings.audit_dir)
    cache = CacheFolder(
        settings.audit_dir, settings.segment_cache_mb * 2**20, settings.segments_wait_s, observer
    )
    return S3Segments(open_objects(settings), cache, observer, open_locks(settings))


def open_locks(settings: Settings) -> ObjectLocks | None:
    """The locks of objects in that bucket; None where COUNTERSIGN_OBJECT_LOCK is off.

    Raises InvalidSetting without the package for it.
    """
    if settings.object_lock == "off":
        return None
    if find_spec("botocore") is None:
        raise InvalidSetting(
            f"COUNTERSIGN_OBJECT_LOCK needs the extra `s3`: {how_to_install('s3')}"
        )
    return ObjectLocks(
        parse_place(settings.segments_url),
        settings.segments_endpoint,
        settings.segments_wait_s,
        LockMode(settings.object_lock),
    )


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


_FACT: Final = "installation"
_log = structlog.get_logger(__name__)


PREFIX_OF_ANOTHER: Final = Conflict.of(
    "{value}: set COUNTERSIGN_SEGMENTS_URL to a prefix of its own; if this installation"
    " replaces the other one, stop that one and run `countersign audit take-over`"
)

NO_OBJECT_LOCK: Final = Conflict.of(
    "{value}: create another bucket with object lock, or leave COUNTERSIGN_OBJECT_LOCK off"
)


async def installation_id(store: Store) -> str:
    """The id of the installation that the database is of; a new one if it has none yet."""
    async with store.read() as session:
        fact = await session.get(Fact, _FACT)
    if fact is not None:
        return fact.value
    async with store.write() as work:
        fact = await work.session.get(Fact, _FACT)
        return fact.value if fact is not None else await renew_installation(work.session)


async def renew_installation(session: AsyncSession, installation: str = "") -> str:
    """Make the database that of another installation: `installation`, or a new one; its id."""
    fact = Fact(name=_FACT, value=installation or new_id("inst"))
    await session.merge(fact)
    return fact.value


class PrefixGuard:
    """Confirms that the prefix is this installation's before objects are written or removed."""

    def __init__(self, owner: PrefixOwner, store: Store) -> None:
        self._owner = owner
        self._store = store
        self._confirmed_s = float("-inf")

    async def confirm(self, age_max_s: float = 0.0) -> None:
        """Return if the prefix is ours, or was at most `age_max_s` ago; make it ours if it is free.

        Raises PrefixTaken, StoreFault.
        """
        now_s = awake_s()
        if now_s - self._confirmed_s <= age_max_s:
            return
        self._confirmed_s = float("-inf")  # a failure is no confirmation for anything else either
        installation = await installation_id(self._store)
        if not await in_thread(self._owner.is_owner, installation):
            known = await self._store.fetch(list_segment_ids)
            await in_thread(self._owner.adopt, installation, known)
        self._confirmed_s = now_s


def prefix_guard(settings: Settings, store: Store) -> PrefixGuard | None:
    """The guard of the prefix that `settings` name; None for segments in a folder."""
    if not settings.segments_url:
        return None
    return PrefixGuard(PrefixOwner(open_objects(settings)), store)


async def keep_prefix(settings: Settings, store: Store) -> None:
    """Confirm, before anything runs, that the prefix of `settings` is this installation's.

    And that the bucket has object lock, where it is to be used.

    A bucket that cannot be reached does not keep a service from starting: before anything is
    written to it or removed, this is made up for. Raises PREFIX_OF_ANOTHER, NO_OBJECT_LOCK.
    """
    guard, locks = prefix_guard(settings, store), open_locks(settings)
    if guard is None:
        return
    try:
        with prefix_refusals():
            await guard.confirm()
        if locks is not None:
            locks.check_enabled()
    except NoObjectLock as error:
        raise NO_OBJECT_LOCK(value=str(error)) from error
    except StoreFault as error:
        _log.warning("prefix_not_confirmed", reason=str(error))


@contextmanager
def prefix_refusals() -> Iterator[None]:
    """Raise PREFIX_OF_ANOTHER where the block raises PrefixTaken."""
    try:
        yield
    except PrefixTaken as error:
        raise PREFIX_OF_ANOTHER(value=str(error)) from error


async def take_over(settings: Settings, store: Store) -> str:
    """Make the prefix this installation's, under a new id; that id.

    Another installation that uses the prefix, or a copy of this database, stops writing to it.
    Raises StoreFault.
    """
    async with store.write() as work:
        installation = await renew_installation(work.session)
    PrefixOwner(open_objects(settings)).take_over(installation)
    return installation
