"""Every engine says of the table what Countersign says of its rows."""

import asyncio
from pathlib import Path

import polars
import pyarrow as pa
import pytest

from tests.budgets import only_full
from tests.engines.engines import ENGINES
from tests.service.lake_table.conftest import answers_of

STAGES = ("seal", "merge", "bring_in", "prune")
"""What happens to the lake before each publication."""


@only_full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "format_"),
    [(engine.name, format_) for engine in ENGINES.values() for format_ in engine.formats],
)
async def test_an_engine_says_what_countersign_says(lakes, name, format_):
    """After seal, merge, import and prune: counts, also by tenant, a histogram, min and max."""
    ENGINES[name].require()
    for stage in STAGES:
        await getattr(lakes, stage)()
        await lakes.publish()

        said = await asyncio.to_thread(
            ENGINES[name].answers, format_, lakes.location(format_), lakes.data_dir
        )

        assert said == await lakes.own(), stage


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
async def test_polars_says_what_countersign_says(lakes, format_, monkeypatch):
    """In the same environment, with every `make test`."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for stage in STAGES:
        await getattr(lakes, stage)()
        await lakes.publish()

        frame = scan(format_, lakes.location(format_)).select(
            "tenant", "seq", "event", "created_at"
        )
        # Polars has its own way of pushing filters down, so the histogram is a query of its own.
        rows = answers_of(narrow(frame.collect()))
        hits = answers_of(narrow(frame.filter(polars.col("event") == "blocklist_hit").collect()))

        assert rows == await lakes.own(), stage
        assert hits.weekly_hits == rows.weekly_hits, stage


def narrow(frame: polars.DataFrame) -> pa.Table:
    return frame.to_arrow()


def scan(format_: str, folder: str) -> polars.LazyFrame:
    """The table in `folder`, found as the documentation says."""
    if format_ == "delta":
        return polars.scan_delta(folder)
    version = Path(folder, "metadata", "version-hint.text").read_text()
    return polars.scan_iceberg(f"{folder}/metadata/v{version}.metadata.json")
