"""Request and response schemas of the audit endpoints, for the OpenAPI document."""

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from analytics.export.compression import Compression
from analytics.export.formats import ExportFormat
from analytics.model.columns import Column, FilterParameter, TextRule
from analytics.model.decision_reason import DECISION_REASON_MAX
from analytics.model.filters import FILTER_COLUMNS, VALUES_MAX, Order
from analytics.model.schema import COLUMNS, FILTER_PARAMETERS, WIRE_COLUMNS
from analytics.query.aggregates import TOP_MAX
from analytics.query.buckets import Bucket
from analytics.query.summaries import BUCKETS_MAX
from service.audit.grouping import BY_MAX, GROUPS_DEFAULT, GROUPS_MAX
from service.audit.query_service import LIMIT_DEFAULT, LIMIT_MAX
from service.audit.search import SEARCH_CHARS_MAX
from service.audit.search_request import SEARCH
from service.web.parameter_types import InstantOrDate, Omittable, TimestampUs

Text = Annotated[str, Meta(min_length=1)]


class Window(Struct, kw_only=True):
    """The time range."""

    since: Omittable[
        Annotated[
            InstantOrDate,
            Meta(description="From this instant on; a bare date is its midnight, UTC."),
        ]
    ] = UNSET
    until: Omittable[
        Annotated[
            InstantOrDate,
            Meta(
                description="Before this instant; a bare date is the end of that day, UTC.",
                examples=["2026-02-01"],
            ),
        ]
    ] = UNSET


def _value_form(parameter: FilterParameter) -> Any:  # noqa: ANN401 - an annotated type
    if parameter.is_sha256:
        return Annotated[str, Meta(pattern=r"^!?([0-9a-f]{64}|[0-9a-f]{0,64}\*)$")]
    if parameter.known is None:
        return Annotated[str, Meta(pattern=r"^(![\s\S]|[^!])")]  # a negation needs a value
    ci_sources = [r"oidc_[a-z0-9_]+", r"oidc_[a-z0-9_]*\*"] if parameter.has_ci_sources else []
    return Annotated[str, Meta(pattern=f"^!?({'|'.join([*parameter.known, *ci_sources])})$")]


def _filter_field(parameter: FilterParameter) -> tuple[str, Any, Any]:
    """The field of a form for one filter."""
    meta = Meta(
        max_length=VALUES_MAX,
        description=parameter.summary,
        examples=[[parameter.example]],
    )
    values = GenericAlias(list, (_value_form(parameter),))
    return parameter.name, Annotated[values, meta] | UnsetType, UNSET


def _search_field() -> tuple[str, Any, Any]:
    description = (
        "A search as on the page: words such as `event-stream@3.3.6`, a key's name, `run:<id>`;"
        " `-` before a word excludes it. Combined with the filters."
    )
    meta = Meta(max_length=SEARCH_CHARS_MAX, description=description, examples=["left-pad@1.3.0"])
    return SEARCH, Annotated[str, meta] | UnsetType, UNSET


def _with_search(form: type[Struct]) -> type[Struct]:
    """`form` with the field for a search."""
    more = {"__doc__": form.__doc__}
    return defstruct(form.__name__, [_search_field()], bases=(form,), namespace=more, kw_only=True)


def _with_filters(form: type[Struct]) -> type[Struct]:
    """`form` with a field for each filter. Repeated filters mean OR, different ones AND."""
    fields = [_filter_field(parameter) for parameter in FILTER_PARAMETERS]
    more = {"__doc__": form.__doc__}
    return defstruct(form.__name__, fields, bases=(form,), namespace=more, kw_only=True)


class OrderedWindow(Window, kw_only=True):
    """The time range and the order."""

    order: Omittable[
        Annotated[Order, Meta(description="Oldest or newest first; default `desc`.")]
    ] = UNSET


@_with_search
@_with_filters
class PageQuery(OrderedWindow, kw_only=True):
    """Which rows, and which page of them."""

    limit: Omittable[
        Annotated[
            int, Meta(ge=1, le=LIMIT_MAX, description=f"Rows on a page; default {LIMIT_DEFAULT}.")
        ]
    ] = UNSET
    cursor: Omittable[
        Annotated[
            Text,
            Meta(
                description="`next_cursor` of the page before; filters and order must be the same."
            ),
        ]
    ] = UNSET


@_with_search
@_with_filters
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


@_with_search
@_with_filters
class SummaryQuery(Window, kw_only=True):
    """Which rows to summarise, and the length of a bucket."""

    bucket: Omittable[
        Annotated[
            Bucket,
            Meta(description="One bucket's length; default `day`."),
        ]
    ] = UNSET


@_with_search
@_with_filters
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


class AuditGroups(Struct, kw_only=True):
    """Groups of rows, those with the most rows first."""

    org: str
    by: list[str]
    retention_floor: TimestampUs | None
    groups: list[AuditGroup]


@_with_search
@_with_filters
class ValuesQuery(Window, kw_only=True):
    """Whose values are looked up. The time range is not: a value is known if any row has it."""


class UnknownValueForm(Struct, kw_only=True):
    """A value that no row has."""

    parameter: str
    value: str
    nearest: Annotated[str | None, Meta(description="A similar value that rows have.")]
    also_in: Annotated[list[str], Meta(description="Other parameters whose rows have the value.")]


class UnknownValues(Struct, kw_only=True):
    """The values of a query that no row within the retention has."""

    org: str
    unknown: list[UnknownValueForm]


@_with_search
@_with_filters
class ExportQuery(OrderedWindow, kw_only=True):
    """Which rows, and the format of the file."""

    format: Annotated[ExportFormat, Meta(description="The file's format.")]
    compress: Omittable[
        Annotated[
            Compression,
            Meta(description="Compress the file itself; Parquet is compressed already."),
        ]
    ] = UNSET
    raw: Omittable[
        Annotated[
            bool,
            Meta(
                description="`true` leaves CSV values unchanged: no protection against formulas."
                " `1` and `0` are accepted, too."
            ),
        ]
    ] = UNSET


_ENTRY_TYPES: Final[Mapping[str, Any]] = {
    "id": str,
    "created_at": TimestampUs,
    "decision_reason": Annotated[str, Meta(max_length=DECISION_REASON_MAX)],
    "tenant_id": str,
    "received_at": TimestampUs,
    "payload": dict[str, Any],
}
"""The members of an entry that are not the text of their column."""


def _text_type(column: Column) -> Any:  # noqa: ANN401 - a type
    if column.rule is TextRule.SHA256:
        return Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    return column.values or str


def _with_columns(entry: type[Struct]) -> type[Struct]:
    """`entry` with a member for each column."""
    columns = {column.wire: column for column in COLUMNS}
    fields: list[tuple[str, Any]] = []
    for name in WIRE_COLUMNS:
        column = columns.get(name)
        kind = _ENTRY_TYPES.get(name) or _text_type(columns[name])
        is_nullable = column is not None and not column.is_required
        fields.append((name, kind | None if is_nullable else kind))
    more = {"__doc__": entry.__doc__}
    return defstruct(entry.__name__, fields, namespace=more, kw_only=True)


@_with_columns
class AuditEntry(Struct, kw_only=True):
    """One audit row; all keys are always present."""


class AuditPage(Struct, kw_only=True):
    """A page of rows. `next_cursor` is null on the last; rows before the floor are not shown."""

    org: str
    entries: list[AuditEntry]
    next_cursor: str | None
    retention_floor: TimestampUs | None


class AcceptedRows(Struct, kw_only=True):
    """Rows in the order of their acceptance. `last` is where the next request continues."""

    org: str
    entries: list[AuditEntry]
    last: Annotated[str, Meta(examples=["aud_0000000000000000042"])]


Count = Annotated[int, Meta(ge=0)]


class SummaryBucket(Struct, kw_only=True):
    """The rows from `start` to the next bucket's start, by install decision."""

    start: TimestampUs
    ALLOWED: Count
    BLOCKED: Count
    other: Count


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


class AuditSummary(Struct, kw_only=True):
    """A summary of rows, oldest bucket first; rows before the floor are not counted."""

    org: str
    bucket: Bucket
    retention_floor: TimestampUs | None
    total: Count
    buckets: Annotated[list[SummaryBucket], Meta(max_length=BUCKETS_MAX)]
    top: SummaryTop
