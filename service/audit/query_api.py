"""The endpoints that read the audit log: pages, summaries, groups, single rows, those accepted."""

from functools import lru_cache
from typing import Annotated, Final

from msgspec import UNSET, Meta, Raw, Struct
from quart import Response

from analytics.model.filters import (
    FILTER_COLUMNS,
    InvalidQuery,
    Query,
    only,
    parse_query,
)
from analytics.model.instants import format_us, optional_us
from analytics.query.aggregates import TOP_MAX
from analytics.query.buckets import Bucket
from analytics.query.executor import ScanReport
from analytics.query.summaries import BUCKETS_MAX, BucketCounts
from service.access.roles import Capability
from service.audit.query_service import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    accepted_answer,
    page_answer,
    parse_accepted_request,
    parse_page_request,
)
from service.audit.refusals import QUERY_REFUSALS, AuditRowNotFound
from service.audit.row_models import AuditEntry, OrderedWindow, Window, with_filters
from service.audit.search import SEARCH_CHARS_MAX, ReadWord, read_search, reader_for, with_search
from service.audit.services import AuditServices
from service.audit.tenant_log import TenantLog, open_log
from service.audit.unknown_values import UnknownValue, unknown_values
from service.core.errors import Invalid
from service.web.documentation import Tag
from service.web.endpoint import Call, Resource
from service.web.models import (
    Answer,
    NonNegative,
    Omittable,
    ParsedQuery,
    Request,
    TimestampUs,
)
from service.web.refusals import INVALID_CURSOR
from service.web.request_parsing import parse_limit
from service.web.responses import json_answer

BY_MAX: Final = 3
GROUPS_DEFAULT: Final = 100
GROUPS_MAX: Final = 1_000

NonEmptyText = Annotated[str, Meta(min_length=1)]
Texts = dict[str, list[str]]

resource = Resource("audit", "/audit", Tag.AUDIT, AuditServices)


def _of_rows(model: type[Struct]) -> ParsedQuery[Texts]:
    """Parameters that `model` documents; handlers parse them, with the search in them."""
    return ParsedQuery(model, dict, checks_names=True)


async def _with_search(call: Call[AuditServices], texts: Texts) -> Texts:
    """The parameters with their search as filters. Raises InvalidQuery."""
    return await with_search(call.services, call.org, call.caller, texts)


async def _log(call: Call[AuditServices]) -> TenantLog:
    """The organisation's log as of now."""
    services = call.services
    return await open_log(services.store, services.lake, call.org, services.clock())


@with_filters
class AuditPageQuery(OrderedWindow, kw_only=True):
    """Which rows, and which page of them."""

    limit: Omittable[
        Annotated[
            int, Meta(ge=1, le=LIMIT_MAX, description=f"Rows on a page; default {LIMIT_DEFAULT}.")
        ]
    ] = UNSET
    cursor: Omittable[
        Annotated[
            NonEmptyText,
            Meta(
                description="`next_cursor` of the page before; filters and order must be the same."
            ),
        ]
    ] = UNSET


class AuditPage(Answer):
    """A page of rows. `next_cursor` is null on the last; rows before the floor are not shown."""

    org: str
    entries: list[AuditEntry]
    next_cursor: str | None
    retention_floor: TimestampUs | None


@resource.get(
    "query_audit_log",
    needs=Capability.AUDIT_READ,
    query=_of_rows(AuditPageQuery),
    returns=AuditPage,
    refuses=[INVALID_CURSOR, *QUERY_REFUSALS],
)
async def page(call: Call[AuditServices], texts: Texts) -> Response:
    """Query the organisation's audit log, a page at a time, newest first."""
    wanted = parse_page_request(await _with_search(call, texts))
    shown = await call.services.queries.page(call.org, wanted, call.services.clock())
    return json_answer(page_answer(call.org.slug, shown))  # its entries are JSON already


class QueryPlan(Answer):
    """How a page was found: one entry for each scan, in the order in which they ran."""

    org: str
    plan: list[ScanReport]


@resource.get(
    "explain_audit_query",
    "/plan",
    needs=Capability.AUDIT_READ,
    query=_of_rows(AuditPageQuery),
    returns=QueryPlan,
    refuses=[INVALID_CURSOR, *QUERY_REFUSALS],
)
async def plan(call: Call[AuditServices], texts: Texts) -> QueryPlan:
    """Run the query of a page, and show how it was run, with estimates, in place of the rows."""
    wanted = parse_page_request(await _with_search(call, texts))
    reports: list[ScanReport] = []
    await call.services.queries.page(call.org, wanted, call.services.clock(), reports=reports)
    return QueryPlan(org=call.org.slug, plan=reports)


@with_filters
class SummaryQuery(Window, kw_only=True):
    """Which rows to summarise, and the length of a bucket."""

    bucket: Omittable[
        Annotated[
            Bucket,
            Meta(description="One bucket's length; default `day`."),
        ]
    ] = UNSET


class SummaryBucket(Struct, kw_only=True):
    """The rows from `start` to the next bucket's start, by install decision."""

    start: TimestampUs
    ALLOWED: NonNegative
    BLOCKED: NonNegative
    other: NonNegative


class FrequentValue(Struct, kw_only=True):
    """A value and the number of rows that have it."""

    value: str
    count: Annotated[int, Meta(ge=1)]


TopValues = Annotated[list[FrequentValue], Meta(max_length=TOP_MAX)]


class SummaryTop(Struct, kw_only=True):
    """The most frequent values; equally frequent ones in code point order."""

    event: TopValues
    package: TopValues
    actor: TopValues
    decision: TopValues


class AuditSummary(Answer):
    """A summary of rows, oldest bucket first; rows before the floor are not counted."""

    org: str
    bucket: Bucket
    retention_floor: TimestampUs | None
    total: NonNegative
    buckets: Annotated[list[SummaryBucket], Meta(max_length=BUCKETS_MAX)]
    top: SummaryTop


@resource.get(
    "summarise_audit_log",
    "/summary",
    needs=Capability.AUDIT_READ,
    query=_of_rows(SummaryQuery),
    returns=AuditSummary,
    refuses=QUERY_REFUSALS,
)
async def summary(call: Call[AuditServices], texts: Texts) -> AuditSummary:
    """Count the organisation's audit rows over time, and name the most frequent values."""
    query, bucket = _summary_of(await _with_search(call, texts))
    log = await _log(call)
    made = await log.summary(query, bucket)
    top = {
        name: [FrequentValue(value=each.value, count=each.count) for each in values]
        for name, values in made.top.items()
    }
    return AuditSummary(
        org=call.org.slug,
        bucket=bucket,
        retention_floor=optional_us(log.floor),
        total=made.total,
        buckets=[_bucket(each) for each in made.buckets],
        top=SummaryTop(**top),
    )


def _summary_of(texts: Texts) -> tuple[Query, Bucket]:
    """Which rows to summarise, and the length of a bucket. Raises InvalidQuery, Invalid."""
    query = parse_query(_without(texts, "bucket"), has_order=False)
    try:
        text = only(texts, "bucket")
    except InvalidQuery as error:
        raise Invalid(str(error), field=error.field) from error
    if text not in {None, *Bucket}:
        raise Invalid(f"bucket must be one of {', '.join(Bucket)}", field="bucket")
    return query, Bucket(text or Bucket.DAY)


def _without(texts: Texts, *names: str) -> Texts:
    return {name: values for name, values in texts.items() if name not in names}


# The same days and hours are asked for again and again: to format one takes as long as all else.
_start: Final = lru_cache(maxsize=4_096)(format_us)


def _bucket(counts: BucketCounts) -> SummaryBucket:
    return SummaryBucket(
        start=_start(counts.start),
        ALLOWED=counts.allowed,
        BLOCKED=counts.blocked,
        other=counts.other,
    )


@with_filters
class GroupsQuery(Window, kw_only=True):
    """Which rows, and what makes a group."""

    by: Annotated[
        list[Annotated[str, Meta(pattern=f"^({'|'.join(FILTER_COLUMNS)})$")]],
        Meta(
            min_length=1,
            max_length=BY_MAX,
            description="The filters whose values rows of a group share.",
            examples=[["package", "version"]],
        ),
    ]
    limit: Omittable[
        Annotated[
            int, Meta(ge=1, le=GROUPS_MAX, description=f"Largest groups; default {GROUPS_DEFAULT}.")
        ]
    ] = UNSET


class AuditGroup(Struct, kw_only=True):
    """Rows with equal values (null: no value)."""

    values: dict[str, str | None]
    rows: int
    blocked: int
    first: TimestampUs
    last: TimestampUs


class AuditGroups(Answer):
    """Groups of rows, those with the most rows first."""

    org: str
    by: list[str]
    retention_floor: TimestampUs | None
    groups: list[AuditGroup]


@resource.get(
    "group_audit_rows",
    "/groups",
    needs=Capability.AUDIT_READ,
    query=_of_rows(GroupsQuery),
    returns=AuditGroups,
    refuses=QUERY_REFUSALS,
)
async def groups(call: Call[AuditServices], texts: Texts) -> AuditGroups:
    """Count the rows of a query by equal values, with the first and last time of each group."""
    query, by, limit = _groups_of(await _with_search(call, texts))
    log = await _log(call)
    columns = [FILTER_COLUMNS[name] for name in by]
    counted = await log.groups(query, columns, limit, call.services.settings.query_max_s)
    return AuditGroups(
        org=call.org.slug,
        by=by,
        retention_floor=optional_us(log.floor),
        groups=[
            AuditGroup(
                values=dict(zip(by, group.values, strict=True)),
                rows=group.rows,
                blocked=group.blocked,
                first=format_us(group.first),
                last=format_us(group.last),
            )
            for group in counted
        ],
    )


def _groups_of(texts: Texts) -> tuple[Query, list[str], int]:
    """Which rows, the filters whose values make a group, and how many groups.

    Raises InvalidQuery, Invalid.
    """
    query = parse_query(_without(texts, "by", "limit"), has_order=False)
    by = texts.get("by", [])
    if not 1 <= len(by) <= BY_MAX or len(set(by)) < len(by) or set(by) - set(FILTER_COLUMNS):
        names = ", ".join(FILTER_COLUMNS)
        raise Invalid(f"by must be 1 to {BY_MAX} different ones of {names}", field="by")
    return query, by, parse_limit(only(texts, "limit"), GROUPS_DEFAULT, GROUPS_MAX)


@with_filters
class ValuesQuery(Window, kw_only=True):
    """Whose values are looked up. The time range is not: a value is known if any row has it."""


class UnknownValues(Answer):
    """The values of a query that no row within the retention has."""

    org: str
    unknown: list[UnknownValue]


@resource.get(
    "find_unknown_values",
    "/unknown-values",
    needs=Capability.AUDIT_READ,
    query=_of_rows(ValuesQuery),
    returns=UnknownValues,
    refuses=QUERY_REFUSALS,
)
async def unknown(call: Call[AuditServices], texts: Texts) -> UnknownValues:
    """Which values of a query no row of the organisation has, at any time it may see."""
    query = parse_query(await _with_search(call, texts), has_order=False)
    read = reader_for(call.services, call.org, call.caller)
    values = await unknown_values(await _log(call), query, read)
    return UnknownValues(org=call.org.slug, unknown=values)


class SearchQuery(Request):
    """A search."""

    q: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=SEARCH_CHARS_MAX,
            description="The text, as in `q` of a page.",
            examples=["PyYAML==5.3.1"],
        ),
    ]


class SearchReading(Answer):
    """What a search was read as: the filters of its words, or the row that it names."""

    org: str
    q: str
    row: Annotated[str | None, Meta(description="If the search is the id of a row, its id.")]
    words: list[ReadWord]


@resource.get(
    "read_search",
    "/reading",
    needs=Capability.AUDIT_READ,
    query=SearchQuery,
    returns=SearchReading,
    refuses=QUERY_REFUSALS,
)
async def reading(call: Call[AuditServices], query: SearchQuery) -> SearchReading:
    """What `q` means in the organisation's log now: the same text, read the same way, as filters.

    A word that may mean several things means the first of them that rows have.
    """
    search = await read_search(call.services, call.org, call.caller, query.q)
    return SearchReading(org=call.org.slug, q=query.q, row=search.row_id, words=[*search.words])


@with_filters
class AcceptedQuery(Window, kw_only=True):
    """Which rows to follow, and after which one."""

    after: Omittable[
        Annotated[
            str,
            Meta(
                pattern="^aud_[0-8][0-9]{18}$",
                description="`last` of the previous answer; without it there are no entries.",
                examples=["aud_0000000000000000042"],
            ),
        ]
    ] = UNSET
    limit: Omittable[
        Annotated[
            int, Meta(ge=1, le=LIMIT_MAX, description=f"Rows at most; default {LIMIT_DEFAULT}.")
        ]
    ] = UNSET


class AcceptedRows(Answer):
    """Rows in the order of their acceptance. `last` is where the next request continues."""

    org: str
    entries: list[AuditEntry]
    last: Annotated[str, Meta(examples=["aud_0000000000000000042"])]


@resource.get(
    "follow_audit_log",
    "/accepted",
    needs=Capability.AUDIT_READ,
    query=_of_rows(AcceptedQuery),
    returns=AcceptedRows,
    refuses=QUERY_REFUSALS,
    # Such requests are repeated automatically: they must not keep an unused session alive.
    keeps_alive=False,
)
async def accepted(call: Call[AuditServices], texts: Texts) -> Response:
    """Follow the organisation's audit log: the rows accepted after a given one, oldest first."""
    wanted = parse_accepted_request(await _with_search(call, texts))
    rows = await call.services.queries.accepted(call.org, wanted, call.services.clock())
    return json_answer(accepted_answer(call.org.slug, rows))


@resource.get(
    "get_audit_row",
    "/<row:audit_id>",
    needs=Capability.AUDIT_READ,
    returns=AuditEntry,
    refuses=[AuditRowNotFound, *QUERY_REFUSALS],
)
async def entry(call: Call[AuditServices], audit_id: str) -> Response:
    """One audit row by its id."""
    text = await call.services.queries.entry(call.org, audit_id, call.services.clock())
    return json_answer(Raw(text))
