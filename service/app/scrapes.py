"""The page of metrics: what each process counts, and what the database says at the time."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from service.audit.stats import storage_stats_by_tenant
from service.core.clock import Clock
from service.core.metrics import Metrics
from service.core.storage_stats import StorageStats, total_of
from service.core.threads import in_thread
from service.orgs.api_keys import count_expiring_keys
from service.packages.policy.blocklist_contents import FeedState
from service.packages.policy.repository import load_feed_states
from service.store.store import Store

_STORED: Final = {
    "journal_rows": "Audit rows not yet in a segment.",
    "journal_batches": "Journal batches not yet in a segment.",
    "segments": "Segments in the catalog.",
    "segment_rows": "Audit rows in segments.",
    "segment_bytes": "Bytes of all segments.",
    "damaged_segments": "Segments that were missing or damaged when last verified.",
    "damaged_batches": "Journal batches that were damaged when last verified.",
    "retired_segments": "Merged or pruned segments whose files wait to be unlinked.",
    "retired_bytes": "Bytes of merged or pruned segments whose files wait to be unlinked.",
    "locked_segments": "Segments whose objects were locked.",
    "lock_kept_segments": "Retired segments that an object lock or a legal hold keeps.",
    "lock_kept_bytes": "Bytes of retired segments that an object lock or a legal hold keeps.",
}
"""Fields of StorageStats, each a gauge of all organisations together and one of each."""


class Scrapes:
    """The page, made in a thread, and by all who ask together once in `max_age_s`."""

    def __init__(self, store: Store, metrics: Metrics, clock: Clock, max_age_s: float) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._max_age_s = max_age_s
        self._making = asyncio.Lock()
        self._made: tuple[float, bytes] | None = None

    async def get(self) -> bytes:
        """The page. Raises StoreUnavailable."""
        async with self._making:
            now = time.monotonic()
            if self._made is None or now - self._made[0] >= self._max_age_s:
                async with self._store.read() as session:
                    stored = await storage_stats_by_tenant(session)
                    feeds = await load_feed_states(session)
                    keys = await count_expiring_keys(session, self._clock())
                self._made = now, await in_thread(self._page, stored, feeds, keys)
            return self._made[1]

    def _page(
        self,
        stored: Mapping[str, StorageStats],
        feeds: Sequence[FeedState],
        keys: Mapping[str, int],
    ) -> bytes:
        """Of 5,000 organisations the gauges alone take a fifth of a second."""
        self._metrics.show([*_storage(stored), *_blocklist(feeds), _expiring_keys(keys)])
        return self._metrics.exposition()


def _storage(by_tenant: Mapping[str, StorageStats]) -> Iterator[Metric]:
    """The totals, then each tenant's."""
    total = total_of(by_tenant.values())
    for name, text in _STORED.items():
        yield GaugeMetricFamily(f"countersign_{name}", text, value=getattr(total, name))
    for name, text in _STORED.items():
        values = {tenant: getattr(stored, name) for tenant, stored in by_tenant.items()}
        yield _of_each_tenant(name, text, values)
    # Not `days`: Prometheus takes the end of a name for its unit.
    days = {tenant: stored.days for tenant, stored in by_tenant.items()}
    yield _of_each_tenant("dates", "UTC days with audit rows.", days)
    oldest = {tenant: _seconds(each.oldest_sealed_at) for tenant, each in by_tenant.items()}
    text = "When the oldest sealed row was created."
    yield _of_each_tenant("oldest_sealed_timestamp_seconds", text, oldest)


def _expiring_keys(by_tenant: Mapping[str, int]) -> Metric:
    """Only of tenants that have any."""
    text = "API keys that end within 7 days and were not rotated."
    return _of_each_tenant("api_keys_expiring", text, by_tenant)


def _blocklist(feeds: Sequence[FeedState]) -> Iterator[Metric]:
    """How many advisories there are, and how old they are."""
    imported = "When a file was last imported; with several kinds of ids, the one longest ago."
    modified = "When the newest imported record was changed."
    gauges: dict[tuple[str, str], Callable[[FeedState], float | None]] = {
        ("advisories", "Advisories in force."): lambda feed: feed.advisories,
        ("imported_timestamp_seconds", imported): lambda feed: feed.imported_at.timestamp(),
        ("modified_timestamp_seconds", modified): lambda feed: _seconds(feed.modified_at),
    }
    for (name, text), value_of in gauges.items():
        values = [((feed.feed, str(feed.ecosystem)), value_of(feed)) for feed in feeds]
        about = f"Of each feed of the blocklist: {text}"
        yield _family(f"blocklist_{name}", about, ["feed", "ecosystem"], values)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _of_each_tenant(name: str, text: str, values: Mapping[str, float | None]) -> Metric:
    lines = [((tenant,), value) for tenant, value in values.items()]
    return _family(f"tenant_{name}", f"Of each tenant: {text}", ["tenant"], lines)


def _family(
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    family = GaugeMetricFamily(f"countersign_{name}", text, labels=labels)
    for key, value in values:
        if value is not None:
            family.add_metric(key, value)
    return family
