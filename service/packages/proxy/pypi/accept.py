"""Which form of a page a client prefers (PEP 691)."""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header


class PageForm(StrEnum):
    """A form of a page; the value is the Content-Type of the response."""

    JSON = "application/vnd.pypi.simple.v1+json"
    HTML = "application/vnd.pypi.simple.v1+html"
    PLAIN_HTML = "text/html"

    @property
    def is_json(self) -> bool:
        """Whether the page is in JSON; both other forms are the same HTML."""
        return self is PageForm.JSON


_CACHED_CHARS_MAX: Final = 512

_OFFERED: Final = {
    "text/html": PageForm.PLAIN_HTML,
    "application/vnd.pypi.simple.v1+html": PageForm.HTML,
    "application/vnd.pypi.simple.latest+html": PageForm.HTML,
    "application/vnd.pypi.simple.v1+json": PageForm.JSON,
    "application/vnd.pypi.simple.latest+json": PageForm.JSON,
}
"""By media type. The answer to `latest` names the actual version (PEP 691)."""


def negotiate(accept: str | None) -> PageForm | None:
    """The form to answer with, by the Accept header; None if no form is acceptable (406).

    Without a preference it is `text/html`, as it was before there was a choice.
    """
    # The cache is keyed by what clients send: long headers must not fill memory.
    if accept is None or len(accept) <= _CACHED_CHARS_MAX:
        return _negotiate_known(accept)
    return _negotiate(accept)


def _negotiate(accept: str | None) -> PageForm | None:
    preferences = parse_accept_header(accept or "*/*", MIMEAccept)
    if not preferences:
        return PageForm.PLAIN_HTML
    best = preferences.best_match(list(_OFFERED))
    return None if best is None else _OFFERED[best]


# Each client always sends the same header; parsing it takes a tenth of a small request.
_negotiate_known = lru_cache(maxsize=256)(_negotiate)
