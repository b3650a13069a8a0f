"""What audit endpoints take and give, for the OpenAPI document."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from analytics.model.filters import VALUES_MAX
from analytics.query.summaries import BUCKETS_MAX, TOP_MAX
from service.audit.pages import LIMIT_DEFAULT, LIMIT_MAX
from service.web.openapi import DATE_PATTERN, INSTANT_PATTERN

Text = Annotated[str, Meta(min_length=1)]
Timestamp = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
        examples=["2026-01-31T08:00:00.000000Z"],
    ),
]
Bound = Annotated[str, Meta(pattern=f"^({DATE_PATTERN}|{INSTANT_PATTERN})$")]


class RowFilters(Struct, kw_only=True):
    """Which rows. A repeated parameter means OR, different ones AND."""

    since: (
        Annotated[
            Bound,
            Meta(
                description="From this instant on; a bare date is its midnight, UTC.",
                examples=["2026-01-31T08:00:00Z"],
            ),
        ]
        | UnsetType
    ) = UNSET
    until: (
        Annotated[
            Bound,
            Meta(
                description="Before this instant; a bare date is the end of that day, UTC.",
                examples=["2026-02-01"],
            ),
        ]
        | UnsetType
    ) = UNSET
    event: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="Event string; repeat for OR, `!` before it negates.",
                examples=[["blocklist_hit"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    package: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="Package name; a trailing `*` makes a prefix.",
                examples=[["left-pad"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    version: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="Package version.",
                examples=[["1.3.0"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    decision: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="Install decision.",
                examples=[["BLOCKED"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    actor: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="Actor, such as an API key id; a trailing `*` makes a prefix.",
                examples=[["key_5d7f9h1k3m5p7r9t"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    actor_source: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="How the actor proved who they are; a trailing `*` makes a prefix.",
                examples=[["oidc_*"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    subject: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="What the row is about; a trailing `*` makes a prefix.",
                examples=[["repo:acme/*"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    oidc_binding_id: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The binding that stamped the row.",
                examples=[["obind_7f3k9m2p4q8r1s5t"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    verdict_source: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The surface that produced the row.",
                examples=[["proxy"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    request_id: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The request that produced the row.",
                examples=[["req_019b3c5d7e8f0123456789ab"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    source_ip: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The address the request came from.",
                examples=[["192.0.2.7"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    ecosystem: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The package's ecosystem: `npm` or `pypi`.",
                examples=[["npm"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    repository_id: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The repository id that a verified CI token named.",
                examples=[["123456789"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    run_id: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The CI run that a verified CI token named.",
                examples=[["9876543210"]],
            ),
        ]
        | UnsetType
    ) = UNSET
    token_id: (
        Annotated[
            list[Text],
            Meta(
                max_length=VALUES_MAX,
                description="The `jti` of a verified CI token.",
                examples=[["6e1c7f3a-0b5d-4a52-9a55-2f1b9f1d7c11"]],
            ),
        ]
        | UnsetType
    ) = UNSET


class AuditFilters(RowFilters, kw_only=True):
    """Which rows, and in which order."""

    order: (
        Annotated[
            Literal["asc", "desc"], Meta(description="Oldest or newest first; default `desc`.")
        ]
        | UnsetType
    ) = UNSET


class PageQuery(AuditFilters, kw_only=True):
    """Which rows, and which page of them."""

    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=LIMIT_MAX,
                description=f"Rows on a page; default {LIMIT_DEFAULT}.",
            ),
        ]
        | UnsetType
    ) = UNSET
    cursor: (
        Annotated[
            Text,
            Meta(
                description="`next_cursor` of the page before; filters and order must be the same."
            ),
        ]
        | UnsetType
    ) = UNSET


class SummaryQuery(RowFilters, kw_only=True):
    """Which rows to sum up, and by how much time."""

    bucket: (
        Annotated[
            Literal["minute", "hour", "day"],
            Meta(description="One bucket's length; default `day`."),
        ]
        | UnsetType
    ) = UNSET


class ExportQuery(AuditFilters, kw_only=True):
    """Which rows, and as what file."""

    format: Annotated[
        Literal["csv", "json", "ndjson", "parquet"], Meta(description="The file's format.")
    ]
    compress: (
        Annotated[
            Literal["gzip", "zstd"],
            Meta(description="Compress the file itself; Parquet is compressed already."),
        ]
        | UnsetType
    ) = UNSET
    raw: (
        Annotated[
            Literal["0", "1"],
            Meta(description="`1` leaves CSV values as they are: no guard against formulas."),
        ]
        | UnsetType
    ) = UNSET


class AuditEntry(Struct, kw_only=True):
    """One audit row; every key is always there."""

    id: str
    created_at: Timestamp
    event: str
    packageName: str | None  # noqa: N815 - the specification's one camel
    version: str | None
    decision: Literal["ALLOWED", "BLOCKED"] | None
    decision_reason: Annotated[str, Meta(max_length=256)] | None
    verdict_source: Literal["proxy", "admin_api", "dashboard", "cli", "system"]
    tenant_id: str
    actor_tenant_id: str | None
    actor: str
    actor_source: str
    subject: str | None
    oidc_binding_id: str | None
    request_id: str | None
    source_ip: str | None
    received_at: Timestamp
    payload: dict[str, Any] | None
    ecosystem: Literal["pypi", "npm"] | None
    repository_id: str | None
    run_id: str | None
    token_id: str | None


class AuditPage(Struct, kw_only=True):
    """A page of rows. `next_cursor` is null on the last; nothing before the floor is shown."""

    org: str
    entries: list[AuditEntry]
    next_cursor: str | None
    retention_floor: Timestamp | None


Count = Annotated[int, Meta(ge=0)]


class SummaryBucket(Struct, kw_only=True):
    """The rows from `start` to the next bucket's start, by install decision."""

    start: Timestamp
    ALLOWED: Count
    BLOCKED: Count
    other: Count


class FrequentValue(Struct, kw_only=True):
    """A value, and how many rows have it."""

    value: str
    count: Annotated[int, Meta(ge=1)]


TopValues = Annotated[list[FrequentValue], Meta(max_length=TOP_MAX)]


class SummaryTop(Struct, kw_only=True):
    """The most frequent values; equals in the order of their code points."""

    event: TopValues
    package: TopValues
    actor: TopValues
    decision: TopValues


class AuditSummary(Struct, kw_only=True):
    """Rows summed up, oldest bucket first; nothing before the floor is counted."""

    org: str
    bucket: Literal["minute", "hour", "day"]
    retention_floor: Timestamp | None
    total: Count
    buckets: Annotated[list[SummaryBucket], Meta(max_length=BUCKETS_MAX)]
    top: SummaryTop
