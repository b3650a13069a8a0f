"""The examples of docs/lake.md, as they stand there, each in its engine's environment."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.settings import REPOSITORY
from service.store.catalog import list_live_segments
from tests.budgets import only_full
from tests.engines.engines import ENGINES, FOLDER
from tests.service.lake_table.conftest import own_rows

EXAMPLES = dict(
    re.findall(
        r"<!-- run by: (\w+) -->\n```python\n(.*?)```",
        (REPOSITORY / "docs" / "lake.md").read_text(),
        re.DOTALL,
    )
)


async def hits(lakes) -> dict[str, int]:
    """Blocked installs by tenant."""
    async with lakes.audit.services.store.read() as session:
        segments = await list_live_segments(session)
    rows = own_rows(lakes.audit.services.settings.audit_dir, segments).to_pylist()
    tenants = [row["tenant"] for row in rows if row["event"] == "blocklist_hit"]
    return {tenant: tenants.count(tenant) for tenant in set(tenants)}


def write_example(lakes, name: str, folder: Path) -> Path:
    script = folder / "example.py"
    script.write_text(EXAMPLES[name].replace("/srv/countersign", str(lakes.data_dir)))
    return script


def assert_says(printed: str, counts: dict[str, int]) -> None:
    assert len(counts) == 2
    for tenant, count in counts.items():
        assert re.search(rf"{tenant}\D+{count}\b", printed), (tenant, count, printed)


def test_each_engine_has_an_example():
    """And each example an engine that runs it."""
    assert set(EXAMPLES) == {"polars", *ENGINES}


async def test_the_example_of_polars_runs(lakes, tmp_path):
    """With every `make test`."""
    await lakes.seal()
    await lakes.publish()

    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, write_example(lakes, "polars", tmp_path)],
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert_says(ran.stdout, await hits(lakes))


@only_full
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ENGINES)
async def test_an_example_runs(lakes, tmp_path, name, monkeypatch):
    """It prints the blocked installs of each organisation."""
    ENGINES[name].require()
    await lakes.seal()
    await lakes.publish()
    jars = [str(path) for path in (FOLDER / name).rglob("iceberg-spark-runtime-3.5_2.12-*.jar")]
    if jars:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--jars {jars[0]} pyspark-shell")

    printed = await asyncio.to_thread(
        ENGINES[name].run, write_example(lakes, name, tmp_path), cwd=lakes.data_dir
    )

    assert_says(printed, await hits(lakes))
