"""What a later version does with rows of earlier ones: run in a copy that has `test_column`.

`test_next_version` makes the copy and the data dirs, and runs these tests in it.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from analytics.export.formats import ExportFormat
from analytics.imports.chunks import ImportFormat
from analytics.model.schema import SCHEMA_VERSION
from service.audit.backup.create import take_backup
from service.audit.backup.restore import restore_backup
from tests.analytics.samples import sample_row
from tests.conftest import START
from tests.service.audit.conftest import AuditWorld
from tests.stored.stored import (
    as_exported,
    exported,
    faults,
    imported,
    opened,
    settings_of,
    told,
    versions,
)

STORED = Path(os.environ["STORED"])
NEW = "test_column"


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    """Acme's rows as the earlier version answered them, with null in the new column."""
    return [entry | {NEW: None} for entry in json.loads((STORED / "entries.json").read_bytes())]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data dir of the earlier version, put back from its backup."""
    place = tmp_path / "data"
    restore_backup(settings_of(place), STORED / "backup", lambda *_: None, is_forced=False)
    return place


async def add(audit: AuditWorld, *values: str | None) -> None:
    """A row of this version for each of `values`."""
    who = {"package_name": "new", "actor_source": "oidc_github"}
    await audit.accept([sample_row(START, test_column=value, **who) for value in values])


async def merge(audit: AuditWorld) -> None:
    """Seal everything and merge it, a day later."""
    await audit.seal()
    audit.clock.advance(days=1)
    await audit.services.compactor.compact_due(everything=True)


def split(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of this version, and those of earlier ones."""
    new = [row for row in rows if row["packageName"] == "new"]
    return new, [row for row in rows if row not in new]


async def test_pages_and_filters_read_old_rows_as_null(data_dir, entries):
    assert SCHEMA_VERSION == 4
    async with opened(data_dir) as audit:
        assert await versions(audit) == {1, SCHEMA_VERSION - 1}
        assert await audit.pages(limit=100) == entries
        await add(audit, "a", "b", None)
        for change in (audit.seal, lambda: merge(audit), lambda: merge(audit)):
            new, old = split(await audit.pages(limit=100))
            assert (old, [row[NEW] for row in new]) == (entries, [None, "b", "a"])
            assert await audit.pages(**{NEW: "a"}) == new[2:]
            assert await audit.pages(**{NEW: "a", "order": "asc"}) == new[2:]
            assert split(await audit.pages(limit=100, **{NEW: "!a"})) == (new[:2], entries)
            assert await faults(audit) == []
            await change()
        assert SCHEMA_VERSION in await versions(audit)


@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("file_format", ExportFormat)
async def test_exports_have_the_column(data_dir, entries, file_format, is_merged):
    async with opened(data_dir) as audit:
        await add(audit, "a", None)
        if is_merged:
            await merge(audit)
        everything = await audit.pages(limit=100)
        assert split(everything)[1] == entries

        assert await exported(audit, file_format) == as_exported(everything, file_format)
        assert await exported(audit, file_format, **{NEW: "a"}) == as_exported(
            await audit.pages(**{NEW: "a"}), file_format
        )


@pytest.mark.parametrize("file_format", ImportFormat)
async def test_exports_of_both_versions_are_imported(data_dir, entries, file_format):
    async with opened(data_dir) as audit:
        await add(audit, "a", None)
        response = await audit.export(format=file_format, package="new")
        content = await response.get_data()
        await audit.services.exporter.drain()
        old = (STORED / f"entries.{file_format}").read_bytes()

        await imported(audit, audit.world.other, file_format, content)
        new = await audit.world.audit("other", package="new")
        await imported(audit, audit.world.other, file_format, old)

        assert sorted(str(row[NEW]) for row in new) == ["None", "a"]
        rows = await audit.world.audit("other", request_id="req_1", package="!new")
        assert told(rows) == told([row for row in entries if row["request_id"] == "req_1"])
        assert rows


async def test_backups_keep_the_column(data_dir, tmp_path, entries):
    async with opened(data_dir) as audit:
        await add(audit, "a")
        await audit.seal()
        await add(audit, "b")
        before = await audit.pages(limit=100)
        assert split(before)[1] == entries
        await take_backup(
            audit.services,
            tmp_path / "backup",
            lambda *_: None,
            is_linked=False,
            has_secrets=False,
        )
    place = tmp_path / "restored"

    await asyncio.to_thread(
        restore_backup, settings_of(place), tmp_path / "backup", lambda *_: None, is_forced=False
    )

    async with opened(place) as restored:
        assert await restored.pages(limit=100) == before
        assert await faults(restored) == []


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_what_it_leaves_for_the_earlier_version(data_dir, is_sealed):
    """A data dir with a row of this version, and a backup of it."""
    name = "sealed" if is_sealed else "journalled"
    async with opened(data_dir) as audit:
        await add(audit, "a")
        if is_sealed:
            await audit.seal()
        assert await faults(audit) == []
        await take_backup(
            audit.services,
            STORED / f"{name}-backup",
            lambda *_: None,
            is_linked=False,
            has_secrets=False,
        )
    data_dir.rename(STORED / name)
