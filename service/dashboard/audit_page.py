"""The audit page: a page of rows and their summary, read once each from the same snapshot."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from analytics.model.filters import VALUES_MAX, InvalidQuery, Order
from service.audit.query_service import parse_page_request
from service.audit.services import AuditServices
from service.audit.tenant_log import open_log
from service.dashboard.chips import Chip, active_chips
from service.dashboard.retention_window import RetentionWindow, retention_window
from service.dashboard.rows import ShownRow, shown_row
from service.dashboard.state import CHARS_MAX, ROWS_DEFAULT, WINDOWS, State
from service.dashboard.summary_panel import SummaryPanel, SummaryUnavailable, load_summary_panel
from service.errors import Invalid, QueryTooSlow
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no rows are shown. `name` is the parameter to correct, if it is about one."""

    status: int
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """A page of rows. The template calls `summary_panel` after it has sent what precedes it.

    `live` is the query for rows accepted from now on, if they belong on top of these.
    """

    rows: list[ShownRow]
    is_oldest_first: bool
    older: str | None
    newer: str | None
    live: str | None
    summary_panel: Callable[[], Awaitable[SummaryPanel | SummaryUnavailable]]


@dataclass(frozen=True, slots=True)
class AuditView:
    """The template's data: `results`, or a `fault` instead."""

    state: State
    chips: list[Chip]
    windows: dict[str, str]
    export_query: str
    without_fault: str
    retention: RetentionWindow
    results: Results | None = None
    fault: Fault | None = None

    @property
    def status(self) -> int:
        """The HTTP status: a script must be able to tell a fault from rows."""
        return 200 if self.fault is None else self.fault.status

    @property
    def carried(self) -> list[tuple[str, str]]:
        """The form's hidden fields: all current filters except the faulty one."""
        faulty = None if self.fault is None else self.fault.name
        return [(name, value) for name, value in self.state.carried if name != faulty]


_TOO_LONG: Final = (
    f"at most {VALUES_MAX} filter values of {CHARS_MAX} characters together in one address"
)


async def load_audit_view(services: AuditServices, org: Organisation, state: State) -> AuditView:
    """The data of the page with this state, as of now. Raises StoreFault, StoreUnavailable."""
    now = services.clock()
    retention = retention_window(org, now)
    results, fault = None, None
    if state.is_too_long:
        state, fault = State({}), Fault(Invalid.status, _TOO_LONG)
    exact = state.as_of(now)
    try:
        if fault is None:
            results = await _find(services, org, state, exact, now)
    except (InvalidQuery, Invalid) as error:
        fault = _fault_of(error, state)
    except QueryTooSlow as error:
        fault = Fault(error.status, error.text)
    return AuditView(
        state=state,
        chips=active_chips(state),
        windows=_windows(state, retention),
        export_query=urlencode(exact.filters, doseq=True),
        without_fault=state.without_invalid(None if fault is None else fault.name).href,
        retention=retention,
        results=results,
        fault=fault,
    )


async def _find(
    services: AuditServices,
    org: Organisation,
    state: State,
    exact: State,
    now: datetime,
) -> Results:
    """The rows, and how to load their summary. Raises InvalidQuery, Invalid, QueryTooSlow."""
    state.check_window()
    wanted = parse_page_request({"limit": [ROWS_DEFAULT], **exact.asked})
    log = await open_log(services.store, services.lake, org, now)
    page = await services.queries.page(org, wanted, now, log)
    newer = exact.newer()
    return Results(
        rows=[shown_row(entry, state) for entry in page.entries],
        is_oldest_first=wanted.query.order is Order.OLDEST_FIRST,
        older=None if page.next_cursor is None else exact.older(page.next_cursor).href,
        newer=None if newer is None else newer.href,
        live=state.live(log.snapshot.watermark).href if state.is_live else None,
        summary_panel=lambda: load_summary_panel(log, wanted.query, now, state),
    )


def _fault_of(error: InvalidQuery | Invalid, state: State) -> Fault:
    return Fault(Invalid.status, str(error), error.field if error.field in state.given else None)


def _windows(state: State, retention: RetentionWindow) -> dict[str, str]:
    """The windows within the organisation's retention, and their links."""
    return {
        name: state.within(name).href
        for name, length in WINDOWS.items()
        if retention.days is None or length.days <= retention.days
    }
