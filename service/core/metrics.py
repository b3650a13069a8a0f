"""Metrics for Prometheus. Each app has a registry of its own.

Processes that serve together share their counts through files (prometheus_client's multiprocess
mode, which the environment variable PROMETHEUS_MULTIPROC_DIR turns on before this is imported), so
that a scrape of one of them shows all.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from analytics.storage.cache_folder import CacheObserver
from service.core.fair_queue import Length, TurnObserver
from service.core.process_metrics import ProcessesCollector
from service.core.version import service_version

_LATENCY_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


GaugeMode = Literal["max", "livemax", "livemin", "livesum"]


class SegmentCacheMetrics(CacheObserver):
    """What is counted of the cache of segments."""

    def __init__(self, metrics: "Metrics") -> None:
        uses = metrics.counter(
            "countersign_segment_cache_files",
            "Files of segments that were needed: found in the cache (hit), or fetched (miss).",
            "result",
        )
        self._hits, self._misses = uses.labels("hit"), uses.labels("miss")
        self._bytes = metrics.counter(
            "countersign_segment_cache_fetched_bytes",
            "Bytes of segments fetched from the object store.",
        )
        self._fetch_latency = metrics.histogram(
            "countersign_segment_cache_fetch_seconds", "Time to fetch one file of a segment."
        )
        self._dropped = metrics.counter(
            "countersign_segment_cache_evictions",
            "Files that were dropped from the cache to make room.",
        )

    def hit(self, files: int) -> None:
        """Count files that were there."""
        if files:
            self._hits.inc(files)

    def fetched(self, size: int, seconds: float) -> None:
        """Count a file that was fetched."""
        self._misses.inc()
        self._bytes.inc(size)
        self._fetch_latency.observe(seconds)

    def dropped(self, files: int) -> None:
        """Count files that were dropped."""
        self._dropped.inc(files)


TENANTS_MAX: Final = 500
"""So many organisations have a series of their own in one process; the others share one."""


WORK: Final = ("short query", "long query", "export")
"""What organisations take turns at."""


class TurnMetrics:
    """What is counted of turns."""

    def __init__(self, metrics: "Metrics") -> None:
        self.used = metrics.counter(
            "countersign_tenant_work_seconds",
            "Of each tenant: time that its queries, pieces of its exports and requests ran.",
            "tenant",
            "work",
        )
        self.refused = metrics.counter(
            "countersign_tenant_work_refused",
            "Of each tenant: queries that were refused, or waited too long for their turn.",
            "tenant",
        )
        self.waits = metrics.histogram(
            "countersign_turn_wait_seconds",
            "Time that a query, or a piece of an export, waited for its turn.",
            "work",
        )
        self.waiting = metrics.gauge(
            "countersign_turns_waiting",
            "Queries and pieces of exports that wait for their turn.",
            "work",
            mode="livesum",
        )
        for work in WORK:
            self.waits.labels(work)
            self.waiting.labels(work)
        self._tenants: set[str] = set()

    def request_ended(self, tenant_id: str, used_s: float) -> None:
        """Count the time of the event loop that a request used."""
        self.used.labels(self.label(tenant_id), "request").inc(used_s)

    def label(self, tenant_id: str) -> str:
        """The tenant, or `other` for one of more than have a series of their own."""
        if len(self._tenants) < TENANTS_MAX:
            self._tenants.add(tenant_id)
        return tenant_id if tenant_id in self._tenants else "other"


class TurnsAt(TurnObserver):
    """Counts the turns of one FairTurns, whose jobs are named by their length."""

    def __init__(self, metrics: TurnMetrics, short: str, long: str) -> None:
        self._metrics = metrics
        self._work = {Length.SHORT: short, Length.LONG: long}

    def waiting(self, length: Length, jobs: int) -> None:
        """Show how many jobs wait."""
        self._metrics.waiting.labels(self._work[length]).set(jobs)

    def began(self, length: Length, waited_s: float) -> None:
        """Note how long a job waited."""
        self._metrics.waits.labels(self._work[length]).observe(waited_s)

    def ended(self, tenant_id: str, length: Length, used_s: float) -> None:
        """Count the time that a job ran."""
        tenant = self._metrics.label(tenant_id)
        self._metrics.used.labels(tenant, self._work[length]).inc(used_s)

    def refused(self, tenant_id: str) -> None:
        """Count a job that was refused."""
        self._metrics.refused.labels(self._metrics.label(tenant_id)).inc()


class Metrics:
    """The service's counters and gauges. Labels never carry what a client chose.

    Nor a name: who can reach the port can read them, so an organisation is its opaque tenant id.
    """

    def __init__(self, *, is_shared: bool = False, is_serving: bool = True) -> None:
        """`is_shared` with other processes; one that does not serve verifies no token."""
        self._registry = CollectorRegistry()
        self._is_shared = is_shared
        self.is_serving = is_serving
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._requests = self.counter(
            "countersign_http_requests", "Requests answered.", "method", "route", "status"
        )
        self._latency = self.histogram(
            "countersign_http_request_seconds",
            "Time from a request's arrival to its response's head.",
            "route",
        )
        self.loop_pauses = self.histogram(
            "countersign_loop_pause_seconds",
            "How late the event loop was for a timer, four times a second.",
        )
        # Bounded like the labels; prometheus_client looks them up under a lock each time.
        self._requests_of = cache(self._requests.labels)
        self._latency_of = cache(self._latency.labels)
        self._last_look = LastLook()
        self._alike = (self._last_look, BuildCollector(), ProcessesCollector())
        for collector in self._alike:
            self._registry.register(collector)
        self._add_proxy_metrics()
        self.segment_cache = SegmentCacheMetrics(self)
        turns = TurnMetrics(self)
        self.request_ended = turns.request_ended
        self.query_turns = TurnsAt(turns, "short query", "long query")
        self.export_turns = TurnsAt(turns, "export", "export")

    def _add_proxy_metrics(self) -> None:
        """What is counted of the install proxy."""
        self._package_caches = self.counter(
            "countersign_proxy_cache_uses",
            "Uses of the proxy's caches, by what came of them.",
            "cache",
            "result",
        )
        self._package_cache_of = cache(self._package_caches.labels)
        self._upstream_latency = self.histogram(
            "countersign_proxy_upstream_seconds",
            "Time from a request to a package registry to its response's head.",
            "ecosystem",
        )
        self._circuits_open = self.gauge(
            "countersign_proxy_circuit_open",
            "1 while a process does not ask a registry's origin, because it did not answer.",
            "registry",
            "origin",
            mode="livemax",
        )
        self._upstream_requests = self.gauge(
            "countersign_proxy_upstream_requests",
            "Requests to package registries that are under way or wait for a place.",
            "tenant",
            "state",
            mode="livesum",
        )
        self._upstream_requests_of = cache(self._upstream_requests.labels)
        self._proxy_answers = self.gauge(
            "countersign_proxy_answers",
            "Answers to package managers that are under way.",
            "tenant",
            mode="livesum",
        )
        self._proxy_answers_of = cache(self._proxy_answers.labels)
        self._proxy_refused = self.counter(
            "countersign_proxy_refused",
            "Requests of package managers, or their requests to registries, that got a 429.",
            "tenant",
            "reason",
        )

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """The counter of this name: what counts declares it."""
        if name not in self._counters:
            self._counters[name] = Counter(name, text, labels, registry=self._registry)
        return self._counters[name]

    def gauge(self, name: str, text: str, *labels: str, mode: GaugeMode) -> Gauge:
        """The gauge of this name; `mode` says which of several processes' values is shown."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(
                name, text, labels, registry=self._registry, multiprocess_mode=mode
            )
        return self._gauges[name]

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        """A new histogram of durations in seconds."""
        return Histogram(name, text, labels, buckets=_LATENCY_BUCKETS_S, registry=self._registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. `route` is the pattern, not the path."""
        known = method if method in _METHODS else "other"
        self._requests_of(known, route, str(status)).inc()
        self._latency_of(route).observe(seconds)

    def show(self, families: Sequence[Metric]) -> None:
        """Show what the database says now, in place of what it said before."""
        self._last_look.families = families

    def package_cache_used(self, name: str, result: str) -> None:
        """Count a use of one of the proxy's caches."""
        self._package_cache_of(name, result).inc()

    def circuit_changed(self, registry: str, origin: str, is_open: bool) -> None:
        """Show whether an origin of a registry is spared."""
        self._circuits_open.labels(registry, origin).set(is_open)

    def proxy_requests(self, tenant_id: str, under_way: int, waiting: int) -> None:
        """Show how many requests of an organisation are at registries, and wait for a place."""
        self._upstream_requests_of(tenant_id, "under_way").set(under_way)
        self._upstream_requests_of(tenant_id, "waiting").set(waiting)

    def proxy_answers(self, tenant_id: str, under_way: int) -> None:
        """Show how many answers to an organisation's package managers are under way."""
        self._proxy_answers_of(tenant_id).set(under_way)

    def proxy_refused(self, tenant_id: str, reason: str) -> None:
        """Count a request of an organisation that exceeds a limit."""
        self._proxy_refused.labels(tenant_id, reason).inc()

    def upstream_began(self, ecosystem: str, seconds: float) -> None:
        """Note how long a package registry took until its response began."""
        self._upstream_latency.labels(ecosystem).observe(seconds)

    def exposition(self) -> bytes:
        """Everything, in Prometheus' text format."""
        if not self._is_shared:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        for collector in self._alike:
            registry.register(collector)
        return generate_latest(registry)


class BuildCollector(Collector):
    """A gauge whose label is the version that runs."""

    def __init__(self) -> None:
        self._version = service_version()

    def collect(self) -> Iterator[Metric]:
        """The value is always 1."""
        family = GaugeMetricFamily(
            "countersign_build_info", "The version that runs.", labels=["version"]
        )
        family.add_metric([self._version], 1)
        yield family


class LastLook(Collector):
    """What the database said when it was last looked at."""

    families: Sequence[Metric] = ()

    def collect(self) -> Iterator[Metric]:
        """As it was shown."""
        return iter(self.families)
