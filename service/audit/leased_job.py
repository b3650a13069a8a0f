"""Jobs that change segments under the lease, day by day."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

import structlog

from analytics.model.errors import StoreFault
from service.audit.lake import Lake
from service.audit.refusals import QueryTooSlow
from service.core.clock import Clock
from service.core.errors import Busy, ServerBusy, StoreUnavailable
from service.core.metrics import Metrics
from service.core.settings import Settings
from service.store.lease import LeaseKeeper
from service.store.store import Store


@dataclass(eq=False)
class LeasedJob:
    """The dependencies of such a job."""

    _settings: Settings
    _store: Store
    _lake: Lake
    _lease: LeaseKeeper
    _clock: Clock


@dataclass(eq=False)
class MeasuredJob(LeasedJob):
    """Also one with metrics of its own."""

    _metrics: Metrics


_log = structlog.get_logger(__name__)


class DeferredErrors:
    """Collects the errors of days; logs each and keeps the first."""

    def __init__(self, event: str) -> None:
        """`event` is the log event of each error."""
        self._event = event
        self._first: Exception | None = None

    @contextmanager
    def of(self, tenant_id: str, day: date) -> Iterator[None]:
        """Log a fault of the block and suppress it."""
        try:
            yield
        except (StoreFault, StoreUnavailable, QueryTooSlow, Busy, ServerBusy) as fault:
            reason = fault.reason if isinstance(fault, StoreUnavailable) else str(fault)
            _log.error(self._event, tenant=tenant_id, day=str(day), reason=reason)
            self._first = self._first or fault

    def raise_first(self) -> None:
        """Raise the first collected error, if there is one."""
        if self._first is not None:
            raise self._first
