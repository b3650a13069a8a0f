"""The page of one audit row, with the number of rows that share each of its values."""

from dataclasses import dataclass, replace

from analytics.model.filters import FILTER_COLUMNS, Condition, Query, Term
from service.audit.query_service import find_entry
from service.audit.tenant_log import TenantLog, open_log
from service.pages.investigate.groups import of_log
from service.pages.retention_window import RetentionWindow, retention_window
from service.pages.rows import Pivot, ShownRow, pretty_json
from service.pages.services import DashboardServices
from service.pages.shown_rows import load_shown_rows
from service.pages.streaming import Later
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.tables import Organisation


@dataclass(frozen=True, slots=True)
class RowView:
    """The page's data. `pivots` lead to the rows with the same values, and are counted later."""

    row: ShownRow
    json: str
    pivots: Later[list[Pivot]]
    retention: RetentionWindow


async def load_row_view(services: DashboardServices, org: Organisation, audit_id: str) -> RowView:
    """The view of the row `audit_id`. Raises AuditRowNotFound, StoreFault, QueryTooSlow."""
    now = services.clock()
    log = await open_log(services.store, services.audit.lake, org, now)
    text = await find_entry(log, audit_id)
    (row,) = await load_shown_rows(services, org, [text], of_log(org.slug), now)
    pivots = Later(lambda: count_pivots(log, row.pivots))
    return RowView(row, pretty_json(row.entry), pivots, retention_window(org, now))


async def count_pivots(log: TenantLog, pivots: list[Pivot]) -> list[Pivot]:
    """`pivots` with their numbers of rows within the retention, where they can be counted."""
    counted = []
    for pivot in pivots:
        term = Term(pivot.value, is_prefix=False, is_negated=False)
        query = Query(conditions=(Condition(FILTER_COLUMNS[pivot.name], (term,)),))
        count = await or_unavailable(log.count(query, GLANCE_MAX_S))
        known = None if isinstance(count, SummaryUnavailable) else count
        counted.append(replace(pivot, count=known))
    return counted
