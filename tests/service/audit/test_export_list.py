"""Exports as a list: what was asked for, how far it is, what was sent, and its receipt."""

import hashlib
import json
from datetime import timedelta

import pytest

from analytics.export.formats import ExportFormat
from analytics.export.writers import FileEncoding
from analytics.model.filters import parse_query
from service.access.callers import service_context
from service.audit import export_entries
from service.audit.export_entries import SILENT_AFTER, close_silent_exports
from service.store.tables import ExportEntry
from tests.analytics.samples import sample_row
from tests.conftest import BY_OPERATOR, START, grant, refused

EXPORTS = "/api/v1/admin/orgs/acme/exports"
CSV = FileEncoding(ExportFormat.CSV)
FLOOR = "2025-03-04T12:00:00.123456Z"


@pytest.fixture
async def filled(audit):
    """A sealed row on each of three days."""
    await audit.accept([sample_row(START - timedelta(days=n)) for n in range(3)])
    await audit.seal()
    return audit


async def get(audit, path="", headers=None, **query):
    return await audit.world.client.get(
        EXPORTS + path, headers=headers or audit.world.admin, query_string=query
    )


async def listed(audit, **query) -> dict:
    response = await get(audit, **query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    return await response.get_json()


async def exported(audit, **query):
    """A finished export: its id, and the bytes as the client saves them."""
    response = await audit.export(**{"format": "csv"} | query)
    content = await response.get_data()
    await audit.services.exporter.drain()
    return response.headers["x-export-id"], content


async def start(audit, **query):
    exporter = audit.services.exporter
    wanted = parse_query({name: [value] for name, value in query.items()})
    export = await exporter.prepare(audit.world.acme, wanted, CSV, BY_OPERATOR, audit.clock())
    return export, await exporter.stream(export)


async def test_a_finished_export_says_what_it_was(filled):
    export_id, content = await exported(filled, package="left-pad", until="2026-03-31", raw="1")
    page = await listed(filled)
    (row,) = (await filled.page(event="audit_export_finished"))["entries"]
    (begun,) = (await filled.page(event="audit_exported"))["entries"]

    assert page["org"] == "acme"
    assert page["next_cursor"] is None
    (entry,) = page["exports"]
    assert entry == {
        "id": export_id,
        "state": "finished",
        "actor": "system:admin-token",
        "actor_source": "admin_token",
        "verdict_source": "dashboard",
        "request_id": begun["request_id"],
        "started_at": "2026-03-04T12:00:00.123456Z",
        "ended_at": "2026-03-04T12:00:00.123456Z",
        "format": "csv",
        "compress": None,
        "raw": True,
        "filters": {"package": ["left-pad"], "until": ["2026-03-31"]},
        "since": FLOOR,
        "until": "2026-04-01T00:00:00.000000Z",
        "retention_floor": FLOOR,
        "watermark": entry["watermark"],
        "rows": 3,
        "sent_rows": 3,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "version": entry["version"],
    }
    assert row["payload"]["sha256"] == entry["sha256"]
    assert begun["id"] > f"aud_{entry['watermark']:019d}"
    assert await (await get(filled, f"/{export_id}")).get_json() == entry


async def test_an_answer_says_up_front_what_the_file_is(filled):
    response = await filled.export(format="csv", since="2026-03-03", until="2026-03-03")
    headers = response.headers

    assert headers["x-export-window"] == "2026-03-03T00:00:00.000000Z/2026-03-04T00:00:00.000000Z"
    assert headers["x-retention-floor"] == FLOOR
    assert f"<{EXPORTS}/{headers['x-export-id']}/receipt>" in headers["link"]
    open_ended = await filled.export(format="csv")
    assert open_ended.headers["x-export-window"] == f"{FLOOR}/.."


async def test_a_digest_is_that_of_the_file_the_client_saves(filled):
    """A coding of the transfer does not count, compression of the file does."""
    headers = filled.world.admin | {"accept-encoding": "gzip"}
    response = await filled.export(headers, format="ndjson")
    assert response.headers["content-encoding"] == "gzip"
    await response.get_data()
    await filled.services.exporter.drain()
    coded = (await listed(filled))["exports"][0]
    export_id, content = await exported(filled, format="ndjson", compress="gzip")
    packed = await (await get(filled, f"/{export_id}")).get_json()

    assert packed["sha256"] == hashlib.sha256(content).hexdigest()
    assert packed["bytes"] == len(content) < coded["bytes"]


async def test_a_receipt_has_its_keys_in_a_fixed_order(filled):
    """It is kept beside the file for years, and compared by eye."""
    export_id, content = await exported(filled)
    response = await get(filled, f"/{export_id}/receipt")
    text = await response.get_data(as_text=True)
    receipt = json.loads(text)

    assert response.headers["content-disposition"] == (
        'attachment; filename="acme-audit-20260304T120000Z.csv.receipt.json"'
    )
    keys = (
        "receipt org tenant_id export_id actor actor_source started_at finished_at file_name"
        " format compress raw filters since until retention_floor watermark rows bytes sha256"
        " version digest"
    )
    assert list(receipt) == keys.split()
    assert receipt["receipt"] == 1
    assert receipt["org"] == "acme"
    assert receipt["export_id"] == export_id
    assert receipt["sha256"] == hashlib.sha256(content).hexdigest()
    assert receipt["file_name"] == "acme-audit-20260304T120000Z.csv"
    assert text == await (await get(filled, f"/{export_id}/receipt")).get_data(as_text=True)


async def test_a_running_export_has_no_receipt_and_shows_how_far_it_is(filled):
    """Rows sent of the counted ones are written every few seconds."""
    export, stream = await start(filled)
    received = [await anext(stream), await anext(stream)]
    await filled.services.exporter._progress.write()
    entry = (await listed(filled))["exports"][0]

    assert entry["state"] == "running"
    assert entry["ended_at"] is None
    assert entry["sha256"] is None
    assert entry["rows"] == export.rows
    assert 0 < entry["bytes"] <= len(b"".join(received))
    assert await refused(await get(filled, f"/{export.export_id}/receipt")) == (
        409,
        "the export is running: only a finished export has a receipt",
    )
    await stream.aclose()
    await filled.services.exporter.drain()
    assert (await listed(filled))["exports"][0]["state"] == "broken"


async def close_broken_exports(filled) -> int:
    by = service_context(filled.services.settings.platform_tenant_id)
    return await close_silent_exports(filled.services.store, by)


async def test_an_export_whose_process_died_is_broken_and_its_end_recorded(filled):
    export, stream = await start(filled)
    filled.services.exporter._progress.remove(export.export_id)  # as a killed process does
    filled.clock.advance(seconds=SILENT_AFTER.total_seconds() - 1)
    assert (await listed(filled))["exports"][0]["state"] == "running"
    assert await close_broken_exports(filled) == 0
    filled.clock.advance(seconds=1)
    assert (await listed(filled))["exports"][0]["state"] == "broken"
    assert (await filled.page(event="audit_export_finished"))["entries"] == []

    assert await close_broken_exports(filled) == 1
    assert await close_broken_exports(filled) == 0

    entry = (await listed(filled))["exports"][0]
    assert (entry["state"], entry["sha256"]) == ("broken", None)
    assert entry["ended_at"] is not None
    (row,) = (await filled.page(event="audit_export_finished"))["entries"]
    assert row["actor"] == "system:maintenance"
    assert row["payload"]["export_id"] == export.export_id
    assert row["payload"]["complete"] is False
    await stream.aclose()


async def test_a_receipt_can_be_asked_for_as_soon_as_the_file_is_there(filled):
    """Its end is recorded after the last byte; the client need not know."""
    response = await filled.export(format="csv")
    content = await response.get_data()
    answer = await get(filled, f"/{response.headers['x-export-id']}/receipt")

    assert answer.status_code == 200
    assert (await answer.get_json())["bytes"] == len(content)


async def test_a_process_that_was_only_suspended_has_the_last_word(filled):
    """The client has the whole file: its receipt must say so."""
    export, stream = await start(filled)
    filled.services.exporter._progress.remove(export.export_id)
    filled.clock.advance(seconds=SILENT_AFTER.total_seconds())
    assert await close_broken_exports(filled) == 1
    content = b"".join([piece async for piece in stream])
    await filled.services.exporter.drain()

    entry = (await listed(filled))["exports"][0]
    assert entry["state"] == "finished"
    assert entry["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("step", ["flush", "record"])
async def test_a_begin_that_fails_between_its_steps_leaves_neither_entry_nor_row(
    filled, monkeypatch, step
):
    """One transaction: the list and the log cannot disagree."""

    async def add_and_fail(work, entry, by):
        if step == "record":
            await export_entries.add_export(work, entry, by)
        else:
            entry.progress_at = work.now
            work.session.add(entry)
            await work.session.flush()
        raise RuntimeError

    monkeypatch.setattr("service.audit.exports.add_export", add_and_fail)
    with pytest.raises(RuntimeError):
        await start(filled)
    monkeypatch.undo()

    assert (await listed(filled))["exports"] == []
    assert (await filled.page(event="audit_exported"))["entries"] == []
    await exported(filled)  # its slot is free again


async def test_an_end_that_fails_leaves_the_export_running(filled, monkeypatch):
    """Neither half: the entry and the row come together, or the sweep records both."""

    async def end_and_fail(work, *arguments, **named):
        await export_entries.end_export(work, *arguments, **named)
        raise RuntimeError

    monkeypatch.setattr("service.audit.exports.end_export", end_and_fail)
    await exported(filled)
    monkeypatch.undo()

    assert (await listed(filled))["exports"][0]["state"] == "running"
    assert (await filled.page(event="audit_export_finished"))["entries"] == []
    filled.clock.advance(seconds=SILENT_AFTER.total_seconds())
    assert await close_broken_exports(filled) == 1
    assert len((await filled.page(event="audit_export_finished"))["entries"]) == 1


async def test_pages_follow_each_other_without_a_gap(filled):
    ids = []
    for hours in (0, 0, 1):
        filled.clock.advance(hours=hours)
        ids.append((await exported(filled))[0])
    everything = [entry["id"] for entry in (await listed(filled))["exports"]]
    paged, cursor = [], {}
    while True:
        page = await listed(filled, limit=1, **cursor)
        paged += [entry["id"] for entry in page["exports"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
        filled.clock.advance(seconds=1)
        await exported(filled)

    assert sorted(paged) == sorted(ids)
    assert paged == everything
    assert paged[0] == ids[2]


async def test_exports_of_another_organisation_are_not_found(filled):
    export_id, _ = await exported(filled)
    theirs = "/api/v1/admin/orgs/other/exports"
    client, admin = filled.world.client, filled.world.admin

    assert (await (await client.get(theirs, headers=admin)).get_json())["exports"] == []
    for path in (f"/{export_id}", f"/{export_id}/receipt"):
        answer = await client.get(theirs + path, headers=admin)
        assert await refused(answer) == (404, "Export not found for this org")
    answer = await client.get(theirs, headers=admin, query_string={"cursor": export_id})
    assert await refused(answer) == (400, "cursor is not valid for this query")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"limit": "0"}, "limit must be an integer from 1 to 1000"),
        ({"cursor": "exp_none"}, "cursor is not valid for this query"),
        ({"state": "running"}, "unknown query parameter: state"),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(audit, query, text):
    assert await refused(await get(audit, **query)) == (400, text)


async def test_who_exports_may_see_the_list_without_reading(filled):
    await grant(filled.world, "member", "audit:export")

    assert (await get(filled, headers=filled.world.session("member"))).status_code == 200


def test_a_state_follows_from_the_entry_alone():
    entry = ExportEntry(progress_at=START, ended_at=None, is_complete=None)

    assert export_entries.state_of(entry, START) == "running"
    assert export_entries.state_of(entry, START + SILENT_AFTER) == "broken"
    entry.ended_at, entry.is_complete = START, True
    assert export_entries.state_of(entry, START + SILENT_AFTER) == "finished"
