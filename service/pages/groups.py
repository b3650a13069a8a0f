"""Rows grouped by equal values, as pages about a package or a run list them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from quart import url_for

from analytics.model.filters import FILTER_COLUMNS, parse_query
from analytics.query.aggregates import Group
from service.audit.actor_names import names_of_actors
from service.audit.tenant_log import TenantLog
from service.pages.display_names import NAMED_FILTERS, may_be_named, value_in_words
from service.pages.state import State
from service.pages.summary_panel import GLANCE_MAX_S, SummaryUnavailable, or_unavailable
from service.store.store import Store

GROUPS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """Rows with equal values: the values, a text for people, and the link to the rows.

    `href` is None if a value is null: no filter finds just these rows.
    """

    values: dict[str, str | None]
    text: str
    rows: int
    blocked: int
    first: datetime
    last: datetime
    href: str | None


async def load_groups(
    store: Store,
    log: TenantLog,
    state: State,
    by: Sequence[str],
    now: datetime | None = None,
) -> list[ShownGroup] | SummaryUnavailable:
    """The largest groups of the rows of `state` with equal values of the filters `by`.

    A state with a window up to `now` needs that.
    """
    query = parse_query((state if now is None else state.as_of(now)).filters)
    columns = [FILTER_COLUMNS[name] for name in by]
    groups = await or_unavailable(log.groups(query, columns, GROUPS_MAX, GLANCE_MAX_S))
    if isinstance(groups, SummaryUnavailable):
        return groups
    is_named = any(name in NAMED_FILTERS for name in by)
    named = may_be_named(value for group in groups for value in group.values) if is_named else ()
    async with store.read() as session:
        names = await names_of_actors(session, log.org.id, named)
    return [_shown(group, by, state, names) for group in groups]


def of_log(slug: str, **filters: str) -> State:
    """The audit page with the rows that have exactly these values."""
    state = State({}, url_for("dashboard.audit_page", slug=slug))
    for name, value in filters.items():
        state = state.only(name, value)
    return state


def _shown(group: Group, by: Sequence[str], state: State, names: dict[str, str]) -> ShownGroup:
    values = dict(zip(by, group.values, strict=True))
    for name, value in values.items():
        if value:
            state = state.only(name, value)
    text = " ".join(value_in_words(name, value, names) for name, value in values.items() if value)
    return ShownGroup(
        values=values,
        text=text or "none",
        rows=group.rows,
        blocked=group.blocked,
        first=group.first,
        last=group.last,
        href=state.href if all(values.values()) else None,
    )
