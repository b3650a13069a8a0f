"""Requests and responses for saved searches."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from analytics.model.instants import format_us
from service.audit.searches.saved import QUERY_CHARS_MAX
from service.core.errors import Invalid
from service.core.text_rules import NAME_MAX
from service.store.tables import SavedSearch
from service.web.parameter_types import TimestampUs
from service.web.request_parsing import check_members

REQUEST_EXAMPLE: Final = {"name": "Blocked this week", "query": "decision=BLOCKED&last=7d"}
_MEMBERS: Final = ("name", "query")


class SavedSearchRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A search to save."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    query: Annotated[
        str,
        Meta(
            max_length=QUERY_CHARS_MAX,
            description="Filters as in an address of the audit page, `last` among them.",
        ),
    ]


class SavedSearchForm(Struct, kw_only=True):
    """A saved search."""

    id: str
    name: str
    query: str
    created_by: str
    created_at: TimestampUs


class SavedSearchList(Struct, kw_only=True):
    """The organisation's saved searches, by name."""

    org: str
    searches: list[SavedSearchForm]


class DeletedSearch(Struct, kw_only=True):
    """The id of the search that was deleted."""

    deleted: str


def parse_search_request(body: dict[str, Any]) -> tuple[str, str]:
    """The name and query in a request's body. Raises Invalid."""
    check_members(body, _MEMBERS)
    for member in _MEMBERS:
        if not isinstance(body.get(member), str):
            raise Invalid(f"{member} must be a string", field=member)
    return body["name"], body["query"]


def search_form(search: SavedSearch) -> SavedSearchForm:
    """A saved search in the API's representation."""
    return SavedSearchForm(
        id=search.id,
        name=search.name,
        query=search.query,
        created_by=search.created_by,
        created_at=format_us(search.created_at),
    )


def list_form(slug: str, searches: Sequence[SavedSearch]) -> SavedSearchList:
    """The organisation's saved searches in the API's representation."""
    return SavedSearchList(org=slug, searches=[search_form(search) for search in searches])
