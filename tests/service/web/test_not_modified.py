"""A client that has the content is told so, and nothing that its cache would store over it."""

import pytest

from tests.conftest import World
from tests.service.not_modified import assert_is_confirmed, sent

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = ["/docs", "/openapi.json", "/static/style.css", "/static/rows.js", "/static/icon.svg"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("coding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_304_describes_no_content(shared_world: World, path: str, coding: str, method: str):
    app = shared_world.client.app
    full = await sent(app, method, path, accept_encoding=coding)
    etag = full.headers["etag"]
    again = await sent(app, method, path, accept_encoding=coding, if_none_match=etag)

    assert_is_confirmed(full, again)


@pytest.mark.parametrize("path", PATHS)
async def test_get_and_head_name_the_same_content(shared_world: World, path: str):
    """One etag for both: a cache may ask with the one and then with the other."""
    app = shared_world.client.app
    got, asked = [await sent(app, way, path, accept_encoding="gzip") for way in ("GET", "HEAD")]

    assert got.headers["etag"] == asked.headers["etag"]
