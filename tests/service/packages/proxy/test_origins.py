"""Files come from configured origins alone, at paths that have one reading."""

import pytest

from service.packages.proxy.documents import EntryDropped
from service.packages.proxy.origins import URL_CHARS_MAX, Origins

ORIGINS = Origins(
    {"files": "https://files.example", "index": "http://index.example:8080", "last": "https://x"}
)
PAGE = "http://index.example:8080/root/simple/foo/"


@pytest.mark.parametrize(
    ("url", "origin", "path"),
    [
        ("https://files.example/a/b.whl", "files", "/a/b.whl"),
        ("https://FILES.example:443/a/b.whl", "files", "/a/b.whl"),
        ("http://files.example/a/b.whl", "files", "/a/b.whl"),
        ("//files.example/a/b.whl", "files", "/a/b.whl"),
        ("../../+f/ab/b.whl", "index", "/root/+f/ab/b.whl"),
        ("../../../../../b.whl", "index", "/b.whl"),
        ("/b.whl", "index", "/b.whl"),
        ("b%2Bcpu.whl", "index", "/root/simple/foo/b%2Bcpu.whl"),
    ],
)
def test_a_url_is_located_on_its_origin(url: str, origin: str, path: str) -> None:
    """Relative URLs count from the page; the path is fetched as it is written."""
    located = ORIGINS.locate(url, PAGE)

    assert (located.origin, located.path) == (origin, path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://evil.example/b.whl", "origin is not configured"),
        ("https://files.example.evil.example/b.whl", "origin is not configured"),
        ("https://files.example:444/b.whl", "origin is not configured"),
        ("http://files.example:443/b.whl", "origin is not configured"),
        ("https://index.example:8080/b.whl", "origin is not configured"),
        ("http://index.example:0/b.whl", "origin is not configured"),
        ("ftp://files.example/b.whl", "origin is not configured"),
        ("file:///etc/passwd", "origin is not configured"),
        ("data:,x", "origin is not configured"),
        ("https://user@files.example/b.whl", "URL has credentials"),
        ("https://files.example@evil.example/b.whl", "URL has credentials"),
        ("https://FILES.example/b.whl?token=1", "URL has a query"),
        ("https://files.example/b.whl?token=1", "URL path is unsafe"),
        ("https://files.example/../b.whl", "URL path is unsafe"),
        ("https://files.example/a/..", "URL path is unsafe"),
        ("https://files.example/./b.whl", "URL path is unsafe"),
        ("https://files.example//b.whl", "URL path is unsafe"),
        ("https://files.example/", "URL path is unsafe"),
        ("https://FILES.example", "URL path is unsafe"),
        ("https://files.example/%2e%2e/b.whl", "URL path is unsafe"),
        ("https://files.example/a%2Fb.whl", "URL path is unsafe"),
        ("https://files.example/a%5cb.whl", "URL path is unsafe"),
        ("https://files.example/a%252fb.whl", "URL path is unsafe"),
        ("https://files.example/a%00b.whl", "URL path is unsafe"),
        ("https://files.example/a%C3%A4b.whl", "URL path is unsafe"),
        ("https://files.example/a%3Fb.whl", "URL path is unsafe"),
        ("https://files.example/a;b/b.whl", "URL path is unsafe"),
        ('https://files.example/"onload=".whl', "URL path is unsafe"),
        ("https://files.example/a&amp.whl", "URL path is unsafe"),
        ("https://files.example/a\nb.whl", "URL path is unsafe"),
        (
            "https://files.example\\@evil.example/b.whl",
            "URL has characters that URLs must not have",
        ),
        ("https://evil.example\\.files.example/", "URL has characters that URLs must not have"),
        ("ht\ntps://files.example/b.whl", "URL has characters that URLs must not have"),
        ("https://filés.example/b.whl", "URL has characters that URLs must not have"),
        ("https://[files.example/b.whl", "URL is malformed"),
        ("https://files.example:port/b.whl", "URL is malformed"),
        ("https://files.example/" + "a" * URL_CHARS_MAX, "URL is too long"),
    ],
)
def test_a_url_that_leaves_the_origins_is_dropped(url: str, reason: str) -> None:
    """A page names URLs; it never decides where files come from."""
    with pytest.raises(EntryDropped) as dropped:
        ORIGINS.locate(url, PAGE)

    assert str(dropped.value) == reason


@pytest.mark.parametrize(
    ("key", "origin"),
    [
        ("Files", "https://files.example"),
        ("", "https://files.example"),
        ("a/b", "https://files.example"),
        ("files", "files.example"),
        ("files", "ftp://files.example"),
        ("files", "https://files.example/path"),
        ("files", "https://user:secret@files.example"),
        ("files", "https://files.example?x=1"),
    ],
)
def test_an_origin_is_a_scheme_and_a_host(key: str, origin: str) -> None:
    """A wrong setting is an error at start, not a page without files."""
    with pytest.raises(ValueError, match="must be"):
        Origins({key: origin})
