"""What the tests of backups share: a service with rows in every place, and a place beside it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from quart import Quart

from service.app.application import create_app
from service.app.composition import EXTENSION, Services
from service.audit.backup.create import take_backup
from service.audit.backup.manifest import Manifest
from service.audit.backup.restore import Restored, restore_backup
from service.audit.integrity_check import Check
from tests.analytics.samples import sample_row
from tests.conftest import START, settings_over
from tests.service.audit.conftest import AuditWorld, audit  # noqa: F401 - found by name

GRACE_S = 100.0
NO_ROOM = SimpleNamespace(total=10**9, used=10**9, free=0)
"""What a full disk says of itself."""


@pytest.fixture
def settings(tmp_path):
    return msgspec.structs.replace(
        settings_over(tmp_path), export_max_s=GRACE_S - 30, query_max_s=30.0, compact_quiet_s=1e6
    )


@pytest.fixture
async def filled(audit: AuditWorld) -> AuditWorld:  # noqa: F811 - the fixture
    """Merged, retired and late segments of two organisations, and rows in both journals."""
    for second in range(3):
        await audit.accept([sample_row(START.replace(day=2, second=second))] * 3)
        await audit.seal()
    audit.clock.advance(days=1)
    await audit.services.compactor.compact_due(everything=True)
    await audit.accept([sample_row(START.replace(day=2))] * 2)
    await audit.accept([sample_row(START)], audit.world.other)
    await audit.seal()
    await audit.accept([sample_row(audit.clock())] * 5)
    await audit.accept([sample_row(audit.clock())], audit.world.other)
    return audit


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backup"


async def take(
    here: Services,
    target: Path,
    *,
    is_linked: bool = False,
    has_secrets: bool = False,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    return await take_backup(here, target, show, is_linked=is_linked, has_secrets=has_secrets)


async def take_refused(
    error: type[BaseException],
    here: Services,
    target: Path,
    match: str | None = None,
    **options: Any,
) -> None:
    """A backup fails so, and nothing is left of it."""
    with pytest.raises(error, match=match):
        await take(here, target, **options)
    assert not is_left(target)


async def entries(filled: AuditWorld) -> dict[str, list[dict[str, Any]]]:
    """Every row of each organisation, as its page has them."""
    return await entries_of(filled.world.client, filled)


async def entries_of(client: Any, filled: AuditWorld) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for slug in ("acme", "other"):
        path = f"/api/v1/admin/orgs/{slug}/audit?limit=1000"
        response = await client.get(path, headers=filled.world.admin)
        assert response.status_code == 200
        found[slug] = (await response.get_json())["entries"]
    return found


def restore(
    filled: AuditWorld,
    source: Path,
    data_dir: Path,
    *,
    is_forced: bool = False,
    **changes: Any,
) -> Restored:
    """The backup `source` put back as `data_dir`; `changes` are other settings."""
    settings = msgspec.structs.replace(filled.services.settings, data_dir=data_dir, **changes)
    return restore_backup(settings, source, lambda done, total: None, is_forced=is_forced)


@asynccontextmanager
async def serving(filled: AuditWorld, data_dir: Path, **changes: Any) -> AsyncIterator[Quart]:
    """An app over `data_dir`, which has to pass its check; `changes` are other settings."""
    settings = msgspec.structs.replace(filled.services.settings, data_dir=data_dir, **changes)
    app = create_app(settings, filled.clock)
    here: Services = app.extensions[EXTENSION]
    try:
        report = await Check(here.store, here.lake, None, lambda done, total: None).run()
        assert (report.findings, report.notes) == ([], [])
        yield app
    finally:
        await here.close()


async def restored_entries(
    filled: AuditWorld,
    source: Path,
    data_dir: Path,
) -> dict[str, list[dict[str, Any]]]:
    """What a service over the backup `source`, put back as `data_dir`, shows."""
    await asyncio.to_thread(restore, filled, source, data_dir)
    async with serving(filled, data_dir) as app:
        return await entries_of(app.test_client(), filled)


def is_left(target: Path) -> bool:
    """Whether there is a backup, or an unfinished one."""
    return target.exists() or bool(left_over(target.parent))


def left_over(folder: Path) -> list[str]:
    """The names of unfinished folders."""
    return [path.name for path in folder.iterdir() if path.name.endswith(".part")]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file in `folder`, by its path there."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
