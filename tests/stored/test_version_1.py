"""What the first version of the schema wrote is opened, answered, rewritten, moved and restored."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from analytics.export.formats import ExportFormat
from analytics.imports.chunks import ImportFormat
from analytics.model.instants import parse_instant
from analytics.model.schema import COLUMNS, SCHEMA_VERSION
from service.audit.backup.create import take_backup
from service.audit.backup.manifest import read_manifest
from service.audit.backup.restore import restore_backup
from service.store.catalog import list_live_segments
from service.store.journal import list_batches
from tests.budgets import sample
from tests.crashes import PowerCut, power_cut_after
from tests.service.audit.conftest import AuditWorld
from tests.stored.stored import (
    as_exported,
    exported,
    faults,
    imported,
    opened,
    settings_of,
    told,
    unpack,
    versions,
)

pytestmark = pytest.mark.sqlite_only(reason="it is a SQLite database")

LATER = dict.fromkeys(column.name for column in COLUMNS if column.since > 1)
OLD_KEY = {"idempotency-key": "old-key"}
OLD_BODY = '[{"event": "install_allowed", "packageName": "kept-answer"}]'
CI_COLUMNS = {"repository_id": "repository_id", "run_id": "run_id", "token_id": "jti"}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A folder with the data dir and its backup."""
    return unpack(tmp_path)


@pytest.fixture
def entries(stored: Path) -> list[dict[str, Any]]:
    """Acme's rows as its API answered then, with null in the columns that came later."""
    lines = (stored / "entries.ndjson").read_bytes().splitlines()
    return [json.loads(line) | LATER for line in lines]


@pytest.fixture
async def old(stored: Path) -> AsyncIterator[AuditWorld]:
    """A service of this version over the data dir."""
    async with opened(stored / "data") as audit:
        yield audit


async def test_it_opens_and_answers_the_same_rows(old, entries):
    assert await versions(old) == {1}
    assert await old.pages(limit=40) == entries
    assert await old.pages(limit=40, order="asc") == entries[::-1]
    assert [list(entry) for entry in await old.pages(limit=1000)] == [list(entries[0])] * 457
    assert await (await old.get(f"/{entries[200]['id']}")).get_json() == entries[200]
    assert await faults(old) == []


async def test_new_rows_are_received_after_all_of_its_rows(old, entries):
    """The database does not record the time of the last one; the clock may be behind."""
    old.clock.now = parse_instant(entries[-1]["received_at"])
    item = b'[{"event": "install_allowed", "packageName": "new"}]'
    response = await old.world.client.post(
        "/api/v1/admin/orgs/acme/audit/events",
        headers=old.world.admin | {"content-type": "application/json"},
        data=item,
    )
    assert (await response.get_json())["accepted"] == 1

    (new,) = await old.pages(package="new")
    assert new["received_at"] >= max(entry["received_at"] for entry in entries)
    assert new["created_at"] == entries[-1]["received_at"]


async def test_a_filter_on_a_later_column_finds_none_of_its_rows(old, entries):
    for name in LATER:
        value = "0" * 64 if name == "file_sha256" else "npm"
        assert await old.pages(**{name: value}) == []
        assert await old.pages(limit=1000, **{name: f"!{value}"}) == entries
        assert await old.pages(**{name: value, "order": "asc"}) == []
        wanted = [entry for entry in entries if entry["packageName"] == "requests"]
        assert await old.pages(**{name: f"!{value}", "package": "requests"}) == wanted


async def test_its_journal_is_sealed_and_its_files_are_merged(old, entries):
    async with old.services.store.read() as session:
        assert len(await list_batches(session, old.world.acme.id)) == 7
        assert any(segment.seq_base for segment in await list_live_segments(session))
    assert await old.seal() > 0
    assert await versions(old) == {1, SCHEMA_VERSION}
    assert await old.pages(limit=100) == entries
    old.clock.advance(days=1)

    await old.services.compactor.compact_due(everything=True)

    async with old.services.store.read() as session:
        segments = await list_live_segments(session, old.world.acme.id)
    assert sorted(str(segment.day) for segment in segments) == sorted(
        {entry["created_at"][:10] for entry in entries}
    )
    assert {segment.seq_base for segment in segments} == {0}
    assert await old.pages(limit=100) == entries
    assert await faults(old) == []


@sample(3)
@pytest.mark.parametrize("steps", range(0, 45, 3))
async def test_a_merge_of_its_files_that_is_cut_is_completed(old, entries, steps):
    """They have no page checksums, and do not name their owner."""
    await old.seal()
    old.clock.advance(days=1)
    with suppress(PowerCut), power_cut_after(steps, old.services.store):
        await old.services.compactor.compact_due(everything=True)
    assert await old.pages(limit=100) == entries

    await old.services.compactor.compact_due(everything=True)

    assert await old.pages(limit=100) == entries
    assert await faults(old) == []


@sample(2)
@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("file_format", ExportFormat)
async def test_it_is_exported_in_every_format(old, entries, file_format, is_sealed):
    if is_sealed:
        await old.seal()
        old.clock.advance(days=1)
        await old.services.compactor.compact_due(everything=True)

    rows = await exported(old, file_format)
    some = await exported(old, file_format, package="requests", order="asc")

    wanted = [entry for entry in entries if entry["packageName"] == "requests"]
    assert rows == as_exported(entries, file_format)
    assert some == as_exported(wanted[::-1], file_format)


async def test_an_export_of_then_can_be_imported_now(old, entries, stored):
    content = (stored / "entries.ndjson").read_bytes()

    result = await imported(old, old.world.other, ImportFormat.NDJSON, content)

    assert result.rows == len(entries)
    expected = []
    for entry in entries:
        ci = (entry["payload"] or {}).get("ci", {})
        expected.append(entry | {name: ci.get(member) for name, member in CI_COLUMNS.items()})
    assert any(entry["run_id"] for entry in expected)
    rows = await old.world.audit("other", limit="1000")
    new = {"audit_imported", "org_created", "member_added", "session_issued"}
    assert [row for row in told(rows) if row["event"] not in new] == [
        row for row in told(expected) if row["event"] not in new
    ]


async def test_an_answer_that_was_kept_is_still_given(old, entries):
    """A sender that retries over an update must not send its rows twice."""
    response = await old.world.client.post(
        "/api/v1/admin/orgs/acme/audit/events",
        headers=old.world.admin | OLD_KEY | {"content-type": "application/json"},
        data=OLD_BODY,
    )

    assert response.status_code == 200
    assert await response.get_json() == {"accepted": 1, "rejected": []}
    assert await old.pages(limit=1000) == entries


async def test_new_rows_stand_beside_the_old_ones(old, entries):
    item = {"event": "install_allowed", "packageName": "requests", "ecosystem": "pypi"}
    response = await old.world.client.post(
        "/api/v1/admin/orgs/acme/audit/events", headers=old.world.admin, json=[item]
    )
    assert response.status_code == 200
    for is_merged in (False, True):
        if is_merged:
            await old.seal()
            old.clock.advance(days=1)
            await old.services.compactor.compact_due(everything=True)
        (new,) = await old.pages(ecosystem="pypi")
        assert new["packageName"] == "requests"
        assert sorted(await old.pages(limit=100), key=str) == sorted([new, *entries], key=str)
        assert new not in await old.pages(ecosystem="!pypi", limit=100)


@pytest.mark.parametrize("is_of_then", [True, False], ids=["taken then", "taken now"])
async def test_its_backup_is_restored(stored, entries, is_of_then):
    source, place = stored / "backup", stored / "restored"
    if not is_of_then:
        source = stored / "new"
        async with opened(stored / "data") as old:
            await take_backup(
                old.services, source, lambda *_: None, is_linked=False, has_secrets=False
            )
    manifest = read_manifest(source)
    assert (manifest.format, manifest.audit_schema or 1) == (
        (1, 1) if is_of_then else (2, SCHEMA_VERSION)
    )

    await asyncio.to_thread(
        restore_backup, settings_of(place), source, lambda *_: None, is_forced=False
    )

    async with opened(place) as restored:
        assert await restored.pages(limit=100) == entries
        assert await faults(restored) == []
