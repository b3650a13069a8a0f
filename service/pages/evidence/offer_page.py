"""What an export would hold, before it is made: filters, window, floor, rows, guarded names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from analytics.export.csv_json import GUARDED
from analytics.model.filters import Condition, Query, Term, parse_query
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.core.errors import QUERY_REFUSALS
from service.pages.chips import named_by
from service.pages.display_names import find_names
from service.pages.evidence.exports_page import filter_words
from service.pages.state import parse_state
from service.store.tables import Organisation

_NAMES_GUARDED: Final = Condition(
    "package_name",
    tuple(
        Term(start, is_prefix=True, is_negated=False) for start in GUARDED if start.isprintable()
    ),
)
"""Package names that CSV's formula guard changes."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The template's data.

    `query` is the export's query string; `cuts_off` says that the floor may hide rows that were
    asked for; `rows` is how many there are, and `guarded` how many of them have a package name that
    CSV's formula guard changes; None: counting took too long.
    """

    query: str
    filters: list[str]
    since: datetime | None
    until: datetime | None
    floor: datetime | None
    cuts_off: bool
    rows: int | None
    guarded: int | None


async def load_offer(
    services: AuditServices, org: Organisation, parameters: Mapping[str, Sequence[str]]
) -> Offer:
    """What an export with the filters of an audit page would hold now.

    Raises InvalidQuery, StoreFault.
    """
    now = services.clock()
    state = parse_state(parameters)
    state.check_window()
    given = state.as_of(now).filters
    query = parse_query(given)
    log = await open_log(services.store, services.lake, org, now)
    within = log.within(query)
    time_max_s = services.settings.query_max_s
    guarded = replace(query, conditions=(*query.conditions, _NAMES_GUARDED))
    async with services.store.read() as session:
        names = await find_names(session, org.id, actors=named_by(given))
    return Offer(
        query=urlencode(given, doseq=True),
        filters=filter_words(given, names),
        since=within.since,
        until=within.until,
        floor=log.floor,
        cuts_off=_cuts_off(org, query, log.floor),
        rows=await _count(log, query, time_max_s),
        guarded=await _count(log, guarded, time_max_s),
    )


def _cuts_off(org: Organisation, query: Query, floor: datetime | None) -> bool:
    """Whether rows that the filters match may be hidden by the retention floor."""
    asked_from = org.created_at if query.since is None else query.since
    return floor is not None and asked_from < floor


async def _count(log: TenantLog, query: Query, time_max_s: float) -> int | None:
    try:
        return await log.count(query, time_max_s)
    except QUERY_REFUSALS:
        return None
