"""Refusals of requests about an organisation."""

from service.core.errors.base import Conflict, Forbidden, NotFound, Refusal
from service.core.errors.requests import UnknownParameter


class OrgNotFound(NotFound):
    """No organisation has this slug."""

    text = "Org not found"


class SearchNotFound(NotFound):
    """The id is unknown, or another organisation's."""

    text = "Saved search not found for this org"


class SearchExists(Conflict):
    """The name is taken."""

    text = "a saved search of this name exists"
    field = "name"


class TooManySearches(Conflict):
    """The organisation has as many saved searches as it may."""

    text = "100 saved searches, and no more can be kept: delete one first"


ORG_REFUSALS: tuple[type[Refusal], ...] = (UnknownParameter, Forbidden, OrgNotFound)
"""What every endpoint of an organisation refuses, besides Unauthenticated."""
