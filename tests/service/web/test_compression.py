"""Pages and JSON answers are compressed, but for what another site may have caused."""

import gzip
import json

import pyarrow as pa
import pytest

from service.core.header_names import SESSION_COOKIE
from tests.conftest import SCRAPER, World

AUDIT_PAGE = "/admin/ui/orgs/acme/audit"
AUDIT_API = "/api/v1/admin/orgs/acme/audit"


async def ask(world: World, path: str, **headers: str):
    """The answer to the owner's browser."""
    return await world.client.get(path, headers={**world.session("owner"), **headers})


def unpacked(content: bytes, coding: str) -> bytes:
    if coding == "gzip":
        return gzip.decompress(content)
    return pa.CompressedInputStream(pa.BufferReader(content), coding).read()


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize("path", [AUDIT_PAGE, AUDIT_API])
async def test_an_answer_has_the_coding_that_its_client_asks_for(
    world: World, path: str, coding: str
):
    for _ in range(5):
        await world.create(repository_id=str(len(await world.bindings()) + 1))
    site = {"sec-fetch-site": "same-origin"}

    answer = await ask(world, path, **site, **{"accept-encoding": coding})

    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == coding
    assert {"accept-encoding", "sec-fetch-site"} <= set(answer.headers["vary"].split(", "))
    packed = await answer.get_data(as_text=False)
    plain = unpacked(packed, coding)
    assert len(packed) < len(plain) / 2
    if path == AUDIT_API:
        same = await ask(world, path, **site, **{"accept-encoding": "identity"})
        assert json.loads(plain) == await same.get_json()
    else:
        assert plain.rstrip().endswith(b"</html>")


@pytest.mark.parametrize(
    ("headers", "is_compressed"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({}, False),
    ],
)
async def test_what_another_site_may_have_caused_is_not_compressed(
    world: World, headers: dict[str, str], is_compressed: bool
):
    """It chooses the filter, which the page repeats, and could guess the rows by the length."""
    answer = await ask(
        world, f"{AUDIT_PAGE}?package=guess", **headers, **{"accept-encoding": "gzip"}
    )

    assert answer.status_code == 200
    assert ("content-encoding" in answer.headers) == is_compressed


async def test_a_script_without_a_cookie_gets_compressed_json(world: World):
    """A browser adds no such header to the requests of other sites."""
    for number in range(5):
        await world.create(repository_id=str(number + 1))
    headers = {**world.admin, "accept-encoding": "gzip"}
    assert SESSION_COOKIE not in str(headers)

    answer = await world.client.get(AUDIT_API, headers=headers)

    assert answer.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/static/icon.svg"])
async def test_short_answers_and_other_types_stay_as_they_are(world: World, path: str):
    """An error fits a packet; and an event of the live page has to arrive when it happens."""
    answer = await world.client.get(path, headers={**SCRAPER, "accept-encoding": "gzip"})

    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers


async def test_static_files_are_compressed_and_not_sent_twice(shared_world):
    client = shared_world.client
    plain = await (await client.get("/static/style.css")).get_data(as_text=False)
    response = await client.get("/static/style.css", headers={"accept-encoding": "gzip"})
    content = await response.get_data(as_text=False)

    assert response.headers["content-encoding"] == "gzip"
    assert gzip.decompress(content) == plain
    assert len(content) < len(plain) / 3
    etag = response.headers["etag"]
    again = await client.get(
        "/static/style.css", headers={"accept-encoding": "gzip", "if-none-match": etag}
    )
    assert again.status_code == 304
    part = await client.get(
        "/static/style.css", headers={"accept-encoding": "gzip", "range": "bytes=0-9"}
    )
    assert await part.get_data(as_text=False) == plain[:10]
