"""Models of requests for audit rows, and of rows in answers: made of the columns and filters."""

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from analytics.model.columns import Column, FilterParameter, TextRule
from analytics.model.decision_reason import DECISION_REASON_MAX
from analytics.model.filters import VALUES_MAX, Order
from analytics.model.schema import COLUMNS, FILTER_PARAMETERS, WIRE_COLUMNS
from service.audit.search import SEARCH, SEARCH_CHARS_MAX
from service.web.models import (
    FILTER_PATTERN,
    SHA256_PATTERN,
    Answer,
    InstantOrDate,
    Omittable,
    TimestampUs,
)


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


def _value_type(parameter: FilterParameter) -> Any:  # noqa: ANN401 - an annotated type
    if parameter.is_sha256:
        return Annotated[str, Meta(pattern=r"^!?([0-9a-f]{64}|[0-9a-f]{0,64}\*)$")]
    if parameter.known is None:
        return Annotated[str, Meta(pattern=FILTER_PATTERN)]
    ci_sources = [r"oidc_[a-z0-9_]+", r"oidc_[a-z0-9_]*\*"] if parameter.has_ci_sources else []
    return Annotated[str, Meta(pattern=f"^!?({'|'.join([*parameter.known, *ci_sources])})$")]


def _filter_field(parameter: FilterParameter) -> tuple[str, Any, Any]:
    """The field of a model for one filter."""
    meta = Meta(
        max_length=VALUES_MAX,
        description=parameter.summary,
        examples=[[parameter.example]],
    )
    values = GenericAlias(list, (_value_type(parameter),))
    return parameter.name, Annotated[values, meta] | UnsetType, UNSET


def _search_field() -> tuple[str, Any, Any]:
    description = (
        "A search as on the page: words such as `event-stream@3.3.6`, a key's name, `run:<id>`;"
        " `-` before a word excludes it. Combined with the filters."
    )
    meta = Meta(max_length=SEARCH_CHARS_MAX, description=description, examples=["left-pad@1.3.0"])
    return SEARCH, Annotated[str, meta] | UnsetType, UNSET


def with_filters(model: type[Struct]) -> type[Struct]:
    """`model` with a field for each filter, and the search.

    Repeated filters mean OR, different ones AND.
    """
    fields = [*map(_filter_field, FILTER_PARAMETERS), _search_field()]
    more = {"__doc__": model.__doc__}
    return defstruct(model.__name__, fields, bases=(model,), namespace=more, kw_only=True)


class OrderedWindow(Window, kw_only=True):
    """The time range and the order."""

    order: Omittable[
        Annotated[Order, Meta(description="Oldest or newest first; default `desc`.")]
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
        return Annotated[str, Meta(pattern=SHA256_PATTERN)]
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
    return defstruct(entry.__name__, fields, bases=(entry,), namespace=more, kw_only=True)


@_with_columns
class AuditEntry(Answer, kw_only=True):
    """One audit row; all keys are always present."""
