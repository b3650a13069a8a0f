"""The form of a page is what the client asks for (PEP 691)."""

import pytest

from service.packages.pypi.render import PageFormat, negotiate
from service.packages.pypi.routes import render_root

V1_JSON = "application/vnd.pypi.simple.v1+json"
V1_HTML = "application/vnd.pypi.simple.v1+html"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, PageFormat.PLAIN_HTML),
        ("", PageFormat.PLAIN_HTML),
        ("*/*", PageFormat.PLAIN_HTML),
        ("text/*", PageFormat.PLAIN_HTML),
        ("text/html", PageFormat.PLAIN_HTML),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PageFormat.PLAIN_HTML),
        (V1_JSON, PageFormat.JSON),
        (V1_JSON.upper(), PageFormat.JSON),
        ("application/vnd.pypi.simple.latest+json", PageFormat.JSON),
        ("application/vnd.pypi.simple.latest+html", PageFormat.HTML),
        (f"{V1_JSON}, {V1_HTML}; q=0.2, text/html; q=0.01", PageFormat.JSON),
        (f"{V1_JSON}; q=0.1, {V1_HTML}; q=0.2, text/html; q=0.01", PageFormat.HTML),
        (f"{V1_JSON};q=0, */*", PageFormat.PLAIN_HTML),
        (f"{V1_JSON};q=0.5, */*;q=0.1", PageFormat.JSON),
        ("application/json", None),
        ("application/vnd.pypi.simple.v2+json", None),
        ("text/html;q=0", None),
        ("image/png, text/plain", None),
    ],
)
def test_the_preferred_form_is_served(accept: str | None, form: PageFormat | None) -> None:
    """None is 406: a client that speaks version 2 alone must not be given version 1."""
    assert negotiate(accept) is form


@pytest.mark.parametrize("accept", [";;;,,,", "a/b;q=x", "*/*;q=1e9", "\x00", "/" * 8000])
def test_a_broken_header_is_no_error(accept: str) -> None:
    assert negotiate(accept) in (None, *PageFormat)


def test_the_list_of_projects_is_empty_and_valid() -> None:
    """Tools that probe the index find one; names come from requests for projects."""
    assert render_root(PageFormat.JSON) == b'{"meta":{"api-version":"1.0"},"projects":[]}'
    assert b"<a" not in render_root(PageFormat.PLAIN_HTML)
