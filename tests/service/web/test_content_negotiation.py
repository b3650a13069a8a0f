"""Which content coding a client gets, seen at an export."""

import pytest

from tests.budgets import sample
from tests.conftest import World

pytestmark = pytest.mark.asyncio(loop_scope="module")


@sample(11)
@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (None, None),
        ("", None),
        ("identity", None),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("zstd", "zstd"),
        ("gzip, zstd", "zstd"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("gzip;q=0.8, zstd;q=0.9, br", "zstd"),
        ("gzip, deflate, br", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("br, deflate", None),
        ("gzip;q=0", None),
        ("gzip;q=0, zstd;q=0.0", None),
        ("gzip;q=0.5, identity;q=0.9", None),
        ("gzip;q=0.9, identity;q=0.5", "gzip"),
        ("gzip, identity", "gzip"),
        ("*", "zstd"),
        ("*;q=0", None),
        ("*;q=0, gzip", "gzip"),
        ("gzip, *;q=0.1", "gzip"),
        ("zstd;q=0, *", "gzip"),
        ("identity;q=0, *;q=0.1", "zstd"),
        ("identity;q=0", None),
        ("gzip;q=nonsense", None),
        (";;,=,q=1", None),
    ],
)
async def test_the_best_liked_coding_there_is_is_taken(
    shared_world: World, accept: str | None, coding: str | None
):
    """Bytes as they are unless something else is asked for (RFC 9110, 12.5.3)."""
    headers = shared_world.admin | ({} if accept is None else {"accept-encoding": accept})
    answer = await shared_world.client.get(
        "/api/v1/admin/orgs/acme/audit/export?format=csv", headers=headers
    )
    await answer.get_data()

    assert answer.status_code == 200
    assert answer.headers.get("content-encoding") == coding
    assert answer.headers["vary"] == "accept-encoding"


async def test_parquet_is_compressed_already(shared_world: World):
    answer = await shared_world.client.get(
        "/api/v1/admin/orgs/acme/audit/export?format=parquet",
        headers=shared_world.admin | {"accept-encoding": "gzip, zstd"},
    )

    assert (await answer.get_data()).startswith(b"PAR1")
    assert "content-encoding" not in answer.headers
