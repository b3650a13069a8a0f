"""The audit page: one page of rows and their summary, both of one snapshot, each read once."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from analytics.model.filters import VALUES_MAX, InvalidQuery, Order
from service.audit.query_service import parse_page_request
from service.audit.services import AuditServices
from service.dashboard.chips import Chip, active_chips
from service.dashboard.retention_window import Kept, kept_by
from service.dashboard.rows import ShownRow, shown_row
from service.dashboard.state import CHARS_MAX, ROWS_DEFAULT, WINDOWS, State
from service.dashboard.summary_panel import SummaryPanel, SummaryUnavailable, load_summary_panel
from service.errors import Invalid, QueryTooSlow
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class Fault:
    """Why no rows are shown. `name` is the parameter that has to be mended, if it is one."""

    status: int
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A page of rows. `summary_panel` is asked by the template, once what stands before it is sent.

    `live` asks for the rows that come in from now on, where they belong on top of these.
    """

    rows: list[ShownRow]
    is_oldest_first: bool
    older: str | None
    newer: str | None
    live: str | None
    summary_panel: Callable[[], Awaitable[SummaryPanel | SummaryUnavailable]]


@dataclass(frozen=True, slots=True)
class AuditView:
    """What the template shows: `found`, or a `fault` instead."""

    state: State
    chips: list[Chip]
    windows: dict[str, str]
    export_query: str
    mended: str
    kept: Kept
    found: Found | None = None
    fault: Fault | None = None

    @property
    def status(self) -> int:
        """Of the answer: to a script, too, a fault must not look like rows."""
        return 200 if self.fault is None else self.fault.status

    @property
    def carried(self) -> list[tuple[str, str]]:
        """What the form sends along besides its own fields: all that is filtered but the fault."""
        faulty = None if self.fault is None else self.fault.name
        return [(name, value) for name, value in self.state.carried if name != faulty]


_TOO_LONG: Final = (
    f"at most {VALUES_MAX} filter values of {CHARS_MAX} characters together in one address"
)


async def load_audit_view(services: AuditServices, org: Organisation, state: State) -> AuditView:
    """What the page with this state shows of `org` now. Raises StoreFault, StoreUnavailable."""
    now = services.clock()
    kept = kept_by(org, now)
    found, fault = None, None
    if state.is_too_long:
        state, fault = State({}), Fault(Invalid.status, _TOO_LONG)
    exact = state.as_of(now)
    try:
        if fault is None:
            found = await _find(services, org, kept, state, exact, now)
    except (InvalidQuery, Invalid) as error:
        fault = _fault_of(error, state)
    except QueryTooSlow as error:
        fault = Fault(error.status, error.text)
    return AuditView(
        state=state,
        chips=active_chips(state),
        windows=_windows(state, kept),
        export_query=urlencode(exact.filters, doseq=True),
        mended=state.mended(None if fault is None else fault.name).href,
        kept=kept,
        found=found,
        fault=fault,
    )


async def _find(
    services: AuditServices,
    org: Organisation,
    kept: Kept,
    state: State,
    exact: State,
    now: datetime,
) -> Found:
    """The rows, and the way to their summary. Raises InvalidQuery, Invalid, QueryTooSlow."""
    state.check_window()
    wanted = parse_page_request({"limit": [ROWS_DEFAULT], **exact.asked})
    rows_now = await services.store.snapshot(org.id)
    page = await services.queries.page(org, wanted, now, rows_now)
    newer = exact.newer()
    return Found(
        rows=[shown_row(entry, state) for entry in page.entries],
        is_oldest_first=wanted.query.order is Order.OLDEST_FIRST,
        older=None if page.next_cursor is None else exact.older(page.next_cursor).href,
        newer=None if newer is None else newer.href,
        live=state.live(rows_now.watermark).href if state.is_live else None,
        summary_panel=lambda: load_summary_panel(
            services.lake, rows_now, wanted.query, kept.floor, now, state
        ),
    )


def _fault_of(error: InvalidQuery | Invalid, state: State) -> Fault:
    return Fault(Invalid.status, str(error), error.field if error.field in state.given else None)


def _windows(state: State, kept: Kept) -> dict[str, str]:
    """The windows that the organisation's rows can fill, and their links."""
    return {
        name: state.within(name).href
        for name, length in WINDOWS.items()
        if kept.days is None or length.days <= kept.days
    }
