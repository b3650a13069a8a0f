"""The examples of docs/lake.md, as they stand there, each in its engine's environment."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.settings import REPOSITORY
from service.store.catalog import list_live_segments
from tests.budgets import only_full
from tests.engines.engines import ENGINES, READS
from tests.service.audit.open_table.conftest import own_rows

EXAMPLES = dict(
    re.findall(
        r"<!-- run by: ([\w ]+) -->\n```python\n(.*?)```",
        (REPOSITORY / "docs" / "lake.md").read_text(),
        re.DOTALL,
    )
)
DELTA = re.compile("^# Delta: ", re.MULTILINE)
"""Begins the line that reads the Delta table in place of the line before it."""
NAMES = ["polars", *ENGINES]


async def hits(lakes) -> dict[str, int]:
    async with lakes.audit.services.store.read() as session:
        segments = await list_live_segments(session)
    rows = (await own_rows(lakes.audit.services, segments)).to_pylist()
    tenants = [row["tenant"] for row in rows if row["event"] == "blocklist_hit"]
    return {tenant: tenants.count(tenant) for tenant in set(tenants)}


def write_example(lakes, name: str, format_: str, folder: Path) -> Path:
    """The example of an engine for where the lake is, with its own places in it."""
    script = folder / "example.py"
    text = EXAMPLES[f"{name} in a bucket" if lakes.is_in_bucket else name]
    if format_ == "delta":
        text = DELTA.sub("", text)
    place = lakes.audit.services.settings.segments_url.removeprefix("s3://")
    text = text.replace("/srv/countersign", str(lakes.data_dir)).replace("bucket/prefix", place)
    script.write_text(text)
    return script


def assert_says(printed: str, counts: dict[str, int]) -> None:
    assert len(counts) == 2
    for tenant, count in counts.items():
        assert re.search(rf"{tenant}\D+{count}\b", printed), (tenant, count, printed)


def test_each_engine_has_an_example_for_each_place():
    assert set(EXAMPLES) == {*NAMES, *(f"{name} in a bucket" for name in NAMES)}
    with_delta = {name for name, text in EXAMPLES.items() if len(DELTA.findall(text)) == 1}
    assert set(EXAMPLES) - with_delta == {"spark", "spark in a bucket"}


@pytest.mark.parametrize("format_", ["iceberg", pytest.param("delta", marks=only_full)])
async def test_the_example_of_polars_runs(lakes, tmp_path, format_):
    await lakes.seal()
    await lakes.publish()

    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, write_example(lakes, "polars", format_, tmp_path)],
        env=os.environ | lakes.environment,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert_says(ran.stdout, await hits(lakes))


@only_full
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "format_"), READS)
async def test_an_example_runs(lakes, tmp_path, name, format_):
    ENGINES[name].require()
    await lakes.seal()
    await lakes.publish()

    printed = await asyncio.to_thread(
        ENGINES[name].run,
        write_example(lakes, name, format_, tmp_path),
        cwd=lakes.data_dir,
        environment=lakes.environment,
    )

    assert_says(printed, await hits(lakes))
