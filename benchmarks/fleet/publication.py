"""Publishing tables of many files, and planning a query of one tenant's days in them.

The files are empty: a publication looks at their sizes, and a plan opens none of them.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from sqlalchemy import text

from analytics.model.retention import Tier
from analytics.open_table.table_format import FormatName
from analytics.storage.segment_metadata import Segment
from benchmarks.fleet.pages import Figures
from benchmarks.fleet.sizes import Size
from benchmarks.lake import FIRST_DAY
from service.app.bootstrap import prepare
from service.app.composition import Services, build_services
from service.audit.open_table.places import TableKey
from service.audit.open_table.registry import list_tables
from service.core.clock import utc_now
from service.core.settings import Settings
from service.store.catalog import add_segments
from service.store.journal import take_seq
from service.store.tables import Organisation

DAYS: Final = 100
"""Files of a tenant, one a day: tables with more files have more tenants."""

_ROWS: Final = 1_000
LABELS: Final = {FormatName.ICEBERG: "Iceberg", FormatName.DELTA: "Delta"}


def of_all(size: Size) -> tuple[Figures, dict[str, float]]:
    """Times in ms by number of files, and what the catalog takes in bytes a file."""
    figures: Figures = {}
    catalog: dict[str, float] = {}
    for files in size.files:
        with tempfile.TemporaryDirectory(prefix="countersign-lake-") as folder:
            found, catalog_bytes = asyncio.run(_of_files(Path(folder), files))
        catalog["bytes a file in the catalog"] = catalog_bytes / files
        for name, each in found.items():
            figures[f"{files:,} files: {name}, ms"] = each
    return figures, catalog


async def _of_files(folder: Path, files: int) -> tuple[Figures, int]:
    settings = await prepare(Settings(data_dir=folder / "data"))
    services = build_services(settings, utc_now)
    try:
        await _fill(services, files)
        figures: Figures = {}
        for number, (name, label) in enumerate(LABELS.items()):
            services.publisher.places.table(TableKey(name))  # its library is loaded
            first = await _published_ms(services, name)
            await _add(services, [made_up(files + number, files)])
            one_more = await _published_ms(services, name)
            plans = await _plans_ms(services, name, files)
            # Tables that were published once are published with every other one.
            await services.publisher.drop([TableKey(name)])
            for what, took in {
                "first publication": first,
                "one more file": one_more,
                **plans,
            }.items():
                figures.setdefault(what, {})[label] = took
        async with services.store.read() as session:
            pages = await session.scalar(text("SELECT page_count FROM pragma_page_count()"))
            page = await session.scalar(text("SELECT page_size FROM pragma_page_size()"))
        return figures, int(pages or 0) * int(page or 0)
    finally:
        await services.close()


def made_up(number: int, files: int) -> Segment:
    """One of a table with `files`; those of a day are next to each other."""
    tenants = max(1, files // DAYS)
    day = FIRST_DAY + timedelta(days=number // tenants)
    at = datetime(day.year, day.month, day.day, 9, tzinfo=UTC)
    return Segment(
        segment_id=f"seg_{number:016x}",
        tenant_id=f"org_{number % tenants:016x}",
        day=day,
        rows=_ROWS,
        size=0,
        min_created_at=at,
        max_created_at=at + timedelta(hours=8),
        min_seq=number * _ROWS + 1,
        max_seq=(number + 1) * _ROWS,
        event_counts={"install_allowed": 900, "blocklist_hit": 60, "cooldown_active": 40},
        decision_counts={"ALLOWED": 900, "BLOCKED": 100},
        schema_version=2,
        sha256="0" * 64,
        index_size=1,
        index_sha256="1" * 64,
    )


async def _fill(services: Services, files: int) -> None:
    segments = [made_up(number, files) for number in range(files)]
    async with services.store.write() as work:
        for tenant_id in dict.fromkeys(segment.tenant_id for segment in segments):
            work.session.add(
                Organisation(
                    id=tenant_id,
                    slug=tenant_id.replace("_", "-"),
                    tier=Tier.ENTERPRISE,
                    role_overrides={},
                    created_at=work.now,
                )
            )
        await work.session.flush()
        await take_seq(work.session, (files + len(LABELS)) * _ROWS, work.now)
    await _add(services, segments)


async def _add(services: Services, segments: list[Segment]) -> None:
    for segment in segments:
        path = services.lake.path_of(segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    async with services.store.write() as work:
        await add_segments(work.session, segments, work.now)


async def _published_ms(services: Services, name: FormatName) -> float:
    began_at = time.perf_counter()
    published = await services.publisher.publish([name])
    took_ms = (time.perf_counter() - began_at) * 1000
    assert any(table.key.format is name and table.added for table in published)
    return took_ms


async def _plans_ms(services: Services, name: FormatName, files: int) -> dict[str, float]:
    """Opening the table, and the plan of a day and of a week of one tenant."""
    async with services.store.read() as session:
        version = (await list_tables(session))[TableKey(name)].version
    location = services.publisher.places.location(TableKey(name))
    open_table: Callable[[], Any] = (
        (lambda: StaticTable.from_metadata(version))
        if name is FormatName.ICEBERG
        else (lambda: DeltaTable(location.removeprefix("file://")))
    )
    list_files = _iceberg_files if name is FormatName.ICEBERG else _delta_files
    tenant_id = made_up(0, files).tenant_id
    figures = {}
    for label, days in (("a day", 1), ("a week", 7)):
        began_at = time.perf_counter()
        found = list_files(open_table(), tenant_id, days)
        figures[f"plan of {label}"] = (time.perf_counter() - began_at) * 1000
        assert found == days
    return figures


def _iceberg_files(table: StaticTable, tenant_id: str, days: int) -> int:
    until = FIRST_DAY + timedelta(days=days)
    rows = (
        f"tenant = '{tenant_id}' AND created_at >= '{FIRST_DAY}T00:00:00+00:00'"
        f" AND created_at < '{until}T00:00:00+00:00'"
    )
    return len(list(table.scan(row_filter=rows).plan_files()))


def _delta_files(table: DeltaTable, tenant_id: str, days: int) -> int:
    wanted = [str(FIRST_DAY + timedelta(days=day)) for day in range(days)]
    return len(
        table.file_uris(partition_filters=[("tenant", "=", tenant_id), ("day", "in", wanted)])
    )
