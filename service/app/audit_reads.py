"""Reads of the audit log: one row for an actor, hour and kind of read, written behind.

Requests do not wait for it. Exports and statements in SQL have rows of their own.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from analytics.model.log_envelopes import AuditRead, ReadKind
from analytics.model.rows import AuditContext
from service.access.callers import Caller, is_allowed
from service.access.roles import Capability
from service.access.sign_in.completion import consume
from service.access.sign_in.signed_cookie import SignedValue, expiry
from service.core.errors import StoreUnavailable
from service.core.metrics import Metrics
from service.store.store import Store
from service.store.tables import Organisation

READS_MAX: Final = 10_000
"""Bounds the memory for reads that wait to be written, and for those known to be."""

MARKED_FOR: Final = timedelta(days=1)
"""How long other processes know that a read is recorded: one that cannot write keeps its reads."""

_ENDPOINTS: Final[dict[ReadKind, str]] = {
    "page": "dashboard.audit_page dashboard.filter_values dashboard_affected.affected_by_page"
    " dashboard_investigate.package_page dashboard_investigate.run_page",
    "row": "dashboard_investigate.row_page dashboard_investigate.row_details"
    " dashboard_investigate.proof_page audit.entry evidence.proof installs.show",
    "live": "dashboard_live.live_rows audit.accepted",
    "api": "audit.page audit.plan audit.summary audit.groups audit.unknown audit.reading"
    " affected.show alerts.alerts alerts.backtest installs.list_"
    " reports.access_report evidence_report.evidence_report",
    "excerpt": "dashboard.overview_page dashboard_binding.binding_page dashboard_find.find_page"
    " dashboard_affected.affected_page dashboard_alerts.alerts_page"
    " dashboard_exports.offer_page dashboard_policy.policy_page dashboard_policy.preview"
    " policy.preview dashboard_proxy.proxy_page dashboard_reports.access_page"
    " dashboard_reports.evidence_page dashboard_trust_map.map_page trust_map.trust_map",
}
KINDS: Final = {name: kind for kind, names in _ENDPOINTS.items() for name in names.split()}
"""The endpoints that show rows, or counts of them, to those who may read the log."""

_Read = tuple[str, str, str, ReadKind]
"""Tenant id, actor, hour and kind."""


class AuditReads:
    """Records reads in memory, if it `is_on`; `flush` writes rows of them."""

    def __init__(self, store: Store, metrics: Metrics, *, is_on: bool) -> None:
        self._store = store
        self._is_on = is_on
        self._dropped = metrics.counter(
            "countersign_audit_reads_dropped",
            "Reads of the audit log that were not recorded: too many waited to be written.",
        )
        self._pending: dict[_Read, AuditContext] = {}
        self._known: set[_Read] = set()

    def record(self, endpoint: str, caller: Caller, org: Organisation, *, at: datetime) -> None:
        """Record that the caller's request to `endpoint` was answered, if it shows them rows."""
        kind = KINDS.get(endpoint) if self._is_on else None
        if kind is None or not is_allowed(caller.require, Capability.AUDIT_READ, org):
            return
        by = caller.audit_context
        read = org.id, by.actor, f"{at:%Y-%m-%dT%H}:00:00Z", kind
        if read in self._known:
            return
        if len(self._pending) >= READS_MAX:
            self._dropped.inc()
            return
        if len(self._known) >= READS_MAX:
            self._known.clear()
        self._known.add(read)
        self._pending[read] = by

    async def flush(self) -> None:
        """Write rows of the pending reads, all or none, apart from those that others have written.

        If the write fails (StoreUnavailable), they are kept for the next call.
        """
        taken, self._pending = self._pending, {}
        if not taken:
            return
        try:
            async with self._store.write() as work:
                for read, by in taken.items():
                    mark = "\0".join(("audit read", *read))
                    value = SignedValue(id=mark, expires_at=expiry(work.now, MARKED_FOR))
                    if await consume(work, value):
                        tenant_id, _, hour, kind = read
                        work.record(tenant_id, AuditRead(hour=hour, kind=kind), by)
        except (StoreUnavailable, asyncio.CancelledError):
            self._pending = taken | self._pending
            raise
