"""Compressed exports: as the file itself, or on the way alone."""

import hashlib

import pytest

from analytics.export.compression import Compression
from tests.analytics.readers import decompressed, read_file
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import START

SUFFIXES = {"gzip": ".gz", "zstd": ".zst"}

pytestmark = pytest.mark.parametrize("export_format", ["csv", "json", "ndjson"])


@pytest.fixture
async def filled(audit):
    await audit.accept([sample_row(START, package_name=f"p{n}") for n in range(50)])
    return audit


async def export(audit, accept: str | None, **query):
    """An export for a client that accepts these codings; the response and its body."""
    headers = audit.world.admin | ({} if accept is None else {"accept-encoding": accept})
    response = await audit.export(headers, event="blocklist_hit", order="asc", **query)
    assert response.status_code == 200
    return response, await response.get_data()


async def finished(audit) -> dict:
    """What the newest audit_export_finished row says."""
    await audit.services.exporter.drain()
    return (await audit.page(event="audit_export_finished"))["entries"][0]["payload"]


@pytest.mark.parametrize("compression", Compression)
async def test_compress_makes_another_file(filled, export_format, compression):
    """It says so in name and type, and the record is of the compressed file."""
    _, plain = await export(filled, None, format=export_format)

    response, body = await export(filled, None, format=export_format, compress=compression)

    assert decompressed(body, compression) == plain
    assert response.headers["content-type"] == f"application/{compression}"
    assert "content-encoding" not in response.headers
    assert response.headers["content-disposition"].endswith(
        f'.{export_format}{SUFFIXES[compression]}"'
    )
    assert response.headers["x-row-count"] == "50"
    end = await finished(filled)
    assert (end["rows"], end["bytes"]) == (50, len(body))
    assert end["sha256"] == hashlib.sha256(body).hexdigest()


@sample(3)
@pytest.mark.parametrize("compression", Compression)
async def test_accept_encoding_makes_the_same_file_travel_lighter(
    filled, export_format, compression
):
    """The client undoes it, so the record is of the uncompressed file."""
    plainly, plain = await export(filled, None, format=export_format)

    response, body = await export(filled, compression, format=export_format)

    assert decompressed(body, compression) == plain
    assert len(body) < len(plain)
    assert response.headers["content-encoding"] == compression
    for name in ("content-type", "content-disposition", "x-row-count", "vary"):
        assert response.headers[name] == plainly.headers[name]
    end = await finished(filled)
    assert (end["rows"], end["bytes"]) == (50, len(plain))
    assert end["sha256"] == hashlib.sha256(plain).hexdigest()


async def test_a_compressed_file_is_not_compressed_again(filled, export_format):
    """It would only cost time."""
    response, body = await export(filled, "gzip", format=export_format, compress="zstd")

    assert "content-encoding" not in response.headers
    assert len(read_file(decompressed(body, Compression.ZSTD), export_format)) == 50
