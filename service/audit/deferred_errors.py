"""One tenant-day's bad luck is its own: the others have their turn, then the first is raised."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import structlog

from analytics.model.errors import StoreFault
from service.errors import StoreUnavailable

_log = structlog.get_logger(__name__)


class DeferredErrors:
    """What went wrong with some of many days."""

    def __init__(self, event: str) -> None:
        """`event` is what each of them is logged under."""
        self._event = event
        self._first: Exception | None = None

    @contextmanager
    def of(self, tenant_id: str, day: date) -> Iterator[None]:
        """Log a fault of the block, and go on."""
        try:
            yield
        except (StoreFault, StoreUnavailable) as fault:
            reason = fault.reason if isinstance(fault, StoreUnavailable) else str(fault)
            _log.error(self._event, tenant=tenant_id, day=str(day), reason=reason)
            self._first = self._first or fault

    def raise_first(self) -> None:
        """Raise the first of them, if there was any."""
        if self._first is not None:
            raise self._first
