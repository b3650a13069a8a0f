"""Taking rows away: what the file holds, and what the log says of it."""

import hashlib
import re
from datetime import timedelta

import pytest

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.filters import Query
from analytics.model.schema import FILTER_PARAMETERS, WIRE_COLUMNS
from tests.analytics.readers import as_read, read_file
from tests.analytics.samples import sample_row
from tests.budgets import sample
from tests.conftest import BY_OPERATOR, START, refused

CSV, JSON = "csv", "json"
FORMATS = pytest.mark.parametrize("export_format", [CSV, JSON, "ndjson", "parquet"])
DOORS = {
    "admin_api": "/api/v1/admin/orgs/acme/audit/export",
    "dashboard": "/admin/ui/orgs/acme/audit/export",
}
"""The paths of an export, by the verdict_source its rows have."""


async def fill(audit) -> None:
    """Sealed and journalled rows over three days, awkward values among them."""
    names = ["left-pad", "@acme/payments", '=1+"1"', "new\nline", "é😀", None, ""]
    rows = [
        sample_row(START - timedelta(hours=5 * n), package_name=names[n % len(names)])
        for n in range(14)
    ]
    await audit.accept(rows[:7])
    await audit.seal()
    await audit.accept(rows[7:])


async def finished(audit) -> dict:
    await audit.services.exporter.drain()
    (entry,) = (await audit.page(event="audit_export_finished"))["entries"]
    return entry


@sample(3)
@pytest.mark.parametrize(
    "query", [{}, {"package": "!*"}, {"since": "2026-03-03", "until": "2026-03-03", "order": "asc"}]
)
@FORMATS
async def test_an_export_is_every_page_of_its_filters_row_for_row(audit, export_format, query):
    """Raw, so that the values of CSV can be compared."""
    await fill(audit)
    paged = await audit.pages(limit=7, **query)

    response = await audit.export(format=export_format, raw="1", **query)
    rows = read_file(await response.get_data(), export_format)

    assert response.headers["x-row-count"] == str(len(paged))
    assert rows == [as_read(entry, export_format) for entry in paged]
    assert [list(row) for row in rows] == [list(WIRE_COLUMNS)] * len(paged)
    assert rows


async def test_formulas_are_guarded_unless_raw(audit):
    """`raw=0` is the default."""
    await fill(audit)
    files = [
        await (await audit.export(format=CSV, package="@acme/payments", **raw)).get_data()
        for raw in ({}, {"raw": "0"}, {"raw": "1"})
    ]
    names = [row.splitlines()[1].split(b",")[3] for row in files]

    assert names == [b"'@acme/payments", b"'@acme/payments", b"@acme/payments"]


@sample(2)
@pytest.mark.parametrize(
    ("export_format", "content_type"),
    [
        (CSV, "text/csv; charset=utf-8"),
        (JSON, "application/json"),
        ("ndjson", "application/x-ndjson"),
        ("parquet", "application/vnd.apache.parquet"),
    ],
)
async def test_the_answer_says_what_it_is_and_how_much(audit, export_format, content_type):
    await fill(audit)
    everything = await audit.pages()

    response = await audit.export(format=export_format)

    assert response.headers["content-type"] == content_type
    assert response.headers["content-disposition"] == (
        f'attachment; filename="acme-audit-20260304T120000Z.{export_format}"'
    )
    assert response.headers["x-row-count"] == str(len(everything))
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["vary"] == "accept-encoding"
    assert "content-encoding" not in response.headers


@sample(2)
@FORMATS
async def test_an_export_is_audited_with_filters_format_and_count(audit, export_format):
    await fill(audit)
    query = {"package": ["left-pad", "!missing"], "since": "2026-03-01"}

    response = await audit.export(audit.world.session("auditor"), format=export_format, **query)
    assert response.status_code == 200
    (entry,) = (await audit.page(event="audit_exported"))["entries"]

    auditor = audit.world.members["auditor"]
    assert entry["actor"] == f"github:{auditor.id}"
    assert entry["actor_source"] == "session"
    assert entry["verdict_source"] == "dashboard"
    assert entry["request_id"] == response.headers["x-request-id"]
    assert entry["decision"] is None
    payload = entry["payload"]
    assert re.fullmatch(r"exp_[0-9a-z]{16}", payload.pop("export_id"))
    assert payload == {
        "format": export_format,
        "filters": {"package": ["!missing", "left-pad"], "since": ["2026-03-01"]},
        "rows": 2,
    }


async def test_it_is_audited_before_the_first_byte(audit):
    await fill(audit)
    exporter = audit.services.exporter

    export = await exporter.prepare(
        audit.world.acme, Query(), FileEncoding(ExportFormat.CSV), BY_OPERATOR, START
    )
    (entry,) = (await audit.page(event="audit_exported"))["entries"]

    assert entry["payload"]["rows"] == export.rows > 0
    assert (
        b"".join([chunk async for chunk in await exporter.stream(export)]).count(b"aud_")
        == export.rows
    )


@sample(2)
@FORMATS
async def test_its_end_is_recorded_with_rows_bytes_and_digest(audit, export_format):
    """The holder of the file can prove that it is the one that left."""
    await fill(audit)

    response = await audit.export(format=export_format)
    body = await response.get_data()
    (begun,) = (await audit.page(event="audit_exported"))["entries"]
    end = await finished(audit)

    assert end["payload"] == {
        "export_id": begun["payload"]["export_id"],
        "complete": True,
        "rows": int(response.headers["x-row-count"]),
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    assert end["actor"] == begun["actor"]


async def test_an_exports_own_rows_are_not_in_it(audit):
    """The snapshot was fixed before; the next export has them."""
    first = await (await audit.export(format=JSON)).get_json()
    await audit.services.exporter.drain()
    second = await (await audit.export(format=JSON)).get_json()

    assert "audit_exported" not in {entry["event"] for entry in first}
    assert [entry["event"] for entry in second[:2]] == ["audit_export_finished", "audit_exported"]
    assert second[2:] == first


async def test_without_rows_there_is_still_a_file_and_a_record(audit):
    response = await audit.export(format=JSON, package="no-such-package")

    assert await response.get_data() == b"[]\n"
    assert (await finished(audit))["payload"]["rows"] == 0


async def test_every_filter_at_once_can_be_exported(audit):
    """The record of the filters must fit its column, however many there are."""
    query = {parameter.name: parameter.example for parameter in FILTER_PARAMETERS} | {
        "since": "2026-03-01",
        "until": "2026-03-05",
        "order": "asc",
    }

    assert (await audit.export(format=CSV, **query)).status_code == 200


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, "format must be one of csv, json, ndjson, parquet"),
        ({"format": "CSV"}, "format must be one of csv, json, ndjson, parquet"),
        ({"format": ["csv", "json"]}, "format may be given only once"),
        ({"format": CSV, "raw": "yes"}, "raw must be true or false"),
        ({"format": CSV, "raw": ["0", "1"]}, "raw may be given only once"),
        ({"format": CSV, "compress": "br"}, "compress must be one of gzip, zstd"),
        ({"format": CSV, "compress": ["gzip"] * 2}, "compress may be given only once"),
        (
            {"format": "parquet", "compress": "zstd"},
            "compress does not go with parquet, which is compressed already",
        ),
        ({"format": CSV, "limit": "5"}, "unknown query parameter: limit"),
        ({"format": CSV, "cursor": "x"}, "unknown query parameter: cursor"),
        ({"format": CSV, "package": ""}, "package must not be empty"),
    ],
)
async def test_a_faulty_request_is_refused_and_not_recorded(audit, query, text):
    assert await refused(await audit.export(**query)) == (400, text)
    assert (await audit.page(event="audit_exported"))["entries"] == []


@pytest.mark.parametrize("path", DOORS.values())
async def test_head_is_no_export(audit, path):
    """It would leave a record of a file that was not received."""
    response = await audit.world.client.head(f"{path}?format=csv", headers=audit.world.admin)

    assert response.status_code == 405
    assert (await audit.page(event="audit_exported"))["entries"] == []


async def test_both_paths_give_the_same_file_and_each_records_its_own(audit):
    """They differ only in the actor that is recorded."""
    await fill(audit)
    query = {"format": CSV, "event": "blocklist_hit"}
    files = {}
    for origin, path in DOORS.items():
        response = await audit.world.client.get(path, headers=audit.world.admin, query_string=query)
        files[origin] = await response.get_data()
    await audit.services.exporter.drain()

    assert files["admin_api"] == files["dashboard"]
    for event in ("audit_exported", "audit_export_finished"):
        entries = (await audit.page(event=event, order="asc"))["entries"]
        assert [entry["verdict_source"] for entry in entries] == list(DOORS)
