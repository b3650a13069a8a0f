"""pip's cache stores the fields of a 304 over those of the page that it has (CacheControl)."""

import pytest

from tests.service.not_modified import Sent, assert_is_confirmed, sent
from tests.service.packages.proxy.proxied import Proxied, wheel_of

PYPI_FORMS = {
    "pypi json": "application/vnd.pypi.simple.v1+json",
    "pypi html": "application/vnd.pypi.simple.v1+html",
    "text/html": "text/html",
}
NPM_FORMS = {"npm full": "application/json", "npm install": "application/vnd.npm.install-v1+json"}
PAGES = {
    **{name: ("pypi/simple/foo/", accept) for name, accept in PYPI_FORMS.items()},
    **{name: ("npm/foo", accept) for name, accept in NPM_FORMS.items()},
    "npm manifest": ("npm/foo/1.0.0", "application/json"),
    "npm tarball": ("npm/foo/-/foo-1.0.0.tgz", "*/*"),
}


@pytest.fixture
async def stocked(proxied: Proxied) -> Proxied:
    """A registry with documents that are long enough to be compressed."""
    proxied.publishes("foo", *(wheel_of("foo", f"1.{minor}") for minor in range(20)))
    proxied.publishes_npm("foo", *(f"1.{minor}.0" for minor in range(20)))
    return proxied


async def answers(proxied: Proxied, method: str, path: str, **headers: str) -> tuple[Sent, Sent]:
    """The responses to a client that has nothing, and to the same one that has what it got."""
    app, path = proxied.client.app, f"/proxy/acme/{path}"
    headers |= {"x_service_api_key": proxied.key.secret}
    full = await sent(app, method, path, **headers)
    return full, await sent(app, method, path, **headers, if_none_match=full.headers["etag"])


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_a_304_describes_no_content(stocked: Proxied, coding: str, method: str):
    """A `content-type: text/html` would make pip read the JSON that it has as HTML."""
    for path, accept in PAGES.values():
        headers = {"accept": accept, "accept_encoding": coding}
        assert_is_confirmed(*await answers(stocked, method, path, **headers))


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_304_of_a_wheel_describes_no_content(stocked: Proxied, method: str):
    assert_is_confirmed(*await answers(stocked, method, await stocked.path_of("foo")))
