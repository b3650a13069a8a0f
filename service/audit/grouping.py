"""Rows counted by equal values, within the organisation's retention: the API's groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from analytics.model.filters import FILTER_COLUMNS, Query, only, parse_query
from analytics.model.instants import format_us, optional_us
from service.audit.tenant_log import TenantLog
from service.core.errors import Invalid
from service.web.request_parsing import parse_limit

BY_MAX: Final = 3
GROUPS_DEFAULT: Final = 100
GROUPS_MAX: Final = 1_000
_OWN: Final = ("by", "limit")


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """Which rows, the filters whose values make a group, and how many groups."""

    query: Query
    by: list[str]
    limit: int


def parse_group_request(parameters: Mapping[str, list[str]]) -> GroupRequest:
    """The groups in the query parameters. Raises InvalidQuery, Invalid."""
    filters = {name: each for name, each in parameters.items() if name not in _OWN}
    query = parse_query(filters, has_order=False)
    by = parameters.get("by", [])
    if not 1 <= len(by) <= BY_MAX or len(set(by)) < len(by) or set(by) - set(FILTER_COLUMNS):
        names = ", ".join(FILTER_COLUMNS)
        raise Invalid(f"by must be 1 to {BY_MAX} different ones of {names}", field="by")
    return GroupRequest(
        query, by, parse_limit(only(parameters, "limit"), GROUPS_DEFAULT, GROUPS_MAX)
    )


async def group_audit(log: TenantLog, wanted: GroupRequest, time_max_s: float) -> dict[str, Any]:
    """The groups in the API's representation. Raises QueryTooSlow, StoreFault."""
    columns = [FILTER_COLUMNS[name] for name in wanted.by]
    groups = await log.groups(wanted.query, columns, wanted.limit, time_max_s)
    return {
        "org": log.org.slug,
        "by": wanted.by,
        "retention_floor": optional_us(log.floor),
        "groups": [
            {
                "values": dict(zip(wanted.by, group.values, strict=True)),
                "rows": group.rows,
                "blocked": group.blocked,
                "first": format_us(group.first),
                "last": format_us(group.last),
            }
            for group in groups
        ],
    }
