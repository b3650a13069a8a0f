"""Which form of a page a client prefers (PEP 691)."""

from enum import StrEnum
from functools import lru_cache
from typing import Final

from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header


class PageForm(StrEnum):
    """A form of a page: its value is the Content-Type of the answer."""

    JSON = "application/vnd.pypi.simple.v1+json"
    HTML = "application/vnd.pypi.simple.v1+html"
    PLAIN_HTML = "text/html"

    @property
    def is_json(self) -> bool:
        """Whether the page is in JSON; both others are the same HTML."""
        return self is PageForm.JSON


_CACHED_CHARS_MAX: Final = 512

_OFFERED: Final = {
    "text/html": PageForm.PLAIN_HTML,
    "application/vnd.pypi.simple.v1+html": PageForm.HTML,
    "application/vnd.pypi.simple.latest+html": PageForm.HTML,
    "application/vnd.pypi.simple.v1+json": PageForm.JSON,
    "application/vnd.pypi.simple.latest+json": PageForm.JSON,
}
"""By media type. `latest` is answered with the version that it is (PEP 691)."""


def negotiate(accept: str | None) -> PageForm | None:
    """The form to answer with, for an Accept header; None: 406, none of ours is acceptable.

    Without a preference the answer is `text/html`, as it was before there was a choice.
    """
    if accept is None or len(accept) <= _CACHED_CHARS_MAX:
        return _negotiate_known(accept)
    return _negotiate(accept)


def _negotiate(accept: str | None) -> PageForm | None:
    preferences = parse_accept_header(accept or "*/*", MIMEAccept)
    if not preferences:
        return PageForm.PLAIN_HTML
    best = preferences.best_match(list(_OFFERED))
    return None if best is None else _OFFERED[best]


# Each client sends one and the same header; to parse it takes a tenth of a small request.
_negotiate_known = lru_cache(maxsize=256)(_negotiate)
