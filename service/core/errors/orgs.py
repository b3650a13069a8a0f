"""Refusals of requests about an organisation."""

from typing import Final

from service.core.errors.base import Conflict, Forbidden, NotFound, Refusal
from service.core.errors.requests import UnknownParameter


class OrgNotFound(NotFound):
    """No organisation has this slug."""

    text = "Org not found"


SEARCH_NOT_FOUND: Final = NotFound.of("Saved search not found for this org")
SEARCH_EXISTS: Final = Conflict.of("a saved search of this name exists", field="name")
TOO_MANY_SEARCHES: Final = Conflict.of(
    "{limit} saved searches, and no more can be kept: delete one first"
)

ORG_REFUSALS: tuple[type[Refusal], ...] = (UnknownParameter, Forbidden, OrgNotFound)
"""What every endpoint of an organisation refuses, besides Unauthenticated."""
