"""A page is one body in two codings, whatever its length and however it was put together."""

import random
import zlib
from collections.abc import AsyncIterator

import pytest

from service.packages.proxy.page_cache import (
    GZIP_BYTES_MIN,
    PLAIN_BYTES_MAX,
    STEP_BYTES,
    UNSTEPPED_BYTES_MAX,
    make_page,
    plain_body,
)
from tests.budgets import sample

RANDOM = random.Random(20261123)


async def joined(body: bytes | AsyncIterator[bytes]) -> bytes:
    if isinstance(body, bytes):
        return body
    pieces = [piece async for piece in body]
    assert max(map(len, pieces)) <= 2 * STEP_BYTES
    return b"".join(pieces)


@sample(6)
@pytest.mark.parametrize(
    "size",
    [0, GZIP_BYTES_MIN, PLAIN_BYTES_MAX, PLAIN_BYTES_MAX + 1, UNSTEPPED_BYTES_MAX + 12345],
)
@pytest.mark.parametrize("alphabet", [b"a", b"ab", bytes(range(256))])
async def test_every_client_gets_the_same_body(size, alphabet):
    """Of a long page the compressed form alone is kept."""
    body = bytes(RANDOM.choices(alphabet, k=size))
    pieces = [body[at : at + 100_000] for at in range(0, size, 100_000)]

    page = make_page(iter(pieces), None)

    assert page.size == size
    assert (page.plain is None) == (size > PLAIN_BYTES_MAX)
    assert await joined(plain_body(page)) == body
    if size >= GZIP_BYTES_MIN:
        assert zlib.decompress(page.compressed, 31) == body
    assert page.kept_bytes < max(2 * size, 1024) + 1024


def test_the_etag_is_of_the_contents():
    assert make_page([b"ab", b"c"], None).etag == make_page([b"abc"], None).etag
    assert make_page([b"abc"], None).etag != make_page([b"abd"], None).etag
