"""The schema can grow: a version with a column more reads what this one wrote.

The later version is a copy of the code in which AuditRow has a column more.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from analytics.imports.chunks import ImportFormat
from analytics.model.filters import Query
from analytics.model.schema import NewerSchema
from service.audit.backup.create import take_backup
from service.audit.backup.manifest import read_manifest
from service.audit.backup.refusals import NEWER_BACKUP
from service.core.settings import REPOSITORY
from tests.analytics.samples import sample_row
from tests.budgets import only_full
from tests.conftest import START
from tests.stored.stored import faults, imported, opened, unpack

pytestmark = pytest.mark.sqlite_only(reason="it begins with a SQLite database")

PARTS = ("analytics", "benchmarks", "data", "service", "templates", "tests")
NEWER = "was written by a newer version of Countersign: update this one"
ADDED = {
    "analytics/model/rows.py": {
        """                field=FieldOfFilter(place=13, hint="pip/26.3 or npm/*"),
            ),
        ),
    ] = None
""": """    test_column: Annotated[
        Text,
        Column(
            field_id=25,
            since=4,
            label="Test",
            section=REQUEST,
            filter=FilterParameter(description="What a test adds", example="t"),
        ),
    ] = None
""",
    },
}
"""The lines of the later version, each behind the one it follows."""


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of a later version."""
    folder = tmp_path_factory.mktemp("later")
    ignored = shutil.ignore_patterns("__pycache__", "local")
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    for name, lines in ADDED.items():
        code = (folder / name).read_text()
        for line, added in lines.items():
            assert code.count(line) == 1, f"{name} has {line!r} not exactly once"
            code = code.replace(line, line + added)
        (folder / name).write_text(code)
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What this version makes of a data dir of the first: rows of both in every place."""
    folder = unpack(tmp_path_factory.mktemp("stored"))
    shutil.rmtree(folder / "backup")
    asyncio.run(add_rows(folder))
    return folder


async def add_rows(folder: Path) -> None:
    """Fill the data dir in `folder`, and keep beside it what the later version compares with."""
    async with opened(folder / "data") as audit:
        await audit.accept([sample_row(START, actor_source="oidc_github")] * 3)
        await audit.seal()
        line = json.dumps({"event": "install_allowed", "created_at": str(START)}).encode()
        await imported(audit, audit.world.acme, ImportFormat.NDJSON, line)
        await audit.accept([sample_row(START, actor_source="oidc_github")] * 2)
        entries = await audit.pages(limit=100)
        await take_backup(
            audit.services, folder / "backup", lambda *_: None, is_linked=False, has_secrets=False
        )
        for file_format in ImportFormat:
            response = await audit.export(format=file_format)
            (folder / f"entries.{file_format}").write_bytes(await response.get_data())
            await audit.services.exporter.drain()
    (folder / "entries.json").write_bytes(msgspec.json.encode(entries))


@pytest.fixture(scope="module")
def ran(later: Path, stored: Path) -> subprocess.CompletedProcess[str]:
    """The tests of the later version, over what this one stored."""
    plugins = ("no:cacheprovider", "pytest_asyncio.plugin", "pytest_timeout")
    command = [sys.executable, "-m", "pytest", "-q", *(f"-p{plugin}" for plugin in plugins)]
    return subprocess.run(
        [*command, "tests/stored/next_version.py"],
        cwd=later,
        env={
            **os.environ,
            "PYTHONPATH": str(later),
            "STORED": str(stored),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the rest take longer than the tests
        },
        capture_output=True,
        text=True,
        check=False,
    )


@only_full
@pytest.mark.slow
def test_a_later_version_reads_what_this_one_wrote(ran):
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout


@only_full
@pytest.mark.slow
@pytest.mark.parametrize("name", ["journalled", "sealed"])
async def test_what_a_later_version_wrote_is_refused_here(ran, stored, name):
    """A page without the rows of that version would mislead."""
    assert ran.returncode == 0, ran.stdout
    async with opened(stored / name) as audit:
        snapshot = await audit.services.store.snapshot(audit.world.acme.id)
        with pytest.raises(NewerSchema, match=NEWER):
            await audit.services.lake.queries.run(
                lambda reader: reader.page(snapshot, Query(), 1, None)
            )
        assert (await audit.get()).status_code == 503
        (fault,) = await faults(audit)
        assert NEWER in fault
    with pytest.raises(NEWER_BACKUP, match="newer version"):
        read_manifest(stored / f"{name}-backup")
