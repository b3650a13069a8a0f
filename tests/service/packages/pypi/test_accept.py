"""The form of a page is what the client asks for (PEP 691)."""

import pytest

from service.packages.pypi.render import PageForm, negotiate
from service.packages.pypi.routes import render_root

V1_JSON = "application/vnd.pypi.simple.v1+json"
V1_HTML = "application/vnd.pypi.simple.v1+html"


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, PageForm.PLAIN_HTML),
        ("", PageForm.PLAIN_HTML),
        ("*/*", PageForm.PLAIN_HTML),
        ("text/*", PageForm.PLAIN_HTML),
        ("text/html", PageForm.PLAIN_HTML),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", PageForm.PLAIN_HTML),
        (V1_JSON, PageForm.JSON),
        (V1_JSON.upper(), PageForm.JSON),
        ("application/vnd.pypi.simple.latest+json", PageForm.JSON),
        ("application/vnd.pypi.simple.latest+html", PageForm.HTML),
        (f"{V1_JSON}, {V1_HTML}; q=0.2, text/html; q=0.01", PageForm.JSON),
        (f"{V1_JSON}; q=0.1, {V1_HTML}; q=0.2, text/html; q=0.01", PageForm.HTML),
        (f"{V1_JSON};q=0, */*", PageForm.PLAIN_HTML),
        (f"{V1_JSON};q=0.5, */*;q=0.1", PageForm.JSON),
        ("application/json", None),
        ("application/vnd.pypi.simple.v2+json", None),
        ("text/html;q=0", None),
        ("image/png, text/plain", None),
    ],
)
def test_the_preferred_form_is_served(accept: str | None, form: PageForm | None) -> None:
    """None is 406: a client that speaks version 2 alone must not be given version 1."""
    assert negotiate(accept) is form


@pytest.mark.parametrize("accept", [";;;,,,", "a/b;q=x", "*/*;q=1e9", "\x00", "/" * 8000])
def test_a_broken_header_is_no_error(accept: str) -> None:
    assert negotiate(accept) in (None, *PageForm)


def test_the_list_of_projects_is_empty_and_valid() -> None:
    """Tools that probe the index find one; names come from requests for projects."""
    assert render_root(PageForm.JSON) == b'{"meta":{"api-version":"1.0"},"projects":[]}'
    assert b"<a" not in render_root(PageForm.PLAIN_HTML)
