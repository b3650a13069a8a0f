"""Data dirs as other versions wrote them, opened by this one."""

import io
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import select

from analytics.imports.chunks import FileKind, ImportFormat
from service.app.application import create_app
from service.app.bootstrap import prepare
from service.app.composition import EXTENSION, Services
from service.audit.importer import ImportFile, ImportJob, ImportResult, ImportWatch
from service.audit.integrity_check import Check
from service.core.settings import Settings
from service.store.catalog import list_live_segments
from service.store.organisations import get_org
from service.store.tables import Organisation, Project, Team
from tests.analytics.readers import as_read, read_file
from tests.conftest import BY_OPERATOR, SettableClock, World, settings_over
from tests.service.audit.conftest import AuditWorld

VERSION_1: Final = Path(__file__).parent / "version_1.tar.gz"
"""A data dir, a backup of it, and `entries.ndjson`: acme's rows as its API answered then."""

NEW_IN_EACH: Final = ("id", "tenant_id", "received_at", "decision_reason")
"""What an imported row does not take from its file."""


def unpack(folder: Path) -> Path:
    """VERSION_1 in `folder`."""
    with tarfile.open(VERSION_1) as archive:
        archive.extractall(folder, filter="data")
    return folder


def settings_of(data_dir: Path) -> Settings:
    """As of the service that wrote VERSION_1, over `data_dir`."""
    return msgspec.structs.replace(settings_over(data_dir.parent), data_dir=data_dir)


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[AuditWorld]:
    clock = SettableClock()
    settings = settings_of(data_dir)
    app = create_app(await prepare(settings, clock), clock)
    services: Services = app.extensions[EXTENSION]
    try:
        async with services.store.read() as session:
            acme, other = [await get_org(session, slug) for slug in ("acme", "other")]
            project = (await session.scalars(select(Project))).one()
            team = (await session.scalars(select(Team))).one()
        yield AuditWorld(World(app, app.test_client(), services, clock, acme, other, project, team))
    finally:
        await services.close()


async def versions(audit: AuditWorld) -> set[int]:
    """The schema versions of all segments."""
    async with audit.services.store.read() as session:
        return {segment.schema_version for segment in await list_live_segments(session)}


async def faults(audit: AuditWorld) -> list[str]:
    """What `audit check` finds."""
    report = await Check(
        audit.services.store, audit.services.lake, None, lambda done, total: None
    ).run()
    return [finding.detail for finding in report.findings]


async def exported(audit: AuditWorld, file_format: str, **query: str) -> list[dict[str, Any]]:
    response = await audit.export(format=file_format, raw="1", **query)
    assert response.status_code == 200, await response.get_data(as_text=True)
    rows = read_file(await response.get_data(), file_format)
    await audit.services.exporter.drain()
    return rows


def as_exported(entries: list[dict[str, Any]], file_format: str) -> list[dict[str, Any]]:
    """`entries` of pages as `exported` gives them."""
    return [as_read(entry, file_format) for entry in entries]


async def imported(
    audit: AuditWorld, org: Organisation, file_format: ImportFormat, content: bytes
) -> ImportResult:
    """What became of a file whose rows must all be good."""
    source = ImportFile(
        f"audit.{file_format}", io.BytesIO(content), len(content), FileKind(file_format)
    )
    refused: list[Any] = []
    result = await audit.services.importer.take(
        ImportJob(org, source, BY_OPERATOR, is_partial=False),
        ImportWatch(lambda _: None, refused.extend),
        0.0,
    )
    assert refused == []
    return result


def told(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `entries` say of what happened, in an order of its own."""
    rows = [
        {key: value for key, value in entry.items() if key not in NEW_IN_EACH} for entry in entries
    ]
    return sorted(rows, key=lambda row: msgspec.json.encode(row))
