"""What Prometheus can scrape. One registry per app, so that two apps never share a counter."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LATENCY_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Metrics:
    """The service's counters and gauges. Labels never carry what a client chose."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "countersign_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._latency = Histogram(
            "countersign_http_request_seconds",
            "Time from a request's arrival to its response's head.",
            ["route"],
            buckets=_LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._journal_rows = Gauge(
            "countersign_journal_rows", "Audit rows not yet in a segment.", registry=self._registry
        )
        self._segments = Gauge(
            "countersign_segments", "Segments in the catalog.", registry=self._registry
        )
        self._segment_rows = Gauge(
            "countersign_segment_rows", "Audit rows in segments.", registry=self._registry
        )
        self._segment_bytes = Gauge(
            "countersign_segment_bytes", "Bytes of all segments.", registry=self._registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. `route` is the pattern, not the path."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def stored(self, journal_rows: int, segments: int, rows: int, size: int) -> None:
        """Set the gauges of what is stored; `size` in bytes."""
        self._journal_rows.set(journal_rows)
        self._segments.set(segments)
        self._segment_rows.set(rows)
        self._segment_bytes.set(size)

    def exposition(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)
